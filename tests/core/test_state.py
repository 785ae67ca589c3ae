from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gandiva_ray.core.decisions import Assign, Launch, Stop
from gandiva_ray.core.events import (
    JobEnded,
    JobFailed,
    JobParked,
    JobProgressed,
    JobPromoted,
    JobStarted,
    NodeJoined,
    NodeLost,
    StopRequested,
    TimerFired,
    WeightChanged,
)
from gandiva_ray.core.model import Assignment, Device, Job, Outcome, Status
from gandiva_ray.core.state import ClusterState, Fact, IllegalFact
from gandiva_ray.policies import Gandiva
from tests.builders import joined, make_node, progressed, random_world, snapshot, state_of, submitted

D0, D1 = make_node().devices
HOME = Assignment((D0,))

SAMPLES: dict[type, Fact] = {
    JobStarted: JobStarted(9.0, "a"),
    JobProgressed: JobProgressed(9.0, "a", 2.0, 4, 100),
    JobParked: JobParked(9.0, "a", 5),
    JobPromoted: JobPromoted(9.0, "a", 50),
    WeightChanged: WeightChanged(9.0, "a", 7.0, True),
    StopRequested: StopRequested(9.0, "a", Outcome.CUT, "enough"),
    JobEnded: JobEnded(9.0, "a", Outcome.COMPLETED, "returned"),
    JobFailed: JobFailed(9.0, "a", Outcome.FAILED, "raised"),
    Launch: Launch("a", HOME, 5, "why"),
    Assign: Assign("a", Assignment((D1,), 3.0), 8, "why"),
    Stop: Stop("a", "n", Outcome.STOPPED, "given up"),
}
LIFE: dict[Status, list[Fact]] = {
    Status.QUEUED: [],
    Status.LAUNCHING: [SAMPLES[Launch]],
    Status.RUNNING: [SAMPLES[Launch], JobStarted(1.0, "a")],
    Status.PARKED: [SAMPLES[Launch], JobStarted(1.0, "a"), JobParked(2.0, "a", 5)],
    Status.STOPPING: [
        SAMPLES[Launch],
        JobStarted(1.0, "a"),
        StopRequested(2.0, "a", Outcome.STOPPED, "given up"),
        SAMPLES[Stop],
    ],
    Status.ENDED: [SAMPLES[Launch], JobStarted(1.0, "a"), JobEnded(2.0, "a", Outcome.STOPPED, "given up")],
}


def state_in(status: Status) -> ClusterState:
    """A cluster whose job "a" has milestone 5 and that status."""
    return state_of(joined(), submitted("a", until=5), *LIFE[status])


def after(status: Status, *facts: Fact) -> Job:
    state = state_in(status)
    for fact in facts:
        state.apply(fact)
    return state.jobs["a"]


@pytest.mark.parametrize("status", Status, ids=lambda status: status.name)
def test_a_life_leads_to_each_status(status):
    assert state_in(status).jobs["a"].status is status


MOVES = [
    (Status.QUEUED, Launch, Status.LAUNCHING),
    (Status.QUEUED, JobFailed, Status.ENDED),
    (Status.LAUNCHING, JobStarted, Status.RUNNING),
    (Status.LAUNCHING, JobProgressed, Status.LAUNCHING),
    (Status.LAUNCHING, JobEnded, Status.ENDED),
    (Status.LAUNCHING, JobFailed, Status.ENDED),
    (Status.LAUNCHING, Assign, Status.LAUNCHING),
    (Status.LAUNCHING, Stop, Status.STOPPING),
    (Status.RUNNING, JobProgressed, Status.RUNNING),
    (Status.RUNNING, JobParked, Status.PARKED),
    (Status.RUNNING, JobEnded, Status.ENDED),
    (Status.RUNNING, JobFailed, Status.ENDED),
    (Status.RUNNING, Assign, Status.RUNNING),
    (Status.RUNNING, Stop, Status.STOPPING),
    (Status.PARKED, JobProgressed, Status.PARKED),
    (Status.PARKED, JobPromoted, Status.RUNNING),
    (Status.PARKED, JobEnded, Status.ENDED),
    (Status.PARKED, JobFailed, Status.ENDED),
    (Status.PARKED, Assign, Status.PARKED),
    (Status.PARKED, Stop, Status.STOPPING),
    (Status.STOPPING, JobEnded, Status.ENDED),
    (Status.STOPPING, JobFailed, Status.ENDED),
]


