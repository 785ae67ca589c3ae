"""What a search found: the right best one, a row a trial, and a reason where there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gandiva_ray.core.model import Outcome
from gandiva_ray.core.search import TrialReported
from gandiva_ray.results import Result, ResultGrid, flatten
from gandiva_ray.run_log import Reports, RunLog, line_of
from gandiva_ray.trial.checkpoint import Checkpoint


def grid(
    folder: Path, histories: Sequence[Sequence[Any]], outcomes: Sequence[Outcome] | None = None, mode: Any = "max"
) -> ResultGrid:
    """A grid of trials that reported these values of "score" (or these dicts), logged as a search logs them."""
    reports = Reports(folder)
    log = RunLog(folder, clock=lambda: 0.0)
    results = []
    for i, history in enumerate(histories):
        trial = f"{i:05}"
        metrics = [value if isinstance(value, dict) else {"score": value} for value in history]
        log.write(*(line_of(TrialReported(trial, n + 1, metrics[n], n + 0.5)) for n in range(len(metrics))))
        outcome = outcomes[i] if outcomes else Outcome.COMPLETED
        error = f"Traceback of {trial}" if outcome is Outcome.FAILED else None
        results.append(
            Result(
                trial_id=trial,
                config={"lr": i / 10, "model": {"width": i}},
                metrics=metrics[-1] if metrics else {},
                outcome=outcome,
                reason="ValueError: bad" if error else "it returned",
                error=error,
                path=str(folder / trial),
                steps=len(metrics),
                device_seconds=len(metrics) / 2,
                _reports=reports,
            )
        )
    log.close()
    return ResultGrid(tuple(results), "score", mode, str(folder), "all trials ended")


def test_a_grid_is_a_sequence_of_results(tmp_path: Path) -> None:
    results = grid(tmp_path, [[1], [2], [3]])
    assert len(results) == 3
    assert [result.trial_id for result in results] == ["00000", "00001", "00002"]
    assert results[-1].config == {"lr": 0.2, "model": {"width": 2}}
    assert len(results[:2]) == 2


@pytest.mark.parametrize(
    ("mode", "scope", "best"),
    [("max", "last", "00001"), ("max", "all", "00000"), ("min", "last", "00002"), ("min", "all", "00001")],
)
def test_the_best_is_of_the_last_or_of_all_reports(tmp_path: Path, mode: Any, scope: Any, best: str) -> None:
    results = grid(tmp_path, [[9, 2], [-1, 5], [3, 1]])
    assert results.get_best_result(mode=mode, scope=scope).trial_id == best


def test_the_mode_of_the_search_is_the_default(tmp_path: Path) -> None:
    assert grid(tmp_path, [[1], [2]], mode="min").get_best_result().trial_id == "00000"


def test_another_metric_may_be_asked_for_and_may_be_nested(tmp_path: Path) -> None:
    results = grid(tmp_path, [[{"score": 2, "eval": {"loss": 5}}], [{"score": 1, "eval": {"loss": 7}}]])
    assert results.get_best_result("eval/loss", "max").trial_id == "00001"
    assert results.get_best_result("eval/loss", "min", scope="all").trial_id == "00000"


def test_the_first_of_equals_is_the_best(tmp_path: Path) -> None:
    assert grid(tmp_path, [[1], [4], [4]]).get_best_result().trial_id == "00001"


def test_nan_and_infinities_are_passed_over_in_each_report(tmp_path: Path) -> None:
    results = grid(tmp_path, [[8, math.nan], [math.inf, 2], [1, 1]])
    assert results.get_best_result().trial_id == "00001"
    assert results.get_best_result(scope="all").trial_id == "00000"
    assert results.get_best_result(scope="all", filter_nan_and_inf=False).trial_id == "00001"


def test_nan_is_never_better_than_a_number(tmp_path: Path) -> None:
    for mode in ("min", "max"):
        results = grid(tmp_path, [[math.nan], [1], [math.nan]], mode=mode)
        assert results.get_best_result(filter_nan_and_inf=False).trial_id == "00001"


def test_a_stopped_trial_may_be_the_best(tmp_path: Path) -> None:
    results = grid(tmp_path, [[1], [2]], [Outcome.COMPLETED, Outcome.STOPPED])
    assert results.get_best_result().outcome is Outcome.STOPPED


def test_scopes_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="scope is one of last, all, avg, last-5-avg, last-10-avg; got 'best'"):
        grid(tmp_path, [[1]]).get_best_result(scope="best")  # type: ignore[arg-type]


def test_a_wrong_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"mode is .*'best'"):
        grid(tmp_path, [[1]]).get_best_result(mode="best")  # type: ignore[arg-type]


def why_no_best(results: ResultGrid, *arguments: Any) -> str:
    with pytest.raises(RuntimeError) as none:
        results.get_best_result(*arguments)
    return str(none.value)


def test_no_best_names_the_metrics_that_were_reported(tmp_path: Path) -> None:
    message = why_no_best(grid(tmp_path, [[1], [2]]), "scor")
    assert "no trial reported 'scor'; did you mean 'score'? Reported: score." in message


def test_no_best_shows_the_first_failure(tmp_path: Path) -> None:
    message = why_no_best(grid(tmp_path, [[], []], [Outcome.FAILED, Outcome.NEVER_STARTED]))
    assert "no trial reported anything (1 failed, 1 never started)" in message
    assert "The first failure, of trial 00000: ValueError: bad" in message


def test_no_best_among_nan_says_so(tmp_path: Path) -> None:
    message = why_no_best(grid(tmp_path, [[math.nan], [math.inf]]))
    assert "every value of 'score' is infinite, NaN or not a number" in message


def test_no_best_among_no_trials_says_why_the_search_ended(tmp_path: Path) -> None:
    assert why_no_best(grid(tmp_path, [])) == "there is no best result: no trial was created (all trials ended)"


def test_the_dataframe_has_a_row_a_trial(tmp_path: Path) -> None:
    results = grid(tmp_path, [[1, 2], [], [5]], [Outcome.COMPLETED, Outcome.FAILED, Outcome.STOPPED])
    frame = results.get_dataframe()
    assert list(frame["trial_id"]) == ["00000", "00001", "00002"]
    assert list(frame["config/lr"]) == [0.0, 0.1, 0.2]
    assert list(frame["config/model/width"]) == [0, 1, 2]
    assert list(frame["state"]) == ["completed", "failed", "stopped"]
    assert list(frame["reason"]) == ["it returned", "ValueError: bad", "it returned"]
    assert list(frame["steps"]) == [2, 0, 1]
    assert list(frame["device_seconds"]) == [1.0, 0.0, 0.5]
    assert list(frame["path"]) == [str(tmp_path / trial) for trial in frame["trial_id"]]
    assert list(frame["score"].fillna(-1)) == [2, -1, 5]


def test_a_metric_called_like_a_column_is_kept_beside_it(tmp_path: Path) -> None:
    frame = grid(tmp_path, [[{"score": 1, "state": "warm"}]]).get_dataframe()
    assert (frame["state"][0], frame["metrics/state"][0]) == ("completed", "warm")


def test_the_dataframe_of_no_trials_is_empty(tmp_path: Path) -> None:
    assert len(grid(tmp_path, []).get_dataframe()) == 0


def test_a_trials_reports_over_time_are_a_dataframe(tmp_path: Path) -> None:
    results = grid(tmp_path, [[{"score": 1, "eval": {"loss": 3}}, {"score": 2, "eval": {"loss": 2}}], []])
    frame = results[0].metrics_dataframe
    assert frame.to_dict("list") == {
        "step": [1, 2],
        "score": [1, 2],
        "eval/loss": [3, 2],
        "device_seconds": [0.5, 1.5],
    }
    assert len(results[1].metrics_dataframe) == 0


def test_errors_and_outcomes_are_counted(tmp_path: Path) -> None:
    outcomes = [Outcome.COMPLETED, Outcome.FAILED, Outcome.STOPPED, Outcome.CUT, Outcome.NEVER_STARTED, Outcome.FAILED]
    results = grid(tmp_path, [[1]] * 6, outcomes)
    assert results.errors == ["Traceback of 00001", "Traceback of 00005"]
    assert (results.num_errors, results.num_terminated) == (2, 2)
    assert results.counts[Outcome.FAILED] == 2
    assert sum(results.counts.values()) == len(results)


def test_flatten_joins_names() -> None:
    assert flatten({"a": {"b": {"c": 1}, "d": 2}, "e": {}}) == {"a/b/c": 1, "a/d": 2, "e": {}}


@pytest.mark.parametrize(
    ("scope", "mode", "best"),
    [("avg", "max", "00000"), ("avg", "min", "00001"), ("last-5-avg", "max", "00001"), ("last-10-avg", "max", "00000")],
)
def test_the_best_may_be_of_the_mean(tmp_path: Path, scope: Any, mode: Any, best: str) -> None:
    results = grid(tmp_path, [[50, 1, 1, 1, 1, 1], [2, 2, 2, 2, 2, 2]])
    assert results.get_best_result(mode=mode, scope=scope).trial_id == best


def test_the_best_checkpoint_is_by_the_metrics_that_it_was_reported_with(tmp_path: Path) -> None:
    (result,) = grid(tmp_path, [[1]])
    kept = [
        (Checkpoint("/a"), {"eval": {"loss": 3}}),
        (Checkpoint("/b"), {"eval": {"loss": 1}}),
        (Checkpoint("/c"), {}),
    ]
    result = replace(result, best_checkpoints=kept)
    best = [result.get_best_checkpoint("eval/loss", mode) for mode in ("min", "max")]
    assert [checkpoint and checkpoint.path for checkpoint in best] == ["/b", "/a"]
    with pytest.raises(
        RuntimeError, match="no checkpoint of trial 00000 was reported with 'loss', only with eval/loss"
    ):
        result.get_best_checkpoint("loss", "min")
    assert replace(result, best_checkpoints=()).get_best_checkpoint("loss", "min") is None


def test_a_notebook_shows_a_table(tmp_path: Path) -> None:
    results = grid(tmp_path, [[1], [{"score": "<b>"}]])
    assert "<tr><th>trials</th><td>2 completed</td></tr>" in results._repr_html_()
    assert "<td>&lt;b&gt;</td>" in results[1]._repr_html_()
    assert "<th>model/width</th><td>1</td>" in results[1]._repr_html_()


def test_the_dataframe_may_hold_the_best_report_of_each_trial(tmp_path: Path) -> None:
    results = grid(
        tmp_path, [[{"score": 1, "note": "a"}, {"score": 5, "note": "b"}, {"score": 2, "note": "c"}], [], [7]]
    )
    assert list(results.get_dataframe("score")["note"].fillna("-")) == ["b", "-", "-"]
    assert list(results.get_dataframe("score", "min")["score"].fillna(-1)) == [1, -1, 7]
    assert list(results.get_dataframe("score", "min")["steps"]) == [3, 0, 1]
    with pytest.raises(ValueError, match="filter_mode is for a metric"):
        results.get_dataframe(filter_mode="min")
    with pytest.raises(ValueError, match=r"the search had no mode: get_dataframe\('score', \"min\"\)"):
        replace(results, mode=None).get_dataframe("score")


def test_the_text_of_a_grid_is_one_line_however_many_trials_there_are(tmp_path: Path) -> None:
    results = grid(tmp_path, [[1]] * 500)
    assert repr(results) == f"ResultGrid(500 trials: 500 completed; all trials ended; {tmp_path})"
    assert repr(replace(results, results=())) == f"ResultGrid(0 trials; all trials ended; {tmp_path})"


def test_what_results_do_not_have_says_what_to_use(tmp_path: Path) -> None:
    results = grid(tmp_path, [[1]])
    for thing in (results, results[0]):
        with pytest.raises(AttributeError, match=r"no filesystem \(Ray Tune's have\): they lie in the local"):
            _ = thing.filesystem
