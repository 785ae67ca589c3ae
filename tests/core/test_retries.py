"""Trials that fail and are tried again, and their checkpoints, as a MultiJob sees them."""

from dataclasses import replace
from typing import Any

from gandiva_ray.core.model import Outcome
from gandiva_ray.core.multi_job import DropCheckpoint, Failures, Keep, MultiJob, Resume, Retry, TrialState
from gandiva_ray.core.search import (
    CapacityChanged,
    Create,
    Promote,
    Reweigh,
    StopTrial,
    TrialEnded,
    TrialReported,
)
from tests.core.test_multi_job import A, B, Scripted, ended, reported, search


def saved(step: int, path: str, value: float = 0.5, attempt: int = 1) -> TrialReported:
    return replace(reported(A, step, value), checkpoint=path, attempt=attempt)


def failed(attempt: int = 1, outcome: Outcome = Outcome.FAILED) -> TrialEnded:
    return replace(ended(A, outcome), attempt=attempt)


def start(*answers: Any, retries: int = 1, until: int | None = None, **knobs: Any) -> tuple[MultiJob, Scripted]:
    algorithm = Scripted(1, until=until, answers=dict(answers))
    return search(algorithm, failures=Failures(retries), **knobs), algorithm


def test_a_trial_that_fails_is_tried_again_from_its_last_checkpoint_as_often_as_is_said() -> None:
    multi_job, algorithm = start(retries=2)
    multi_job.handle(saved(1, "one"), saved(2, "two"), reported(A, 3))
    create = Create(A, {"x": 0})
    assert multi_job.handle(failed()) == [Retry(create, attempt=2, step=2, checkpoint="two", reason="because")]
    assert multi_job.counts == {"waiting": 1}
    assert multi_job.handle(failed(2)) == [Retry(create, attempt=3, step=2, checkpoint="two", reason="because")]
    assert multi_job.handle(failed(3)) == []
    assert multi_job.counts == {"failed": 1}
    assert algorithm.heard[-1] == (A, Outcome.FAILED)
    assert len(algorithm.heard) == 4  # three reports and the end: of the retries it hears nothing


def test_without_a_checkpoint_a_trial_begins_anew_and_what_it_reports_again_counts_once() -> None:
    multi_job, algorithm = start()
    multi_job.handle(reported(A, 1), reported(A, 2, 0.9))
    assert multi_job.handle(failed()) == [Retry(Create(A, {"x": 0}), 2, step=0, checkpoint=None, reason="because")]
    multi_job.handle(*(replace(reported(A, step, 0.7), attempt=2) for step in (1, 2, 3)))
    assert [heard[1] for heard in algorithm.heard] == [1, 2, 3]
    record = multi_job.trials[A]
    assert (record.step, record.best_value, record.device_seconds) == (3, 0.9, 4.0 + 6.0)


def test_what_an_earlier_attempt_still_says_is_not_heard() -> None:
    multi_job, _ = start()
    multi_job.handle(failed())
    assert multi_job.handle(reported(A, 1), failed()) == []
    assert multi_job.counts == {"waiting": 1}


def test_a_parked_trial_that_fails_is_run_again_when_it_is_promoted() -> None:
    multi_job, algorithm = start(((A, 2), []), (4, [Promote(A, 9)]), until=2)
    multi_job.handle(reported(A, 1), reported(A, 2))
    assert multi_job.handle(failed()) == []
    assert multi_job.trials[A].state is TrialState.PARKED
    (retry,) = multi_job.handle(CapacityChanged(4, {}))
    assert retry == Retry(Create(A, {"x": 0}, until=9), 2, 0, None, "because")
    multi_job.handle(replace(reported(A, 1), attempt=2), replace(reported(A, 2), attempt=2))
    assert multi_job.trials[A].state is not TrialState.PARKED
    assert [heard for heard in algorithm.heard if heard[0] == A and heard[1] in (1, 2)] == algorithm.heard[:2]


def test_a_parked_trial_whose_process_is_gone_is_stopped_without_one() -> None:
    multi_job, algorithm = start((4, [StopTrial(A, "rank 2 of 2")]), until=2)
    multi_job.handle(reported(A, 2), failed())
    assert multi_job.handle(CapacityChanged(4, {})) == [TrialEnded(A, Outcome.STOPPED, "rank 2 of 2")]
    assert multi_job.counts == {"stopped": 1}
    assert algorithm.heard[-1] == (A, Outcome.STOPPED)


def test_a_retry_has_the_milestone_and_the_weight_of_now() -> None:
    answers = ((A, 2), [Promote(A, 9), Reweigh(A, 0.5)])
    multi_job, _ = start(answers, until=2)
    multi_job.handle(reported(A, 2), reported(A, 3))
    (retry,) = multi_job.handle(failed())
    assert isinstance(retry, Retry)
    assert (retry.create.until, retry.create.weight) == (9, 0.5)


