import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gandiva_ray.core.model import Outcome
from gandiva_ray.core.search import Promote, StopTrial
from searchers import Hyperband, SuccessiveHalving
from searchers.rungs import BracketSearcher, Plan, milestones, ranked, to_promote
from tests.searchers.problems import problem


def halving(n: int, mode: str = "max", **knobs: Any) -> BracketSearcher:
    searcher = SuccessiveHalving(**{"max_t": 9, **knobs}).start(problem(num_samples=n, mode=mode))
    searcher.suggest(n)
    return searcher


def name(n: int) -> str:
    return f"{n:05d}"


def report(searcher: BracketSearcher, step: int, *values: float) -> list[Any]:
    """Trials 0, 1, ... report these values in that order; all the actions."""
    return [act for n, value in enumerate(values) for act in searcher.report(name(n), step, {"score": value})]


def promoted(actions: list[Any]) -> list[str]:
    return [action.trial for action in actions if isinstance(action, Promote)]


def test_the_rung_is_decided_when_the_last_trial_reaches_it() -> None:
    searcher = halving(3)
    assert report(searcher, 1, 0.3, 0.1) == []
    assert searcher.report(name(2), 1, {"score": 0.2}) == [
        Promote(name(0), 3),
        StopTrial(name(2), "rank 2 of 3 at report 1, 1 goes on"),
        StopTrial(name(1), "rank 3 of 3 at report 1, 1 goes on"),
    ]


def test_stops_are_told_best_first_with_reasons_a_person_understands() -> None:
    actions = report(halving(9), 1, *range(9))
    assert promoted(actions) == [name(8), name(7), name(6)]
    assert actions[3] == StopTrial(name(5), "rank 4 of 9 at report 1, 3 go on")
    assert actions[-1] == StopTrial(name(0), "rank 9 of 9 at report 1, 3 go on")


def test_halving_goes_up_its_rungs_to_the_whole_budget() -> None:
    searcher = halving(9)
    report(searcher, 1, *range(9, 0, -1))
    assert report(searcher, 3, 0.1, 0.3, 0.2)[0] == Promote(name(1), 9)
    assert searcher.report(name(1), 9, {"score": 0.5}) == [
        StopTrial(name(1), "used its whole budget of 9 reports", Outcome.COMPLETED)
    ]


def test_the_first_milestone_is_the_grace_period() -> None:
    creates = SuccessiveHalving(20, grace_period=2, reduction_factor=2).start(problem(num_samples=2)).suggest(5)
    assert [create.until for create in creates] == [2, 2]


def test_small_is_good_where_the_mode_says_so() -> None:
    assert promoted(report(halving(3, mode="min"), 1, 0.3, 0.1, 0.2)) == [name(1)]


def test_of_equals_the_earlier_trial_goes_on() -> None:
    searcher = halving(3)
    for n in (2, 0, 1):
        actions = searcher.report(name(n), 1, {"score": 0.5})
    assert promoted(actions) == [name(0)]


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_ranks_last_in_both_modes(mode: str, broken: float) -> None:
    actions = report(halving(3, mode=mode), 1, broken, 1e300, 1e300)
    assert promoted(actions) == [name(1)]
    assert actions[-1] == StopTrial(name(0), "rank 3 of 3 at report 1, 1 goes on")


def test_where_all_values_are_broken_one_trial_goes_on() -> None:
    assert promoted(report(halving(3), 1, math.nan, math.inf, -math.inf)) == [name(0)]


def test_a_rung_of_one_goes_on() -> None:
    assert report(halving(1), 1, 0.5) == [Promote(name(0), 3)]
    assert promoted(report(halving(2), 1, 0.5, 0.6)) == [name(1)]


def test_late_and_repeated_reports_change_nothing() -> None:
    searcher = halving(3)
    report(searcher, 1, 0.1, 0.2)
    assert report(searcher, 1, 9.0) == []
    assert promoted(searcher.report(name(2), 1, {"score": 0.3})) == [name(2)]
    assert report(searcher, 1, 9.0, 9.0, 9.0) == []
    assert searcher.report("99999", 1, {"score": 1.0}) == []


def test_reports_before_the_milestone_decide_nothing() -> None:
    searcher = halving(2, grace_period=2)
    assert report(searcher, 1, 0.1, 0.2) == []
    assert promoted(report(searcher, 2, 0.2, 0.1)) == [name(0)]


def test_a_trial_that_fails_before_its_rung_is_not_waited_for() -> None:
    searcher = halving(4)
    report(searcher, 1, 0.1, 0.3, 0.2)
    actions = searcher.ended(name(3), Outcome.FAILED)
    assert promoted(actions) == [name(1)]
    assert actions[1] == StopTrial(name(2), "rank 2 of 3 at report 1, 1 goes on")
    assert searcher.ended(name(3), Outcome.FAILED) == []


def test_a_trial_that_ended_at_the_rung_keeps_its_place() -> None:
    searcher = halving(6)
    report(searcher, 1, 6, 5, 4, 3, 2)
    assert searcher.ended(name(0), Outcome.COMPLETED) == []
    actions = searcher.report(name(5), 1, {"score": 1.0})
    assert promoted(actions) == [name(1)]
    assert actions[1] == StopTrial(name(2), "rank 3 of 6 at report 1, 1 goes on")


def test_where_all_the_best_have_ended_the_best_living_trial_goes_on() -> None:
    searcher = halving(3)
    report(searcher, 1, 0.9, 0.5)
    searcher.ended(name(0), Outcome.LOST)
    assert promoted(searcher.report(name(2), 1, {"score": 0.1})) == [name(1)]


