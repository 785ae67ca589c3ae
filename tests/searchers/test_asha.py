import math
import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gandiva_ray.core.model import Outcome
from gandiva_ray.core.search import Promote, Reweigh, StopTrial
from searchers import ASHA
from searchers.asha import AHEAD, BEHIND, AshaSearcher
from tests.searchers.problems import problem


def start(n: int, mode: str = "max", seed: int = 0, **knobs: Any) -> AshaSearcher:
    searcher = ASHA(**knobs).start(problem(num_samples=n, mode=mode, seed=seed))
    searcher.suggest(n)
    return searcher


def report(searcher: AshaSearcher, trial: int, step: int, value: float) -> list[Any]:
    """What is to become of the trial; not who goes ahead now."""
    actions = searcher.report(f"{trial:05d}", step, {"score": value})
    return [action for action in actions if not isinstance(action, Reweigh)]


def weights(searcher: AshaSearcher) -> list[float]:
    """Of the trials that live, in order of creation."""
    return [runner.weight for runner in searcher._runners.values()]


KNOBS = st.fixed_dictionaries(
    {
        "max_t": st.integers(1, 60),
        "reduction_factor": st.sampled_from([2, 3, 4, 1.2, 2.5]),
        "brackets": st.integers(1, 4),
    }
)


@settings(deadline=None, max_examples=60)
@given(KNOBS, st.integers(1, 5), st.sampled_from(["min", "max"]), st.randoms(use_true_random=False))
def test_the_same_reports_stop_the_same_trials_as_ray_tunes_scheduler(
    knobs: dict[str, Any], grace: int, mode: str, chance: random.Random
) -> None:
    from ray.tune.schedulers import AsyncHyperBandScheduler

    knobs["grace_period"] = min(grace, knobs["max_t"])
    searcher = ASHA(**knobs).start(problem(num_samples=12, mode=mode))
    until = {create.trial: create.until for create in searcher.suggest(12)}
    scheduler = AsyncHyperBandScheduler(metric="score", mode=mode, **knobs)
    for trial in until:
        scheduler._trial_info[trial] = scheduler._brackets[bracket_of(searcher, trial)]
    steps = dict.fromkeys(until, 0)
    while steps:
        trial = chance.choice(sorted(steps))
        steps[trial] += 1
        value = chance.randrange(20)
        result = {"training_iteration": steps[trial], "score": value}
        theirs = scheduler.on_trial_result(None, SimpleNamespace(trial_id=trial), result)
        ours = report(searcher, int(trial), steps[trial], float(value))
        assert any(isinstance(action, StopTrial) for action in ours) == (theirs == "STOP")
        assert bool(ours) == (steps[trial] == until[trial])
        if theirs == "STOP":
            del steps[trial]
        elif ours:
            until[trial] = ours[0].until


def bracket_of(searcher: AshaSearcher, trial: str) -> int:
    """Which bracket the trial fell into, by its rungs."""
    ahead = searcher._runners[trial].ahead
    return next(s for s, rungs in enumerate(searcher._brackets) if ahead == rungs and len(ahead) == len(rungs))


@given(st.integers(1, 3000), st.integers(1, 50), st.sampled_from([2, 3, 4, 10, 1.5]), st.integers(0, 5))
def test_the_rungs_are_ray_tunes(max_t: int, grace: int, eta: float, s: int) -> None:
    from ray.tune.schedulers.async_hyperband import _Bracket

    grace = min(grace, max_t)
    theirs = [milestone for milestone, _ in _Bracket(grace, max_t, eta, s)._rungs]
    assert ASHA(max_t, grace, eta).rungs(s) == theirs


def test_the_defaults_are_ray_tunes() -> None:
    from ray.tune.schedulers import ASHAScheduler

    knobs, theirs = ASHA(), ASHAScheduler()
    assert (knobs.max_t, knobs.reduction_factor, knobs.brackets) == (theirs._max_t, theirs._reduction_factor, 1)
    assert knobs.rungs(0) == [64, 16, 4, 1] == [milestone for milestone, _ in theirs._brackets[0]._rungs]


def test_a_trial_runs_ahead_to_its_next_rung_and_is_judged_by_those_before_it() -> None:
    searcher = start(3)
    assert report(searcher, 0, 1, 0.5) == [Promote("00000", 4)]
    assert report(searcher, 1, 1, 0.25) == [
        StopTrial("00001", "0.25 at report 1 is worse than 0.5, the cut of the 1 before it")
    ]
    assert report(searcher, 2, 1, 0.5) == [Promote("00002", 4)]
    assert report(searcher, 0, 2, 0.0) == []


def test_the_last_rung_is_the_whole_budget() -> None:
    searcher = start(1, max_t=5)
    assert report(searcher, 0, 1, 0.5) == [Promote("00000", 4)]
    assert report(searcher, 0, 4, 0.5) == [Promote("00000", 5)]
    assert report(searcher, 0, 5, 0.5) == [StopTrial("00000", "used its whole budget of 5 reports", Outcome.COMPLETED)]