def test_a_trial_lost_with_its_node_is_tried_again_without_being_asked_but_not_for_ever() -> None:
    multi_job, _ = start(retries=0)
    for attempt in (1, 2, 3):
        (retry,) = multi_job.handle(failed(attempt, Outcome.LOST))
        assert isinstance(retry, Retry)
    assert multi_job.handle(failed(4, Outcome.LOST)) == []
    assert multi_job.counts == {"lost": 1}


def test_the_first_failure_may_end_the_search() -> None:
    multi_job = search(Scripted(2), failures=Failures(end_search=True))
    (stop,) = multi_job.handle(failed())
    assert stop.trial == B
    assert multi_job.ending == f"trial {A} failed: because"


def test_a_trial_that_reports_no_metric_is_not_tried_again() -> None:
    multi_job, _ = start()
    multi_job.handle(ended(A))
    assert multi_job.counts == {"failed": 1}


def test_the_latest_checkpoints_are_kept() -> None:
    multi_job, _ = start(keep=Keep(2))
    assert multi_job.handle(saved(1, "one"), saved(2, "two")) == []
    assert multi_job.handle(saved(3, "three")) == [DropCheckpoint(A, "one")]
    assert [kept.path for kept in multi_job.trials[A].checkpoints] == ["two", "three"]


def test_the_best_checkpoints_are_kept_and_the_last_one_in_any_case() -> None:
    multi_job, _ = start(keep=Keep(2, "accuracy"))
    multi_job.handle(saved(1, "one", 0.9), saved(2, "two", 0.1))
    assert multi_job.handle(saved(3, "three", 0.5)) == [DropCheckpoint(A, "two")]
    assert multi_job.handle(saved(4, "four", 0.2)) == [DropCheckpoint(A, "three")]
    assert [kept.path for kept in multi_job.trials[A].checkpoints] == ["one", "four"]


def test_a_checkpoint_saved_again_by_a_later_attempt_is_one() -> None:
    multi_job, _ = start(keep=Keep(1))
    multi_job.handle(saved(1, "one"), failed())
    assert multi_job.handle(saved(1, "one", attempt=2)) == []
    assert [kept.path for kept in multi_job.trials[A].checkpoints] == ["one"]


def restored(multi_job: MultiJob, errored: Any = "leave", *, unfinished: bool = True) -> list[Any]:
    return list(multi_job.resume(Resume(unfinished, errored)))


def test_a_trial_that_failed_goes_on_to_the_most_reports_and_its_searcher_hears_nothing() -> None:
    algorithm = Scripted(1, until=2)
    algorithm.max_t = 3  # type: ignore[attr-defined]
    multi_job = search(algorithm)
    multi_job.handle(saved(1, "one"), failed())
    heard = list(algorithm.heard)
    create = Create(A, {"x": 0}, until=3)
    assert restored(multi_job) == []
    assert restored(multi_job, "resume") == [Retry(create, 2, 1, "one", "the search was restored")]
    multi_job.handle(saved(2, "two", 0.9, attempt=2))
    (stop,) = multi_job.handle(saved(3, "three", attempt=2))
    assert stop == StopTrial(A, "reached 3 reports, the most there are", Outcome.COMPLETED)
    multi_job.handle(failed(2, Outcome.COMPLETED))
    assert (multi_job.counts, multi_job.done) == ({"completed": 1}, True)
    assert algorithm.heard == heard
    assert multi_job.trials[A].best_value == 0.9


def test_a_trial_that_begins_anew_has_reported_nothing() -> None:
    multi_job = search(Scripted(2))
    multi_job.handle(saved(1, "one", 0.9), reported(B, 1, 0.3), failed())
    _, drop, retry = restored(multi_job, "restart")
    assert drop == DropCheckpoint(A, "one")
    assert (retry.step, retry.checkpoint, retry.anew) == (0, None, True)
    assert multi_job.best is multi_job.trials[B]
    multi_job.handle(saved(1, "one", 0.2, attempt=2))
    assert multi_job.trials[A].best_value == 0.2


def test_trials_that_had_not_ended_may_be_left_and_their_searcher_is_told() -> None:
    algorithm = Scripted(2)
    multi_job = search(algorithm)
    multi_job.handle(reported(A, 1))
    ends = restored(multi_job, unfinished=False)
    assert [(end.trial, end.outcome) for end in ends] == [(A, Outcome.CUT), (B, Outcome.NEVER_STARTED)]
    assert algorithm.heard[-2:] == [(A, Outcome.CUT), (B, Outcome.NEVER_STARTED)]
    assert multi_job.done


def test_a_checkpoint_that_follows_its_report_counts_also_when_the_search_ends() -> None:
    multi_job, _ = start(target=0.9)
    multi_job.handle(reported(A, 1, 0.95))
    assert multi_job.ending
    multi_job.handle(saved(1, "last", 0.95), saved(2, "later", 0.1))
    assert [kept.path for kept in multi_job.trials[A].checkpoints] == ["last"]
