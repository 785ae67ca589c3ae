"""A search from its call to its results, over a fake session."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gandiva_ray.config import RunConfig, TuneConfig
from gandiva_ray.core.model import Outcome
from gandiva_ray.core.search import Create, Problem, Searcher
from gandiva_ray.results import ResultGrid
from gandiva_ray.run_log import read_log
from gandiva_ray.tuner import Tuner
from searchers import ASHA, GridSearch, Hyperband, RandomSearch, SuccessiveHalving, choice, grid_search, uniform
from tests.conftest import Sessions

Install = Callable[..., Sessions]
Reports = Iterable[dict[str, Any]]

SPACE = {"x": uniform(0, 1), "model": {"width": choice([4, 8])}}


def climb(config: dict[str, Any]) -> Reports:
    """Nine reports, from 0 towards x."""
    return ({"score": config["x"] * step / 9} for step in range(1, 10))


def endless(config: dict[str, Any]) -> Reports:
    return ({"score": 0.0} for _ in itertools.count())


def crash(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    raise ValueError(f"cannot train {config['x']}")


def search(folder: Path, trainable: Any, *, space: Any = None, verbose: int = 0, **tune: Any) -> ResultGrid:
    return Tuner(
        trainable,
        param_space=SPACE if space is None else space,
        tune_config=TuneConfig(**{"metric": "score", "mode": "max", **tune}),
        run_config=RunConfig(name="run", storage_path=folder, verbose=verbose),
    ).fit()


# --- what a search finds


def test_a_random_search_runs_every_sample_to_its_end(tmp_path: Path, fake_runtime: Install) -> None:
    (sessions := fake_runtime())
    results = search(tmp_path, climb, num_samples=8)
    assert len(results) == 8
    assert {result.outcome for result in results} == {Outcome.COMPLETED}
    best = results.get_best_result()
    assert best.metrics["score"] == pytest.approx(best.config["x"]) == max(result.config["x"] for result in results)
    assert best.steps == 9
    assert best.device_seconds == 4.5
    assert (results.stop_reason, results.interrupted, results.errors) == ("all trials ended", False, [])
    assert results.path == str(tmp_path / "run")
    assert best.path == str(tmp_path / "run" / best.trial_id)
    assert [session.closed >= 1 for session in sessions] == [True]


def test_the_same_seed_gives_the_same_search(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime()
    runs = [search(tmp_path / str(i), climb, num_samples=4, seed=seed) for i, seed in enumerate((1, 1, 2))]
    configs = [[result.config for result in run] for run in runs]
    assert configs[0] == configs[1] != configs[2]


def test_a_search_that_ignores_feedback_runs_its_trials_exclusive(tmp_path: Path, fake_runtime: Install) -> None:
    sessions = fake_runtime()
    search(tmp_path / "a", climb, num_samples=2)
    search(tmp_path / "b", climb, num_samples=2, searcher=ASHA(max_t=9))
    assert [create.exclusive for create in sessions[0].submitted] == [True, True]
    assert [create.exclusive for create in sessions[1].submitted] == [False, False]


def test_hyperband_stops_most_and_the_best_is_among_those_at_full_budget(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime()
    results = search(tmp_path, climb, num_samples=20, searcher=Hyperband(max_t=9))
    assert results.counts.keys() <= {Outcome.COMPLETED, Outcome.STOPPED}
    assert results.counts[Outcome.STOPPED] > 5
    assert results.get_best_result().steps == 9
    assert all(result.reason for result in results)


def test_the_target_ends_the_search_and_its_trial_is_the_best(tmp_path: Path, fake_runtime: Install) -> None:
    def overshoot(config: dict[str, Any]) -> Reports:
        peak = 1.0 if config["x"] == 3 else 0.5
        return ({"score": peak if step == 4 else 0.1} for step in range(1, 100))

    fake_runtime(num_devices=8)
    results = search(tmp_path, overshoot, space={"x": grid_search(list(range(6)))}, target=0.9)
    best = results.get_best_result()
    assert (best.config["x"], best.metrics["score"], best.steps) == (3, 1.0, 4)
    assert best.outcome is Outcome.COMPLETED
    assert results.stop_reason == "the target 0.9 was reached by trial 00003"
    assert {result.outcome for result in results if result != best} == {Outcome.STOPPED}


def test_a_metric_may_be_nested(tmp_path: Path, fake_runtime: Install) -> None:
    def nested(config: dict[str, Any]) -> Reports:
        return [{"eval": {"loss": config["x"]}}]

    fake_runtime()
    results = search(tmp_path, nested, num_samples=3, metric="eval/loss", mode="min", target=-1)
    best = results.get_best_result()
    assert best.config["x"] == min(result.config["x"] for result in results)
    assert best.metrics["eval"]["loss"] == best.metrics["eval/loss"] == best.config["x"]
    assert "eval/loss" in results.get_dataframe()


def test_a_search_that_judges_nothing_does_without_a_metric(
    tmp_path: Path, fake_runtime: Install, capfd: pytest.CaptureFixture[str]
) -> None:
    fake_runtime()
    results = search(tmp_path, climb, num_samples=3, metric=None, mode=None, verbose=1)
    assert results.get_best_result("score", "max").config["x"] == max(result.config["x"] for result in results)
    with pytest.raises(ValueError, match=r'had no metric: get_best_result\(metric="loss", mode="min"\)'):
        results.get_best_result()
    printed = capfd.readouterr().out
    assert "no metric, in" in printed
    assert "Best" not in printed


def test_at_most_so_many_trials_are_under_way(tmp_path: Path, fake_runtime: Install) -> None:
    sessions = fake_runtime(num_devices=4)
    widest = 0

    def watch(poll: int) -> None:
        nonlocal widest
        widest = max(widest, len(sessions[0]._trials))

    sessions = fake_runtime(num_devices=4, before_poll=watch)
    assert len(search(tmp_path, climb, num_samples=9, max_concurrent_trials=3)) == 9
    assert widest == 3


# --- what goes wrong


def test_a_trial_that_fails_is_kept_and_the_others_go_on(tmp_path: Path, fake_runtime: Install) -> None:
    def fragile(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if config["x"] == 2:
            raise ValueError("no such width")
        return iter(climb(config))

    fake_runtime()
    results = search(tmp_path, fragile, space={"x": grid_search([1, 2, 3])})
    assert [result.outcome.value for result in results] == ["completed", "failed", "completed"]
    (error,) = results.errors
    assert "Traceback" in error
    assert "ValueError: no such width" in error
    assert results[1].reason == "ValueError: no such width"
    assert results.get_best_result().config["x"] == 3


def test_when_all_fail_there_is_no_best_and_the_first_failure_is_shown(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime()
    results = search(tmp_path, crash, space={"x": grid_search([1, 2])})
    assert results.num_errors == 2
    with pytest.raises(RuntimeError, match=r"2 failed\).*trial 00000: ValueError: cannot train 1"):
        results.get_best_result()


def test_a_trial_without_the_metric_fails_alone(tmp_path: Path, fake_runtime: Install) -> None:
    def forgetful(config: dict[str, Any]) -> Reports:
        return [{"scor" if config["x"] == 1 else "score": step} for step in range(3)]

    fake_runtime()
    results = search(tmp_path, forgetful, space={"x": grid_search([0, 1, 2])})
    assert [result.outcome.value for result in results] == ["completed", "failed", "completed"]
    assert "reported no 'score'" in results[1].reason
    assert "scor" in results.errors[0]


def test_a_metric_that_nobody_reports_is_an_error_before_much_time_is_spent(
    tmp_path: Path, fake_runtime: Install
) -> None:
    sessions = fake_runtime()
    with pytest.raises(RuntimeError, match=r"reported no 'scores'.*metric='score'.*is in .*run"):
        search(tmp_path, endless, num_samples=50, metric="scores")
    assert sessions[0].closed
    assert len(sessions[0].timeouts) < 50


def test_a_function_that_never_reports_is_an_error_that_says_what_to_call(
    tmp_path: Path, fake_runtime: Install
) -> None:
    fake_runtime()
    with pytest.raises(RuntimeError, match=r"returned without a report; call report\(\{'score': \.\.\.\}\)"):
        search(tmp_path, lambda config: [], num_samples=5)


def test_a_trial_that_never_reports_fails_alone(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime()
    results = search(tmp_path, lambda config: [{"score": 1.0}] * config["x"], space={"x": grid_search([1, 0, 2])})
    assert [result.outcome.value for result in results] == ["completed", "failed", "completed"]
    assert results[1].reason.startswith("returned without a report")


def test_a_configuration_that_cannot_reach_the_trials_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"param_space, data/lock: a lock cannot be sent to the trials"):
        search(tmp_path, lambda config: [], space={"data": {"lock": threading.Lock()}})
    assert not list(tmp_path.iterdir())


@dataclass(frozen=True)
class Waiting:
    """An algorithm that waits for what never comes."""

    def start(self, problem: Problem) -> Searcher:
        return _WaitingSearcher()


class _WaitingSearcher:
    acts_on_feedback = True
    finished = False

    def suggest(self, n: int) -> list[Create]:
        return []

    def report(self, *arguments: Any) -> list[Any]:
        return []

    ended = capacity = report


def test_a_searcher_that_waits_for_ever_ends_the_search_with_the_reason(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime()
    results = search(tmp_path, climb, searcher=Waiting())
    assert "searcher Waiting waits" in results.stop_reason
    assert len(results) == 0


def test_a_session_that_breaks_is_closed_and_its_error_goes_up(tmp_path: Path, fake_runtime: Install) -> None:
    def fail(poll: int) -> None:
        raise ConnectionError("the cluster is gone")

    sessions = fake_runtime(before_poll=fail)
    with pytest.raises(ConnectionError, match="the cluster is gone"):
        search(tmp_path, climb)
    assert sessions[0].closed


def test_a_session_that_cannot_be_opened_leaves_the_name_free(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime(no_such_knob=True)
    with pytest.raises(TypeError, match="no_such_knob"):
        search(tmp_path, climb)
    fake_runtime()
    assert len(search(tmp_path, climb)) == 1


# --- what ends a search early


def test_the_time_budget_cuts_what_runs_and_what_waits(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime(before_poll=lambda poll: time.sleep(0.01))
    started = time.monotonic()
    results = search(tmp_path, endless, num_samples=5, searcher=ASHA(max_t=10**6), time_budget_s=0.2)
    assert 0.2 <= time.monotonic() - started < 2.0
    assert results.stop_reason == "the time budget of 0.2 seconds is used up"
    assert set(results.counts) <= {Outcome.CUT, Outcome.NEVER_STARTED}
    assert results.get_best_result().metrics == {"score": 0.0}


def test_trials_that_do_not_stop_are_ended_by_closing(tmp_path: Path, fake_runtime: Install) -> None:
    sessions = fake_runtime(deaf=True, before_poll=lambda poll: time.sleep(0.01))
    started = time.monotonic()
    results = search(tmp_path, endless, num_samples=3, time_budget_s=0.1)
    assert time.monotonic() - started < 3.0
    assert sessions[0].closed
    assert sessions[0].timeouts.count(0.25) > 50  # no busy waiting
    assert [result.reason for result in results] == ["the time budget of 0.1 seconds is used up"] * 3


def press_ctrl_c_at(poll: int) -> Callable[[int], None]:
    def before_poll(n: int) -> None:
        if n == poll:
            os.kill(os.getpid(), signal.SIGINT)

    return before_poll


def test_ctrl_c_returns_what_there_is(tmp_path: Path, fake_runtime: Install) -> None:
    sessions = fake_runtime(before_poll=press_ctrl_c_at(5))
    results = search(tmp_path, endless, num_samples=6)
    assert results.interrupted
    assert results.stop_reason == "interrupted"
    assert results.counts.keys() == {Outcome.CUT, Outcome.NEVER_STARTED}
    assert len(results) == 6
    assert results.get_best_result().metrics == {"score": 0.0}
    assert sessions[0].closed
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert list(read_log(tmp_path / "run"))[-1]["interrupted"] is True


def test_a_second_ctrl_c_leaves_at_once_and_the_session_is_closed(
    tmp_path: Path, fake_runtime: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # it is given back

    def press_twice(poll: int) -> None:
        if poll in (3, 4):
            os.kill(os.getpid(), signal.SIGINT)

    sessions = fake_runtime(deaf=True, before_poll=press_twice)
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path, endless)
    assert sessions[0].closed
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_users_own_is_left_in_place(tmp_path: Path, fake_runtime: Install) -> None:
    def interrupt(signum: int, frame: Any) -> None:
        raise KeyboardInterrupt

    heard: list[int] = []
    fake_runtime(before_poll=press_ctrl_c_at(2))
    before = signal.signal(signal.SIGINT, lambda signum, frame: heard.append(signum))
    try:
        assert not search(tmp_path / "a", climb).interrupted
        assert heard == [signal.SIGINT]
        signal.signal(signal.SIGINT, interrupt)
        assert search(tmp_path / "b", endless).interrupted
        assert signal.getsignal(signal.SIGINT) is interrupt
    finally:
        signal.signal(signal.SIGINT, before)


def test_sigterm_saves_the_search_and_ends_the_script(tmp_path: Path, fake_runtime: Install) -> None:
    def terminate(poll: int) -> None:
        if poll == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    sessions = fake_runtime(before_poll=terminate)
    with pytest.raises(SystemExit) as end:
        search(tmp_path, endless, num_samples=6)
    assert end.value.code == 143
    assert sessions[0].closed
    assert signal.getsignal(signal.SIGTERM) is before
    last = list(read_log(tmp_path / "run"))[-1]
    assert (last["what"], last["interrupted"]) == ("closed", True)


def test_an_uncaught_second_ctrl_c_ends_a_script_at_once_and_no_prompt(
    tmp_path: Path, fake_runtime: Install, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def press_twice(poll: int) -> None:
        if poll in (3, 4):
            os.kill(os.getpid(), signal.SIGINT)

    codes: list[int] = []
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(os, "_exit", codes.append)
    sessions = fake_runtime(deaf=True, before_poll=press_twice)
    with pytest.raises(KeyboardInterrupt) as raised:
        search(tmp_path, endless)
    sys.excepthook(ValueError, ValueError(), None)
    assert codes == []
    sys.excepthook(KeyboardInterrupt, raised.value, None)
    assert (codes, sessions[0].left) == ([130], 1)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    sys.excepthook(KeyboardInterrupt, raised.value, None)
    assert codes == [130]
    assert "KeyboardInterrupt" in capsys.readouterr().err


def test_a_search_may_run_in_another_thread(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime()
    found: list[ResultGrid] = []
    thread = threading.Thread(target=lambda: found.append(search(tmp_path, climb, num_samples=2)))
    thread.start()
    thread.join()
    assert len(found[0]) == 2


# --- what is written down


def test_the_log_tells_the_whole_search(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime()
    results = search(tmp_path, climb, num_samples=9, searcher=SuccessiveHalving(max_t=9))
    lines = list(read_log(tmp_path / "run"))
    assert (lines[0]["what"], lines[0]["metric"], lines[0]["trainable"]) == ("run", "score", "climb")
    assert lines[-1] == {
        "at": lines[-1]["at"],
        "batch": lines[-1]["batch"],
        "what": "closed",
        "stop_reason": "all trials ended",
        "interrupted": False,
    }
    what = Counter(line["what"] for line in lines)
    assert what["created"] == what["ended"] == 9
    assert what["report"] == sum(result.steps for result in results)
    created = {line["trial"]: line["config"] for line in lines if line["what"] == "created"}
    assert created == {result.trial_id: result.config for result in results}
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)


def test_reports_over_time_come_from_the_log(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime()
    results = search(tmp_path, climb, num_samples=2)
    frame = results[1].metrics_dataframe
    assert list(frame["step"]) == list(range(1, 10))
    assert frame["score"].iloc[-1] == results[1].metrics["score"]


# --- what is refused before any device time


def test_a_search_that_judges_needs_a_metric(tmp_path: Path, fake_runtime: Install) -> None:
    sessions = fake_runtime()
    with pytest.raises(ValueError, match="Hyperband judges trials by a metric; give metric= and mode="):
        search(tmp_path, climb, metric=None, mode=None, searcher=Hyperband(max_t=9))
    assert sessions == []


def test_configs_of_another_kind_are_refused() -> None:
    with pytest.raises(TypeError, match=r"tune_config is a gandiva_ray\.TuneConfig, got builtins\.dict"):
        Tuner(climb, tune_config={"metric": "score"})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"run_config is a gandiva_ray\.RunConfig"):
        Tuner(climb, tune_config=TuneConfig("score", "max"), run_config=TuneConfig())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keyword", "words"),
    [
        ("config", "use param_space"),
        ("num_samples", "it belongs into tune_config=TuneConfig(...)"),
        ("name", "it belongs into run_config=RunConfig(...)"),
        ("param_spaces", "did you mean 'param_space'?"),
    ],
)
def test_a_keyword_at_the_wrong_place_is_told_the_right_one(keyword: str, words: str) -> None:
    with pytest.raises(TypeError) as refused:
        Tuner(climb, **{keyword: 3})  # type: ignore[arg-type]
    assert f"Tuner has no '{keyword}'" in str(refused.value)
    assert words in str(refused.value)


def test_nothing_is_created_for_a_search_that_is_refused(tmp_path: Path, fake_runtime: Install) -> None:
    sessions = fake_runtime()
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"'lock', a _thread\.lock"):
        search(tmp_path, lambda config: [lock])
    with pytest.raises(ValueError, match="x"):
        search(tmp_path, climb, searcher=GridSearch())  # x is continuous
    assert sessions == []
    assert list(tmp_path.iterdir()) == []


def test_two_runs_never_share_a_folder(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime()
    search(tmp_path, climb)
    with pytest.raises(FileExistsError, match=r"a run called 'run' in .* already: give another RunConfig\(name=...\)"):
        search(tmp_path, climb)
    tuner = Tuner(
        climb,
        param_space=SPACE,
        tune_config=TuneConfig("score", "max"),
        run_config=RunConfig(storage_path=tmp_path, verbose=0),
    )
    folders = {tuner.fit().path for _ in range(5)}
    assert len(folders) == 5
    assert all(Path(folder).name.startswith("climb_20") for folder in folders)


def test_a_storage_path_that_cannot_be_written_is_refused(tmp_path: Path, fake_runtime: Install) -> None:
    sessions = fake_runtime()
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match=r"storage_path .*file.* cannot be written .*RunConfig\(storage_path=...\)"):
            search(place, climb)
    assert sessions == []


# --- whatever happens


@dataclass(frozen=True)
class Erratic:
    """A training function that does what its configuration's number says."""

    length: int

    def __call__(self, config: dict[str, Any]) -> Reports:
        return self.reports(config)

    def reports(self, config: dict[str, Any]) -> Reports:
        for step in range(1, self.length + 1):
            fate = (int(config["x"] * 1000) + step * 7) % 23
            if fate == 0:
                raise ValueError(f"bad luck at {step}")
            if fate == 1:
                yield {"other": step}
            elif fate == 2:
                yield {"score": math.nan}
            else:
                yield {"score": config["x"] * step}


