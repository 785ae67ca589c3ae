import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gandiva_ray.core.model import Outcome, TrialId
from gandiva_ray.core.multi_job import MultiJob, TimeUp, TrialState
from gandiva_ray.core.search import (
    Action,
    CapacityChanged,
    Create,
    Problem,
    Promote,
    Reweigh,
    SearchStopped,
    StopTrial,
    TrialEnded,
    TrialReported,
    TrialStarted,
)

A, B, C, D = "00000", "00001", "00002", "00003"


class Scripted:
    """An algorithm and its searcher: `n` trials that park at `until`, and the answers that the test gives."""

    acts_on_feedback = True

    def __init__(self, n: int = 2, until: int | None = None, answers: Mapping[Any, Any] | None = None) -> None:
        self._left = [Create(f"{i:05d}", {"x": i}, until) for i in range(n)]
        self._answers = answers or {}
        self.heard: list[Any] = []

    def start(self, problem: Problem) -> "Scripted":
        return self

    @property
    def finished(self) -> bool:
        return not self._left

    def suggest(self, n: int) -> list[Create]:
        given, self._left = self._left[:n], self._left[n:]
        return given

    def report(self, trial: TrialId, step: int, values: Mapping[str, float]) -> Sequence[Action]:
        self.heard.append((trial, step, values))
        return self._answers.get((trial, step), [])

    def ended(self, trial: TrialId, outcome: Outcome) -> Sequence[Action]:
        self.heard.append((trial, outcome))
        return self._answers.get((trial, outcome), [])

    def capacity(self, devices: int, step_costs: Mapping[TrialId, float]) -> Sequence[Action]:
        self.heard.append((devices, step_costs))
        return self._answers.get(devices, [])


def search(algorithm: Scripted, mode: Any = "max", metric: str | None = "accuracy", **knobs: Any) -> MultiJob:
    multi_job = MultiJob(algorithm, Problem({}, metric, mode, num_samples=knobs.pop("num_samples", 1)), **knobs)
    multi_job.handle()
    return multi_job


def started(trial: TrialId) -> TrialStarted:
    return TrialStarted(trial, node="n1", pid=7, path=f"/run/{trial}")


def reported(trial: TrialId, step: int, value: Any = 0.5) -> TrialReported:
    return TrialReported(trial, step, {"accuracy": value}, device_seconds=step * 2.0)


def ended(trial: TrialId, outcome: Outcome = Outcome.COMPLETED) -> TrialEnded:
    return TrialEnded(trial, outcome, "because", error="Traceback" if outcome is Outcome.FAILED else "")


# --- creating, promoting, stopping


def test_a_search_begins_with_all_its_trials() -> None:
    multi_job = MultiJob(Scripted(2, until=3), Problem({}, "accuracy", "max"))
    assert multi_job.handle() == [Create(A, {"x": 0}, 3), Create(B, {"x": 1}, 3)]
    assert multi_job.handle() == []
    assert multi_job.counts == {"waiting": 2}


def test_trials_of_a_searcher_that_never_acts_are_exclusive() -> None:
    algorithm = Scripted(1)
    algorithm.acts_on_feedback = False
    assert MultiJob(algorithm, Problem({}, "accuracy", "max")).handle() == [Create(A, {"x": 0}, exclusive=True)]


def test_stops_and_weights_come_at_once_and_promotions_after_them() -> None:
    actions = [Promote(A, 9), StopTrial(B, "rank 2 of 2"), Reweigh(A, 2.0)]
    multi_job = search(Scripted(2, until=1, answers={(B, 1): actions}))
    assert multi_job.handle(started(A), started(B), reported(A, 1)) == []
    assert multi_job.counts == {"running": 1, "parked": 1}
    assert multi_job.handle(reported(B, 1)) == [StopTrial(B, "rank 2 of 2"), Reweigh(A, 2.0), Promote(A, 9)]
    assert multi_job.counts == {"running": 1, "stopping": 1}