@pytest.mark.parametrize(("status", "fact", "then"), MOVES)
def test_a_legal_move_leads_on(status, fact, then):
    assert after(status, SAMPLES[fact]).status is then


IMPOSSIBLE = [
    *((Status.QUEUED, fact) for fact in (JobStarted, JobProgressed, JobParked, JobEnded, Assign, Stop)),
    *((Status.LAUNCHING, fact) for fact in (JobParked, Launch)),
    *((Status.RUNNING, fact) for fact in (JobStarted, Launch)),
    *((Status.PARKED, fact) for fact in (JobStarted, Launch)),
    *((status, fact) for status in (Status.STOPPING, Status.ENDED) for fact in (Launch, Assign, Stop)),
]


@pytest.mark.parametrize(("status", "fact"), IMPOSSIBLE)
def test_an_impossible_move_raises_and_names_job_status_and_fact(status, fact):
    state = state_in(status)
    before = state.jobs["a"]
    with pytest.raises(IllegalFact, match=f"{fact.__name__} cannot happen to job 'a' while it is {status.value}"):
        state.apply(SAMPLES[fact])
    assert state.jobs["a"] is before


def test_an_impossible_move_is_one_that_is_not_listed_as_possible():
    unlisted = {(status, fact) for status in Status for fact in SAMPLES} - set(IMPOSSIBLE)
    for status, fact in sorted(unlisted, key=str):
        after(status, SAMPLES[fact])  # does not raise


@pytest.mark.parametrize("fact", [JobStarted, JobParked, JobPromoted, WeightChanged, StopRequested])
def test_late_news_of_a_stopping_job_is_absorbed(fact):
    assert after(Status.STOPPING, SAMPLES[fact]) == state_in(Status.STOPPING).jobs["a"]


@pytest.mark.parametrize(
    "fact", [JobStarted, JobProgressed, JobParked, JobPromoted, WeightChanged, StopRequested, JobEnded, JobFailed]
)
def test_late_news_of_an_ended_job_is_absorbed(fact):
    assert after(Status.ENDED, SAMPLES[fact]) == state_in(Status.ENDED).jobs["a"]


def forgotten() -> ClusterState:
    """A cluster whose job "a" has ended and is forgotten."""
    state = state_in(Status.ENDED)
    state.forget_ended()
    return state


def test_an_ended_job_is_forgotten_when_it_is_asked_for_and_no_other_is():
    state = state_in(Status.ENDED)
    state.apply(submitted("b"))
    assert list(state.jobs) == ["a", "b"]
    state.forget_ended()
    assert list(state.jobs) == ["b"]
    state.forget_ended()
    assert list(state.jobs) == ["b"]


@pytest.mark.parametrize(
    "fact", [JobStarted, JobProgressed, JobParked, JobPromoted, WeightChanged, StopRequested, JobEnded, JobFailed]
)
def test_late_news_of_a_forgotten_job_is_absorbed(fact):
    state = forgotten()
    state.apply(SAMPLES[fact])
    assert list(state.jobs) == []
    assert state.now == 9.0


@pytest.mark.parametrize("fact", [Launch, Assign, Stop])
def test_an_impossible_move_of_a_forgotten_job_raises(fact):
    with pytest.raises(IllegalFact, match=f"{fact.__name__} cannot happen to job 'a' while it is ended"):
        forgotten().apply(SAMPLES[fact])


def test_the_id_of_a_forgotten_job_is_not_used_again():
    with pytest.raises(IllegalFact, match="'a' was submitted twice"):
        forgotten().apply(submitted("a"))