def test_a_reason_shows_the_metric_as_it_was_reported() -> None:
    searcher = start(2, mode="min")
    report(searcher, 0, 1, 0.25)
    (stop,) = report(searcher, 1, 1, 0.5)
    assert stop.reason == "0.5 at report 1 is worse than 0.25, the cut of the 1 before it"


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_below_all_others_and_moves_no_cut(mode: str, broken: float) -> None:
    searcher = start(4, mode=mode)
    assert report(searcher, 0, 1, broken) == [Promote("00000", 4)]
    assert report(searcher, 1, 1, 0.5) == [Promote("00001", 4)]
    assert isinstance(report(searcher, 2, 1, broken)[0], StopTrial)
    assert report(searcher, 3, 1, 0.5) == [Promote("00003", 4)]


def test_repeated_and_late_reports_and_those_of_ended_trials_change_nothing() -> None:
    searcher = start(2)
    report(searcher, 0, 1, 0.5)
    assert report(searcher, 0, 1, 0.1) == []
    searcher.ended("00000", Outcome.FAILED)
    assert report(searcher, 0, 4, 0.1) == []
    assert searcher.ended("00000", Outcome.FAILED) == []
    assert report(searcher, 7, 1, 0.1) == []


def test_everybody_runs_to_the_first_rung_and_then_the_best_go_ahead_one_for_each_device() -> None:
    searcher = start(5)
    assert searcher.capacity(2, {}) == []
    for trial, value in enumerate([0.5, 0.6, 0.7]):
        assert searcher.report(f"{trial:05d}", 1, {"score": value})[1:] == [Reweigh(f"{trial:05d}", BEHIND)]
    assert weights(searcher) == [BEHIND, BEHIND, BEHIND, AHEAD, AHEAD]
    assert isinstance(report(searcher, 3, 1, 0.0)[0], StopTrial)
    assert searcher.report("00004", 1, {"score": 0.9}) == [Promote("00004", 4), Reweigh("00002", AHEAD)]
    assert weights(searcher) == [BEHIND, BEHIND, AHEAD, AHEAD]
    assert searcher.capacity(3, {}) == [Reweigh("00001", AHEAD)]


def test_who_falls_behind_or_ends_makes_room_for_the_next_best() -> None:
    searcher = start(3)
    for trial, value in enumerate([0.5, 0.6, 0.7]):
        report(searcher, trial, 1, value)
    assert weights(searcher) == [BEHIND, BEHIND, AHEAD]
    assert searcher.report("00002", 4, {"score": 0.55}) == [
        Promote("00002", 16), Reweigh("00001", AHEAD), Reweigh("00002", BEHIND),
    ]  # fmt: skip
    assert searcher.ended("00001", Outcome.FAILED) == [Reweigh("00002", AHEAD)]
    stop, ahead = searcher.report("00002", 100, {"score": 0.9})
    assert (stop.outcome, ahead) == (Outcome.COMPLETED, Reweigh("00000", AHEAD))


def test_a_trial_that_comes_later_goes_before_the_best_until_its_first_rung() -> None:
    searcher = ASHA().start(problem(num_samples=3))
    searcher.suggest(2)
    for trial, value in enumerate([0.5, 0.6]):
        report(searcher, trial, 1, value)
    assert weights(searcher) == [BEHIND, AHEAD]
    searcher.suggest(1)
    assert weights(searcher) == [BEHIND, AHEAD, AHEAD]
    assert searcher.capacity(1, {}) == [Reweigh("00001", BEHIND)]
    assert searcher.ended("00002", Outcome.FAILED) == [Reweigh("00001", AHEAD)]


def test_a_broken_value_goes_behind_all_others() -> None:
    searcher = start(2)
    report(searcher, 0, 1, math.inf)
    report(searcher, 1, 1, 0.1)
    assert weights(searcher) == [BEHIND, AHEAD]


def test_brackets_are_dealt_by_the_seed_and_more_often_the_more_rungs_they_have() -> None:
    creates = ASHA(max_t=16, brackets=3).start(problem(num_samples=200, seed=3)).suggest(200)
    again = ASHA(max_t=16, brackets=3).start(problem(num_samples=200, seed=3)).suggest(200)
    assert creates == again
    firsts = [create.until for create in creates]
    assert firsts.count(1) > firsts.count(4) > firsts.count(16) > 0


def test_brackets_without_rungs_run_to_the_budget() -> None:
    creates = ASHA(max_t=2, brackets=9).start(problem(num_samples=50)).suggest(50)
    assert {create.until for create in creates} == {1, 2}


def test_trials_without_rungs_keep_nobody_waiting() -> None:
    searcher = start(50, max_t=2, brackets=9)
    rungs = [trial for trial, runner in searcher._runners.items() if runner.ahead]
    for number, trial in enumerate(rungs):
        searcher.report(trial, 1, {"score": float(number)})
    assert searcher._runners[rungs[-1]].weight == AHEAD
    assert searcher._runners[rungs[0]].weight == BEHIND


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"max_t": 3, "grace_period": 4}, "ASHA: max_t=3 is below grace_period=4"),
        ({"reduction_factor": 1}, "ASHA: reduction_factor must be above 1"),
        ({"brackets": 0}, "ASHA: brackets must be a whole number of at least 1, got 0"),
    ],
)
def test_knobs_that_make_no_search_are_refused(knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ASHA(**knobs)


def test_asha_needs_a_metric() -> None:
    with pytest.raises(ValueError, match="ASHA judges trials by a metric"):
        ASHA().start(problem(metric=None))