def test_at_the_limit_a_trial_is_created_for_each_that_ends_or_parks() -> None:
    multi_job = MultiJob(Scripted(4, until=1), Problem({}, "accuracy", "max"), max_concurrent_trials=2)
    assert [create.trial for create in multi_job.handle()] == [A, B]
    assert multi_job.handle(started(A)) == []
    assert multi_job.handle(reported(A, 1)) == [Create(C, {"x": 2}, 1)]
    assert multi_job.handle(ended(B, Outcome.FAILED)) == [Create(D, {"x": 3}, 1)]


def test_at_the_limit_promotions_wait_and_go_before_new_trials() -> None:
    promotions = {(B, 1): [Promote(A, 2), Promote(B, 2)]}
    multi_job = search(Scripted(4, until=1, answers=promotions), max_concurrent_trials=1)
    assert multi_job.handle(reported(A, 1)) == [Create(B, {"x": 1}, 1)]
    assert multi_job.handle(reported(B, 1)) == [Promote(A, 2)]
    assert multi_job.trials[B].state is TrialState.PARKED
    assert multi_job.handle(ended(A)) == [Promote(B, 2)]
    assert multi_job.handle(ended(B)) == [Create(C, {"x": 2}, 1)]


def test_a_promotion_that_waits_is_forgotten_when_its_trial_ends_or_is_stopped() -> None:
    promotions = {(B, 1): [Promote(A, 2), Promote(B, 2)], (A, Outcome.COMPLETED): []}
    multi_job = search(Scripted(2, until=1, answers=promotions), max_concurrent_trials=1)
    multi_job.handle(reported(A, 1))
    multi_job.handle(reported(B, 1))
    assert multi_job.handle(ended(B, Outcome.FAILED), ended(A)) == []
    assert multi_job.done


def test_a_promotion_ahead_of_its_milestone_goes_out_at_once() -> None:
    multi_job = search(Scripted(2, until=3, answers={(A, 1): [Promote(A, None)]}))
    assert multi_job.handle(reported(A, 1)) == [Promote(A, None)]
    multi_job.handle(reported(A, 3))
    assert multi_job.trials[A].state is TrialState.RUNNING


def test_a_trial_that_ended_meanwhile_is_not_stopped() -> None:
    multi_job = search(Scripted(2, answers={(A, 1): [StopTrial(A, "rank 2 of 2")]}))
    assert multi_job.handle(reported(A, 1), ended(A)) == []
    assert multi_job.trials[A].outcome is Outcome.COMPLETED


def test_capacity_is_passed_on() -> None:
    algorithm = Scripted(1, answers={8: [Reweigh(A, 0.5)]})
    assert search(algorithm).handle(CapacityChanged(8, {A: 0.1})) == [Reweigh(A, 0.5)]
    assert algorithm.heard == [(8, {A: 0.1})]


# --- what is known of trials


def test_a_record_holds_what_happened_to_a_trial() -> None:
    multi_job = search(Scripted(1))
    multi_job.handle(started(A), reported(A, 1, 0.7), reported(A, 2, 0.4), ended(A, Outcome.FAILED))
    record = multi_job.trials[A]
    assert (record.node, record.path, record.config) == ("n1", f"/run/{A}", {"x": 0})
    assert (record.step, record.metrics, record.device_seconds) == (2, {"accuracy": 0.4}, 4.0)
    assert record.best_value == 0.7
    assert (record.state, record.outcome) == (TrialState.ENDED, Outcome.FAILED)
    assert (record.reason, record.error) == ("because", "Traceback")
    assert multi_job.done
    assert multi_job.counts == {"failed": 1}