def test_a_job_that_ends_twice_is_forgotten_once():
    state = state_in(Status.ENDED)
    state.apply(JobFailed(8.0, "a", Outcome.LOST, "late"))
    state.forget_ended()
    assert list(state.jobs) == []


def test_service_in_the_last_progress_of_a_stopping_job_counts():
    job = after(Status.STOPPING, SAMPLES[JobProgressed])
    assert (job.status, job.device_seconds, job.step) == (Status.STOPPING, 2.0, 4)


def test_progress_adds_service_and_keeps_the_last_measured_size():
    job = after(Status.RUNNING, JobProgressed(3.0, "a", 2.0, 3, 100), JobProgressed(4.0, "a", 0.5, 4, 0))
    assert (job.device_seconds, job.step, job.private_bytes) == (2.5, 4, 100)


def test_a_queued_job_that_is_stopped_has_never_started():
    state = state_in(Status.QUEUED)
    state.apply(StopRequested(3.0, "a", Outcome.STOPPED, "the search is over"))
    job = state.jobs["a"]
    assert (job.status, job.outcome, job.reason) == (Status.ENDED, Outcome.NEVER_STARTED, "the search is over")
    assert job.ended_at == 3.0
    assert state.queued == ()


@pytest.mark.parametrize("status", [Status.LAUNCHING, Status.RUNNING, Status.PARKED])
def test_a_stop_is_noted_until_it_is_ordered_and_the_first_one_counts(status):
    state = state_in(status)
    state.apply(StopRequested(3.0, "a", Outcome.COMPLETED, "used its budget"))
    state.apply(StopRequested(3.0, "a", Outcome.CUT, "later"))
    job = state.jobs["a"]
    assert (job.status, job.stop) == (status, (Outcome.COMPLETED, "used its budget"))
    assert state.unsettled == (job,)
    state.apply(Stop("a", "n", Outcome.COMPLETED, "used its budget"))
    assert state.unsettled == ()


def test_a_job_that_returned_before_its_stop_arrived_ends_as_it_did():
    job = after(Status.STOPPING, JobEnded(3.0, "a", Outcome.COMPLETED, "returned"))
    assert (job.outcome, job.reason, job.ended_at) == (Outcome.COMPLETED, "returned", 3.0)


def test_parking_that_a_promotion_crossed_is_stale():
    job = after(Status.RUNNING, JobPromoted(3.0, "a", 9), JobParked(4.0, "a", 5))
    assert job.status is Status.RUNNING
    assert after(Status.RUNNING, JobPromoted(3.0, "a", None), JobParked(4.0, "a", 5)).status is Status.RUNNING


def test_a_job_that_was_promoted_twice_in_a_row_may_park_twice():
    assert after(Status.PARKED, JobParked(3.0, "a", 5)).status is Status.PARKED


@pytest.mark.parametrize("status", [Status.QUEUED, Status.LAUNCHING, Status.RUNNING])
def test_a_promotion_before_the_milestone_moves_it(status):
    job = after(status, JobPromoted(3.0, "a", 9))
    assert (job.status, job.until) == (status, 9)


def test_a_promotion_to_a_milestone_that_is_reached_leaves_the_job_parked():
    assert after(Status.PARKED, JobPromoted(3.0, "a", 5)).status is Status.PARKED
    assert after(Status.PARKED, JobPromoted(3.0, "a", 6)).status is Status.RUNNING


@pytest.mark.parametrize("status", [Status.QUEUED, Status.LAUNCHING, Status.RUNNING, Status.PARKED])
def test_a_new_weight_is_a_wish(status):
    job = after(status, WeightChanged(3.0, "a", 2.5, True))
    assert (job.status, job.weight, job.exclusive) == (status, 2.5, True)
    assert job.assignment == state_in(status).jobs["a"].assignment


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_a_weight_that_is_none_is_refused_by_name(weight):
    with pytest.raises(ValueError, match=r"weight of job 'a' must be a finite number"):
        after(Status.RUNNING, WeightChanged(3.0, "a", weight, False))
    with pytest.raises(ValueError, match=r"weight of job 'a' must be a finite number"):
        submitted("a", weight=weight)


