"""Searches that were cut short or killed and go on, over a fake session."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gandiva_ray.config import FailureConfig, RunConfig, TuneConfig
from gandiva_ray.core.model import Outcome
from gandiva_ray.core.search import TrialReported
from gandiva_ray.results import ResultGrid
from gandiva_ray.run_log import FILE_NAME, Line, read_log
from gandiva_ray.trial.checkpoint import Checkpoint
from gandiva_ray.tuner import Tuner
from searchers import ASHA, Hyperband, SuccessiveHalving, grid_search, uniform
from tests.conftest import Sessions
from tests.fake_search_session import FakeSearchSession
from tests.test_tuner import Install, climb, press_ctrl_c_at

SEARCHER = SuccessiveHalving(max_t=9)


def fit(folder: Path, trainable: Callable[..., Any] = climb, **tune: Any) -> ResultGrid:
    settings = {"metric": "score", "mode": "max", "num_samples": 9, "searcher": SEARCHER, **tune}
    return Tuner(
        trainable,
        param_space={"x": uniform(0, 1)},
        tune_config=TuneConfig(**settings),
        run_config=RunConfig(name="run", storage_path=folder, verbose=0),
    ).fit()


def climb_and_save(config: dict[str, Any]) -> Any:
    return ({**metrics, "checkpoint": str(step)} for step, metrics in enumerate(climb(config), start=1))


def findings(results: ResultGrid) -> list[Any]:
    return [(result.config, result.outcome, result.steps, result.metrics) for result in results]


def reports(folder: Path) -> Counter[tuple[str, int]]:
    return Counter((line["trial"], line["step"]) for line in read_log(folder) if line["what"] == "report")


@pytest.mark.parametrize("poll", [1, 2, 5, 10, 15])
def test_an_interrupted_search_goes_on_to_the_same_end(tmp_path: Path, fake_runtime: Install, poll: int) -> None:
    fake_runtime()
    whole = fit(tmp_path / "whole")
    fake_runtime(before_poll=press_ctrl_c_at(poll))
    assert fit(tmp_path).interrupted
    fake_runtime()
    restored = Tuner.restore(tmp_path / "run", climb).fit()
    assert findings(restored) == findings(whole)
    assert (restored.interrupted, restored.stop_reason) == (False, "all trials ended")
    assert set(reports(tmp_path / "run").values()) == {1}


@pytest.mark.parametrize("searcher", [SEARCHER, Hyperband(max_t=9), ASHA(max_t=9)])
def test_a_search_killed_at_any_moment_suggests_what_it_would_have(
    tmp_path: Path, fake_runtime: Install, searcher: Any
) -> None:
    """Whatever part of the log there is: whole batches, and a line that was torn."""
    fake_runtime()
    whole = fit(tmp_path / "whole", searcher=searcher)
    log = (tmp_path / "whole" / "run" / FILE_NAME).read_bytes()
    for size in range(len(log) // 7, len(log), len(log) // 7):
        run = tmp_path / f"cut-{size}" / "run"
        run.mkdir(parents=True)
        (run / "tuner.pkl").write_bytes((tmp_path / "whole" / "run" / "tuner.pkl").read_bytes())
        (run / FILE_NAME).write_bytes(log[:size])
        fake_runtime()
        restored = Tuner.restore(run, climb).fit()
        assert [result.config for result in restored] == [result.config for result in whole]
        assert restored.num_terminated == 9
        assert set(reports(run).values()) == {1}


def test_a_search_may_be_cut_and_restored_again_and_again(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime()
    whole = fit(tmp_path / "whole", climb_and_save)
    fake_runtime(before_poll=press_ctrl_c_at(4))
    results = fit(tmp_path, climb_and_save)
    times = 0
    while results.interrupted and times < 50:
        results = Tuner.restore(tmp_path / "run", climb_and_save).fit()
        times += 1
    assert 2 < times < 50
    assert findings(results) == findings(whole)
    at = [line["at"] for line in read_log(tmp_path / "run")]
    assert at == sorted(at)


def test_a_search_that_was_over_does_nothing_more(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime()
    whole = fit(tmp_path, target=0.8, num_samples=20)
    sessions: Sessions = fake_runtime()
    restored = Tuner.restore(tmp_path / "run", climb).fit()
    assert findings(restored) == findings(whole)
    assert sessions[0].submitted == []
    assert sessions[0].retried == []
    assert restored.stop_reason == whole.stop_reason


def test_a_trial_that_had_a_checkpoint_goes_on_from_it(tmp_path: Path, fake_runtime: Install) -> None:
    def save(config: dict[str, Any]) -> Any:
        return ({"score": 0.5, "checkpoint": f"{tmp_path}/{step}"} for step in range(1, 10))

    fake_runtime(before_poll=press_ctrl_c_at(6))
    config = RunConfig(name="run", storage_path=tmp_path, verbose=0, failure_config=FailureConfig(max_failures=1))
    Tuner(save, tune_config=TuneConfig("score", "max", num_samples=2), run_config=config).fit()
    sessions = fake_runtime()
    results = Tuner.restore(tmp_path / "run", save).fit()
    assert results.counts == {Outcome.COMPLETED: 2}
    assert all(retry.step > 0 and retry.checkpoint == f"{tmp_path}/{retry.step}" for retry in sessions[0].retried)


def test_what_is_no_run_is_named(tmp_path: Path, fake_runtime: Install) -> None:
    with pytest.raises(FileNotFoundError, match=r"is no run's folder: there is no log\.jsonl in it"):
        Tuner.restore(tmp_path, climb)
    fake_runtime()
    lock = threading.Lock()
    config = TuneConfig("score", "max", searcher=SEARCHER)
    run = RunConfig(name="run", storage_path=tmp_path, verbose=0, stop=lambda trial, metrics: lock.locked())
    Tuner(climb, param_space={"x": 0.5}, tune_config=config, run_config=run).fit()
    with pytest.raises(FileNotFoundError, match=r"has no tuner\.pkl: the search's space or settings could not be"):
        Tuner.restore(tmp_path / "run", climb)


def test_arguments_of_ray_tunes_restore_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"Tuner\.restore has no 'resume_config' \(Ray Tune has it\): use resume_unf"):
        Tuner.restore(tmp_path, climb, resume_config=None)


def lines(folder: Path, what: str) -> list[Line]:
    return [line for line in read_log(folder) if line["what"] == what]


def test_a_failed_trial_is_tried_again_and_the_user_is_told(
    tmp_path: Path, fake_runtime: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash(config: dict[str, Any]) -> Any:
        yield {"score": 1.0}
        raise ValueError("cannot")

    fake_runtime()
    run = RunConfig(name="run", storage_path=tmp_path, failure_config=FailureConfig(max_failures=2))
    results = Tuner(crash, tune_config=TuneConfig("score", "max"), run_config=run).fit()
    assert results.counts == {Outcome.FAILED: 1}
    assert len(lines(tmp_path / "run", "retry")) == 2
    assert "Trial 00000 is tried again from its beginning (attempt 2): ValueError: cannot" in capsys.readouterr().out
    assert results[0].steps == 1


def fail_after_four(config: dict[str, Any]) -> Any:
    for step in range(1, 5):
        yield {"score": config["x"] * step, "checkpoint": str(step)}
    raise ValueError("cannot")


def failed_search(folder: Path, searcher: Any = None) -> ResultGrid:
    """Of three trials, of which the second fails after four reports."""

    def train(config: dict[str, Any]) -> Any:
        return fail_after_four(config) if config["x"] == 2 else climb_and_save(config)

    return Tuner(
        train,
        param_space={"x": grid_search([1, 2, 3])},
        tune_config=TuneConfig("score", "max", searcher=searcher),
        run_config=RunConfig(name="run", storage_path=folder, verbose=0),
    ).fit()


@pytest.mark.parametrize("searcher", [None, ASHA(max_t=9, grace_period=9), SuccessiveHalving(max_t=9, grace_period=3)])
def test_a_trial_that_failed_goes_on_from_its_checkpoint_if_that_is_asked_for(
    tmp_path: Path, fake_runtime: Install, searcher: Any
) -> None:
    fake_runtime()
    before = failed_search(tmp_path, searcher)
    assert before.num_errors == 1
    sessions = fake_runtime()
    after = Tuner.restore(tmp_path / "run", climb_and_save, resume_errored=True).fit()
    (retry,) = sessions[0].retried
    assert (retry.trial, retry.step, retry.checkpoint) == ("00001", 4, "4")
    assert (after[1].outcome, after[1].steps, after.num_errors) == (Outcome.COMPLETED, 9, 0)
    assert [findings(before)[i] for i in (0, 2)] == [findings(after)[i] for i in (0, 2)]
    assert set(reports(tmp_path / "run").values()) == {1}
    fake_runtime()
    assert findings(Tuner.restore(tmp_path / "run", climb_and_save).fit()) == findings(after)


def test_a_trial_that_failed_begins_anew_if_that_is_asked_for(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime()
    failed_search(tmp_path)
    sessions = fake_runtime()
    after = Tuner.restore(tmp_path / "run", climb, restart_errored=True).fit()
    (retry,) = sessions[0].retried
    assert (retry.step, retry.checkpoint) == (0, None)
    assert (after[1].outcome, after[1].steps) == (Outcome.COMPLETED, 9)
    assert list(after[1].metrics_dataframe["score"]) == [2 * step / 9 for step in range(1, 10)]


def test_a_trial_that_failed_stays_so_otherwise(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime()
    before = failed_search(tmp_path)
    sessions = fake_runtime()
    assert findings(Tuner.restore(tmp_path / "run", climb).fit()) == findings(before)
    assert sessions[0].retried == []


def test_trials_that_had_not_ended_may_be_left_as_they_are(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime(before_poll=press_ctrl_c_at(5))
    fit(tmp_path, num_samples=4, searcher=None)
    sessions = fake_runtime()
    results = Tuner.restore(tmp_path / "run", climb, resume_unfinished=False).fit()
    assert sessions[0].retried == []
    assert results.counts[Outcome.CUT] + results.counts.get(Outcome.NEVER_STARTED, 0) > 0
    assert results.stop_reason == "all trials ended"


def test_whether_a_run_can_be_restored(tmp_path: Path, fake_runtime: Install) -> None:
    assert not Tuner.can_restore(tmp_path)
    fake_runtime()
    fit(tmp_path)
    assert Tuner.can_restore(tmp_path / "run")


def test_arguments_of_restore_that_contradict_each_other_are_refused(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime()
    fit(tmp_path)
    with pytest.raises(ValueError, match=r"resume_errored=True\) or begin anew \(restart_errored=True"):
        Tuner.restore(tmp_path / "run", climb, resume_errored=True, restart_errored=True)
    with pytest.raises(ValueError, match="param_space is not the one that the search began with: leave it out"):
        Tuner.restore(tmp_path / "run", climb, param_space={"x": 1})
    Tuner.restore(tmp_path / "run", climb, param_space={"x": uniform(0, 1)})


def test_a_checkpoint_that_came_after_its_report_is_there_after_a_restore(
    tmp_path: Path, fake_runtime: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a class that is told to stop between two steps, with checkpoint_at_end."""

    class SavesAtStop(FakeSearchSession):
        def _step(self, trial: Any) -> Any:
            name = trial.create.trial
            if trial.stop is not None:
                yield TrialReported(name, trial.step, {"score": 0.0}, trial.step / 2, f"at {trial.step}", trial.attempt)
            yield from super()._step(trial)

    monkeypatch.setattr("tests.conftest.FakeSearchSession", SavesAtStop)
    fake_runtime()
    whole = fit(tmp_path)
    stopped = [result for result in whole if result.outcome is Outcome.STOPPED]
    assert stopped
    assert all(result.checkpoint == Checkpoint(f"at {result.steps}") for result in stopped)
    assert set(reports(tmp_path / "run").values()) == {1}
    fake_runtime()
    again = Tuner.restore(tmp_path / "run", climb).fit()
    assert [result.best_checkpoints for result in again] == [result.best_checkpoints for result in whole]
    table = Path(stopped[0].path or "", "progress.csv").read_text().splitlines()
    assert f"at {stopped[0].steps}" in table[-1]