@pytest.mark.parametrize(("mode", "best"), [("max", C), ("min", B)])
def test_the_best_trial_is_the_one_with_the_best_value_at_any_report(mode: str, best: TrialId) -> None:
    multi_job = search(Scripted(4), mode)
    multi_job.handle(reported(A, 1, 0.5), reported(B, 1, 0.1), reported(C, 1, 0.9), reported(C, 2, 0.2))
    multi_job.handle(reported(D, 1, math.inf), reported(D, 2, math.nan), reported(D, 3, -math.inf))
    assert multi_job.best is multi_job.trials[best]
    assert multi_job.trials[D].best_value is None


def test_repeated_and_late_reports_and_those_of_ended_trials_are_absorbed() -> None:
    algorithm = Scripted(2)
    multi_job = search(algorithm)
    multi_job.handle(reported(A, 2, 0.5), reported(A, 2, 0.9), reported(A, 1, 0.9))
    multi_job.handle(ended(A), reported(A, 3, 0.9), ended(A, Outcome.LOST), started(A))
    assert algorithm.heard == [(A, 2, {"accuracy": 0.5}), (A, Outcome.COMPLETED)]
    assert multi_job.trials[A].best_value == 0.5
    assert multi_job.trials[A].outcome is Outcome.COMPLETED


def test_the_searcher_hears_all_numbers_and_nothing_else() -> None:
    algorithm = Scripted(1)
    metrics = {"accuracy": 1, "ok": True, "note": "text", "none": None, "nan": math.nan, "huge": 10**400}
    search(algorithm).handle(TrialReported(A, 1, metrics, 0.0))
    ((_, _, values),) = algorithm.heard
    assert set(values) == {"accuracy", "ok", "nan"}
    assert all(type(value) is float for value in values.values())


# --- the target


@pytest.mark.parametrize(("mode", "short", "enough"), [("max", 0.98, 0.99), ("min", 1.0, 0.99)])
def test_the_first_report_to_reach_the_target_ends_the_search(mode: str, short: float, enough: float) -> None:
    multi_job = search(Scripted(3, until=5), mode, target=0.99)
    assert multi_job.handle(started(A), reported(A, 1, short)) == []
    reached = "the target 0.99 was reached by trial 00001"
    assert multi_job.handle(reported(B, 1, enough), reported(C, 1, enough)) == [
        StopTrial(B, f"reached the target 0.99 with {enough} at report 1", Outcome.COMPLETED),
        StopTrial(A, reached, Outcome.STOPPED),
        StopTrial(C, reached, Outcome.STOPPED),
    ]
    assert not multi_job.done
    multi_job.handle(*(ended(trial) for trial in (A, B, C)))
    assert multi_job.done


def test_after_the_target_nothing_new_is_created() -> None:
    multi_job = search(Scripted(4), target=0.9, max_concurrent_trials=1)
    assert [effect.trial for effect in multi_job.handle(reported(A, 1, 0.95))] == [A]
    assert multi_job.handle(ended(A)) == []
    assert multi_job.done


def test_the_trial_that_reached_the_target_keeps_that_report_as_its_last() -> None:
    multi_job = search(Scripted(2), target=0.9)
    assert multi_job.ending == ""
    multi_job.handle(reported(A, 1, 0.95), reported(A, 2, 0.2))
    assert (multi_job.trials[A].step, multi_job.trials[A].metrics["accuracy"]) == (1, 0.95)
    assert multi_job.ending == "the target 0.9 was reached by trial 00000"


def test_a_good_infinity_reaches_no_target() -> None:
    multi_job = search(Scripted(1), target=0.9)
    assert multi_job.handle(reported(A, 1, math.inf), reported(A, 2, math.nan)) == []


def test_a_trial_that_qualifies_while_it_is_being_stopped_has_qualified() -> None:
    multi_job = search(Scripted(1, answers={(A, 1): [StopTrial(A, "rank 2 of 2")]}), target=0.9)
    multi_job.handle(reported(A, 1, 0.1))
    assert multi_job.handle(reported(A, 2, 0.95)) == [
        StopTrial(A, "reached the target 0.9 with 0.95 at report 2", Outcome.COMPLETED)
    ]