def test_a_bracket_that_is_not_full_waits_for_its_trials() -> None:
    searcher = SuccessiveHalving(9).start(problem(num_samples=3))
    searcher.suggest(2)
    assert report(searcher, 1, 0.1, 0.2) == []
    searcher.suggest(5)
    assert promoted(searcher.report(name(2), 1, {"score": 0.0})) == [name(1)]


def test_hyperbands_brackets_are_those_of_the_paper() -> None:
    assert list(Hyperband(max_t=81).iteration()) == [
        Plan((1, 3, 9, 27, 81), 81),
        Plan((3, 9, 27, 81), 34),
        Plan((9, 27, 81), 15),
        Plan((27, 81), 8),
        Plan((81,), 5),
    ]


@given(st.integers(1, 2000), st.floats(1.1, 10) | st.integers(2, 10))
def test_hyperbands_rungs_rise_to_the_budget(max_t: int, eta: float) -> None:
    plans = list(Hyperband(max_t, eta).iteration())
    assert plans[-1].milestones == (max_t,)
    for plan in plans:
        assert plan.milestones == tuple(sorted(set(plan.milestones)))
        assert plan.milestones[0] >= 1
        assert plan.milestones[-1] == max_t
        assert plan.size is not None
        assert plan.size >= 1
    assert plans[0].milestones[0] < eta


def test_whole_powers_give_whole_rungs() -> None:
    for power in range(1, 12):
        assert next(Hyperband(3**power, 3).iteration()).milestones == tuple(3**k for k in range(power + 1))
    assert milestones([100 / 3**k for k in range(1, 5)], 100) == (1, 3, 11, 33, 100)


def test_hyperband_fills_brackets_from_the_earliest_feedback_on_and_begins_again() -> None:
    creates = Hyperband(max_t=9, reduction_factor=3).start(problem(num_samples=20)).suggest(100)
    assert [create.until for create in creates] == [1] * 9 + [3] * 5 + [9] * 3 + [1] * 3


def test_hyperband_waits_for_nothing_to_suggest_all_its_trials() -> None:
    searcher = Hyperband(max_t=9, reduction_factor=3).start(problem(num_samples=-1))
    assert len(searcher.suggest(1000)) == 1000
    assert not searcher.finished


def test_hyperbands_short_last_bracket_is_decided_among_those_there_are() -> None:
    searcher = Hyperband(max_t=9, reduction_factor=3).start(problem(num_samples=6))
    searcher.suggest(4)
    assert report(searcher, 1, 1, 2, 3, 4) == []
    searcher.suggest(100)
    assert searcher.finished
    searcher.report(name(4), 1, {"score": 5.0})
    actions = searcher.report(name(5), 1, {"score": 0.0})
    assert promoted(actions) == [name(4), name(3)]
    assert actions[2] == StopTrial(name(2), "rank 3 of 6 at report 1, 2 go on")


def test_hyperbands_brackets_do_not_wait_for_one_another() -> None:
    searcher = Hyperband(max_t=3, reduction_factor=3).start(problem(num_samples=5))
    searcher.suggest(5)
    assert searcher.report(name(3), 3, {"score": 0.0}) == [
        StopTrial(name(3), "used its whole budget of 3 reports", Outcome.COMPLETED)
    ]
    assert promoted(report(searcher, 1, 1, 2, 3)) == [name(2)]


def test_points_are_tried_first() -> None:
    points = [{"x": 0.25}]
    for algorithm in (Hyperband(points_to_evaluate=points), SuccessiveHalving(9, points_to_evaluate=points)):
        assert algorithm.start(problem(num_samples=2)).suggest(1)[0].config == {"x": 0.25}


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcdefghijkl"), st.floats(), min_size=1),
    st.sampled_from(["min", "max"]),
    st.data(),
)
def test_promotion_takes_the_best_that_live_and_never_nobody(values: Any, mode: Any, data: st.DataObject) -> None:
    alive = data.draw(st.sets(st.sampled_from(sorted(values)), min_size=1))
    ranking = ranked(values, mode)
    chosen = to_promote(ranking, alive, 3)
    assert set(chosen) <= alive
    assert 1 <= len(chosen) <= max(1, len(values) // 3)
    assert chosen == [trial for trial in ranking if trial in alive][: len(chosen)]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SuccessiveHalving(3, grace_period=4), "SuccessiveHalving: max_t=3 is below grace_period=4"),
        (lambda: SuccessiveHalving(3, grace_period=0), "grace_period must be a whole number of at least 1, got 0"),
        (lambda: Hyperband(max_t=0), "Hyperband: max_t must be a whole number of at least 1, got 0"),
        (lambda: Hyperband(max_t=9.5), "max_t must be a whole number"),  # type: ignore[arg-type]
        (lambda: Hyperband(reduction_factor=1), "reduction_factor must be above 1"),
        (lambda: Hyperband(reduction_factor=math.nan), "reduction_factor must be above 1"),
        (lambda: SuccessiveHalving(9).start(problem(metric=None)), "SuccessiveHalving judges trials by a metric"),
        (lambda: Hyperband().start(problem(metric=None)), "Hyperband judges trials by a metric; give metric="),
        (lambda: SuccessiveHalving(9).start(problem(num_samples=-1)), "SuccessiveHalving needs all its samples"),
    ],
)
def test_knobs_that_make_no_search_are_refused(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