def test_a_trial_that_returns_without_a_report_has_failed_in_the_log_too(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime(num_devices=1, before_poll=press_ctrl_c_at(1))
    results = search(tmp_path, Erratic(0), num_samples=2)
    assert results.counts == {Outcome.FAILED: 1, Outcome.NEVER_STARTED: 1}
    ended = {line["trial"]: line["outcome"] for line in read_log(tmp_path / "run") if line["what"] == "ended"}
    assert ended == {result.trial_id: result.outcome.value for result in results}


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    searcher=st.sampled_from([RandomSearch(), ASHA(max_t=9), Hyperband(max_t=9), SuccessiveHalving(max_t=9)]),
    seed=st.integers(0, 10**6),
    num_samples=st.integers(1, 12),
    length=st.integers(0, 12),
    devices=st.integers(1, 5),
    limit=st.none() | st.integers(1, 4),
    target=st.none() | st.floats(0, 12),
    ctrl_c=st.none() | st.integers(1, 40),
)
def test_every_trial_ends_in_one_state_and_has_one_row(
    tmp_path_factory: pytest.TempPathFactory,
    fake_runtime: Install,
    searcher: Any,
    seed: int,
    num_samples: int,
    length: int,
    devices: int,
    limit: int | None,
    target: float | None,
    ctrl_c: int | None,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    sessions = fake_runtime(num_devices=devices, before_poll=press_ctrl_c_at(ctrl_c or -1))
    try:
        results = search(
            folder,
            Erratic(length),
            num_samples=num_samples,
            searcher=searcher,
            seed=seed,
            max_concurrent_trials=limit,
            target=target,
        )
    except RuntimeError as error:
        assert "no trial can be judged" in str(error)  # noqa: PT017
        return
    finally:
        assert sessions[0].closed
    assert [result.trial_id for result in results] == [create.trial for create in sessions[0].submitted]
    assert sum(results.counts.values()) == len(results)
    assert all(result.reason for result in results)
    frame = results.get_dataframe()
    assert list(frame["trial_id"]) == [result.trial_id for result in results]
    ended = {line["trial"]: line["outcome"] for line in read_log(folder / "run") if line["what"] == "ended"}
    assert ended == dict(zip(frame["trial_id"], frame["state"], strict=True))
    for result in results:
        assert len(result.metrics_dataframe) == result.steps
        assert (result.error is not None) == (result.outcome in (Outcome.FAILED, Outcome.LOST))


def test_a_search_runs_in_a_notebook_whose_event_loop_runs(tmp_path: Path, fake_runtime: Install) -> None:
    async def cell() -> ResultGrid:
        return search(tmp_path, climb, num_samples=2, verbose=1)

    fake_runtime()
    assert asyncio.run(cell()).num_terminated == 2


def test_a_stop_function_that_raises_ends_the_search_with_its_own_error(tmp_path: Path, fake_runtime: Install) -> None:
    def stop(trial: str, metrics: dict[str, Any]) -> bool:
        return bool(metrics["scores"] > 1)

    sessions = fake_runtime()
    run = RunConfig(name="run", storage_path=tmp_path, verbose=0, stop=stop)
    with pytest.raises(KeyError, match="scores"):
        Tuner(climb, param_space=SPACE, tune_config=TuneConfig("score", "max", num_samples=3), run_config=run).fit()
    assert sessions[0].closed