# --- time


def test_when_time_is_up_running_trials_are_cut_and_the_others_never_started() -> None:
    algorithm = Scripted(4, until=1)
    multi_job = search(algorithm, max_concurrent_trials=2)
    multi_job.handle(started(A), reported(A, 1), started(B))
    assert multi_job.handle(TimeUp("time_budget_s=60 is over")) == [
        StopTrial(A, "time_budget_s=60 is over", Outcome.CUT),
        StopTrial(B, "time_budget_s=60 is over", Outcome.CUT),
        StopTrial(C, "time_budget_s=60 is over", Outcome.NEVER_STARTED),
    ]
    assert multi_job.handle(TimeUp("interrupted")) == []
    assert multi_job.handle(SearchStopped("stopped by gandiva stop")) == []
    assert multi_job.handle(reported(B, 1), ended(A, Outcome.CUT), ended(B, Outcome.CUT)) == []
    assert multi_job.handle(ended(C, Outcome.NEVER_STARTED)) == []
    assert multi_job.done
    assert multi_job.counts == {"cut": 2, "never started": 1}


def test_a_search_that_somebody_stops_ends_as_when_its_time_is_up() -> None:
    multi_job = search(Scripted(2, until=1))
    multi_job.handle(started(A))
    assert multi_job.handle(SearchStopped("stopped by gandiva stop")) == [
        StopTrial(A, "stopped by gandiva stop", Outcome.CUT),
        StopTrial(B, "stopped by gandiva stop", Outcome.NEVER_STARTED),
    ]
    assert multi_job.ending == "stopped by gandiva stop"


# --- the metric


def wrong(trial: TrialId, step: int = 1, **metrics: Any) -> TrialReported:
    return TrialReported(trial, step, metrics, 0.0)


def test_one_trial_without_the_metric_fails_alone() -> None:
    multi_job = search(Scripted(4))
    multi_job.handle(reported(A, 1))
    assert multi_job.handle(wrong(B, loss=0.1, acuracy=0.9)) == [
        StopTrial(
            B,
            "reported no 'accuracy', only 'acuracy', 'loss'; report 'accuracy', or search by metric='acuracy'",
            Outcome.FAILED,
        )
    ]
    assert multi_job.handle(wrong(B, 2, loss=0.1), ended(B, Outcome.FAILED)) == []
    assert [len(multi_job.handle(wrong(trial))) for trial in (C, D)] == [1, 1]
    assert not multi_job.error


def test_a_trial_that_cannot_be_judged_fails_though_it_returned_before_it_was_stopped() -> None:
    multi_job = search(Scripted(4))
    multi_job.handle(reported(A, 1))
    (stop,) = multi_job.handle(wrong(B, loss=0.1))
    multi_job.handle(ended(B, Outcome.COMPLETED))
    assert (multi_job.trials[B].outcome, multi_job.trials[B].reason) == (Outcome.FAILED, stop.reason)


def test_a_trial_that_is_lost_after_it_was_told_to_stop_has_ended_as_it_was_told() -> None:
    multi_job = search(Scripted(4))
    multi_job.handle(reported(A, 1), started(B))
    (stop,) = multi_job.handle(wrong(B, loss=0.1))
    cuts = {effect.trial: effect for effect in multi_job.handle(TimeUp("interrupted"))}
    multi_job.handle(ended(A, Outcome.LOST), ended(B, Outcome.LOST))
    ends = {trial: (multi_job.trials[trial].outcome, multi_job.trials[trial].reason) for trial in (A, B)}
    assert ends == {A: (Outcome.CUT, cuts[A].reason), B: (Outcome.FAILED, stop.reason)}