def test_decisions_are_what_the_node_was_told():
    launched = after(Status.LAUNCHING)
    assert (launched.assignment, launched.ordered_until, launched.home) == (HOME, 5, (D0,))
    assigned = after(Status.RUNNING, SAMPLES[Assign])
    assert (assigned.assignment, assigned.ordered_until) == (Assignment((D1,), 3.0), 8)


def test_indexes_follow_a_job_to_its_new_home():
    state = state_in(Status.RUNNING)
    state.apply(SAMPLES[Assign])
    assert state.jobs_on(D0) == ()
    assert state.jobs_on(D1) == state.jobs_at("n") == state.placed == (state.jobs["a"],)


def test_an_ended_job_is_found_among_all_jobs_alone():
    state = state_in(Status.ENDED)
    assert list(state.jobs) == ["a"]
    assert (state.placed, state.queued, state.unsettled, state.jobs_on(D0), state.jobs_at("n")) == ((), (), (), (), ())
    assert state.jobs["a"].home == ()


def test_a_milestone_that_was_not_ordered_is_unsettled():
    state = state_in(Status.RUNNING)
    assert state.unsettled == ()
    state.apply(JobPromoted(3.0, "a", 9))
    assert state.unsettled == (state.jobs["a"],)
    state.apply(Assign("a", HOME, 9, "promoted"))
    assert state.unsettled == ()


def test_the_queue_is_in_order_of_submission_then_of_id():
    state = state_of(submitted("c", at=1.0), submitted("b", at=2.0), submitted("a", at=2.0), submitted("d", at=2.0))
    state.apply(JobPromoted(3.0, "a", 4))
    state.apply(StopRequested(3.0, "b", Outcome.STOPPED, ""))
    assert [job.id for job in state.queued] == ["c", "a", "d"]
    assert state.queued[1].until == 4


def test_jobs_that_ask_for_the_same_queue_together():
    state = state_of(submitted("a"), submitted("b", 2), submitted("c"), submitted("d", exclusive=True))
    assert [[job.id for job in jobs] for jobs in state.queues.values()] == [["a", "c"], ["b"], ["d"]]
    state.apply(WeightChanged(1.0, "a", 1.0, exclusive=True))
    assert [[job.id for job in jobs] for jobs in state.queues.values()] == [["c"], ["b"], ["a", "d"]]
    state.apply(StopRequested(2.0, "b", Outcome.STOPPED, ""))
    assert [[job.id for job in jobs] for jobs in state.queues.values()] == [["c"], ["a", "d"]]


def test_unknown_and_repeated_ids_raise():
    state = state_in(Status.QUEUED)
    with pytest.raises(IllegalFact, match="JobStarted names job 'b', which was never submitted"):
        state.apply(JobStarted(0.0, "b"))
    with pytest.raises(IllegalFact, match="'a' was submitted twice"):
        state.apply(submitted("a"))


def test_time_never_goes_back():
    state = state_of(TimerFired(5.0), TimerFired(3.0), submitted("a", at=4.0))
    assert state.now == 5.0
    assert state.jobs["a"].submitted_at == 5.0


def test_times_of_a_life_are_noted():
    job = after(Status.ENDED)
    assert (job.submitted_at, job.started_at, job.ended_at) == (0.0, 1.0, 2.0)


# --- nodes


def test_a_lost_node_is_forgotten_and_its_jobs_are_lost():
    state = state_of(joined(), joined("m"), submitted("a"), submitted("b"), submitted("c"))
    state.apply(Launch("a", HOME, None, ""))
    state.apply(Launch("b", Assignment(make_node("m").devices[:1]), None, ""))
    state.apply(NodeLost(7.0, "n"))
    job = state.jobs["a"]
    assert (job.status, job.outcome, job.reason) == (Status.ENDED, Outcome.LOST, "node 'n' was lost")
    assert [job.id for job in state.placed] == ["b"]
    assert [job.id for job in state.queued] == ["c"]
    assert list(state.nodes) == ["m"]
    with pytest.raises(KeyError):
        state.jobs_on(D0)