def test_three_trials_without_the_metric_and_none_with_it_end_the_search() -> None:
    multi_job = search(Scripted(5), num_samples=5)
    multi_job.handle(started("00004"))
    assert len(multi_job.handle(wrong(A, acc=1.0), wrong(B, acc=1.0))) == 2
    effects = multi_job.handle(wrong(C, acc=1.0))
    assert [(effect.trial, effect.outcome) for effect in effects if isinstance(effect, StopTrial)] == [
        (C, Outcome.FAILED),
        (D, Outcome.NEVER_STARTED),
        ("00004", Outcome.CUT),
    ]
    assert multi_job.error == (
        "no trial can be judged: trial 00002 reported no 'accuracy', only 'acc'; "
        "report 'accuracy', or search by metric='acc'"
    )


def test_where_there_are_fewer_trials_all_of_them_are_enough() -> None:
    multi_job = search(Scripted(2), max_concurrent_trials=1)
    assert len(multi_job.handle(wrong(A, acc=1.0))) == 2  # its stop, and the next trial's creation
    assert not multi_job.error
    multi_job.handle(wrong(B, acc=1.0))
    assert multi_job.error


@pytest.mark.parametrize(
    ("metrics", "reason"),
    [
        ({"accuracy": "0.9"}, "reported '0.9' as 'accuracy', which is not a number; report a float"),
        ({"accuracy": None}, "reported None as 'accuracy', which is not a number; report a float"),
        ({}, "reported nothing; report the metric 'accuracy'"),
    ],
)
def test_a_metric_that_is_no_number_fails_its_trial(metrics: dict[str, Any], reason: str) -> None:
    multi_job = search(Scripted(2))
    assert multi_job.handle(wrong(A, **metrics)) == [StopTrial(A, reason, Outcome.FAILED)]


def test_without_a_metric_trials_just_run() -> None:
    multi_job = search(Scripted(1), metric=None)
    assert multi_job.handle(wrong(A, note="text"), wrong(A, 2), ended(A)) == []
    assert multi_job.best is None
    assert not multi_job.error
    assert multi_job.done


# --- searchers at fault


def test_a_searcher_that_waits_for_nothing_is_named() -> None:
    multi_job = search(Scripted(2, until=1))
    assert multi_job.stuck == ""
    multi_job.handle(reported(A, 1))
    assert multi_job.stuck == ""
    multi_job.handle(reported(B, 1))
    assert multi_job.stuck == (
        "no trial runs and the searcher Scripted waits: it suggests none, and neither promotes nor stops "
        "any of the 2 that are parked"
    )
    multi_job.handle(ended(A), ended(B))
    assert multi_job.stuck == ""
    assert multi_job.done


@pytest.mark.parametrize("trial", ["00000", "12345"])
def test_an_action_on_a_trial_that_is_gone_or_unknown_is_the_searchers_fault(trial: TrialId) -> None:
    multi_job = search(Scripted(2, answers={(B, 1): [Promote(trial, 3)]}))
    multi_job.handle(ended(A))
    with pytest.raises(RuntimeError, match=f"the searcher Scripted wants Promote.*{trial}"):
        multi_job.handle(reported(B, 1))


def test_two_trials_of_one_id_and_too_many_at_once_are_the_searchers_fault() -> None:
    class Twins(Scripted):
        def suggest(self, n: int) -> list[Create]:
            return [Create(A, {}), Create(A, {})]

    with pytest.raises(RuntimeError, match="the searcher Twins created trial 00000 twice"):
        search(Twins())
    with pytest.raises(RuntimeError, match="the searcher Twins suggested 2 trials when asked for 1"):
        search(Twins(), max_concurrent_trials=1)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"max_concurrent_trials": 0}, "max_concurrent_trials must be at least 1"),
        ({"num_samples": -1}, "num_samples=-1 creates trials without end; give max_concurrent_trials"),
        ({"target": math.nan}, "target must be a finite value of the metric 'accuracy', got nan"),
        ({"target": 0.9, "metric": None}, "target must be a finite value of the metric None"),
    ],
)
def test_knobs_that_make_no_search_are_refused(knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        search(Scripted(), **knobs)