def test_a_job_that_was_being_stopped_when_its_node_was_lost_is_stopped():
    state = state_in(Status.STOPPING)
    state.apply(NodeLost(7.0, "n"))
    assert (state.jobs["a"].outcome, state.jobs["a"].reason) == (Outcome.STOPPED, "given up")


def test_a_node_may_be_lost_twice_and_come_back():
    state = state_in(Status.RUNNING)
    for fact in (NodeLost(7.0, "n"), NodeLost(8.0, "n"), JobFailed(8.0, "a", Outcome.FAILED, "late"), joined()):
        state.apply(fact)
    assert state.jobs["a"].outcome is Outcome.LOST
    assert (list(state.nodes), state.jobs_on(D0)) == (["n"], ())


def test_a_node_that_joins_again_has_its_new_devices_and_keeps_its_jobs():
    state = state_in(Status.RUNNING)
    state.apply(joined("n", 4))
    assert len(state.nodes["n"].devices) == 4
    assert state.jobs_on(D0) == state.jobs_at("n") == (state.jobs["a"],)
    assert state.jobs_on(Device("n", 3)) == ()


def test_a_node_cannot_join_again_without_a_device_where_a_job_lives():
    state = state_in(Status.RUNNING)
    node = make_node()
    with pytest.raises(IllegalFact, match="without the home of a; lose it first"):
        state.apply(NodeJoined(3.0, replace(node, devices=(D1,))))
    state.apply(NodeJoined(3.0, replace(node, devices=(D0,))))
    with pytest.raises(KeyError):
        state.jobs_on(D1)


def test_a_node_has_devices_of_its_own():
    with pytest.raises(ValueError, match="devices of node 'n' must be distinct and its own"):
        replace(make_node(), devices=(D0, D0))
    with pytest.raises(ValueError, match="devices of node 'n' must be distinct and its own"):
        replace(make_node(), devices=make_node("m").devices)


# --- sizes


def test_the_mean_size_is_of_the_multi_job_or_else_of_all():
    state = state_of(joined(), *(submitted(job, multi_job=job[0]) for job in ("x1", "x2", "y1", "z1")))
    assert state.mean_private_bytes("x") is None
    for job in ("x1", "x2", "y1"):
        state.apply(Launch(job, HOME, None, ""))
    for job, size in (("x1", 50), ("x1", 100), ("x2", 200), ("y1", 600), ("y1", 0)):
        state.apply(progressed(job, size))
    assert (state.mean_private_bytes("x"), state.mean_private_bytes("y")) == (150, 600)
    assert state.mean_private_bytes("z") == 300
    state.apply(JobEnded(1.0, "x1", Outcome.COMPLETED, ""))
    assert state.mean_private_bytes("x") == 150


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32))
def test_the_indexes_agree_with_the_jobs(seed):
    state = random_world(Gandiva(), seed).state
    jobs = list(state.jobs.values())
    placed = [job for job in jobs if job.placed]
    assert state.queued == tuple(
        sorted((job for job in jobs if job.status is Status.QUEUED), key=lambda job: job.order)
    )
    for kind, queue in state.queues.items():
        assert list(queue) == [job for job in state.queued if job.kind == kind] != []
    assert sorted(state.placed, key=lambda job: job.id) == sorted(placed, key=lambda job: job.id)
    for node in state.nodes.values():
        assert set(state.jobs_at(node.id)) == {job for job in placed if job.home[0].node == node.id}
        for device in node.devices:
            assert set(state.jobs_on(device)) == {job for job in placed if device in job.home}


def test_nothing_that_a_view_shows_can_be_written():
    state = state_in(Status.RUNNING)
    before = snapshot(state)
    with pytest.raises(TypeError):
        state.jobs["b"] = state.jobs["a"]
    with pytest.raises(TypeError):
        del state.nodes["n"]
    with pytest.raises(AttributeError):
        state.jobs["a"].weight = 2.0
    assert snapshot(state) == before
