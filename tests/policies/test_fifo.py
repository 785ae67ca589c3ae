from __future__ import annotations

from gandiva_ray.core.decisions import Assign, Launch
from gandiva_ray.core.events import JobEnded, JobParked, JobPromoted, StopRequested, TimerFired, WeightChanged
from gandiva_ray.core.model import Assignment, Outcome, Status
from gandiva_ray.core.scheduler import Scheduler
from gandiva_ray.policies import Fifo
from tests.builders import GIB, homes, joined, make_node, progressed, scheduler_of, start_all, submitted, weights

D0, D1 = make_node().devices


def ended(job: str) -> JobEnded:
    return JobEnded(9.0, job, Outcome.COMPLETED, "")


def queued(scheduler: Scheduler) -> list[str]:
    return [job.id for job in scheduler.state.queued]


def test_jobs_run_one_a_device_in_order_of_submission():
    scheduler = scheduler_of(Fifo(), joined(), submitted("c", at=1.0), submitted("b", at=2.0), submitted("a", at=3.0))
    assert homes(scheduler) == {"c": (0,), "b": (1,)}
    assert scheduler.plan.why == {"a": "is next, and waits for devices"}
    (decision,) = scheduler.handle(ended("b"))
    assert decision == Launch("a", Assignment((D1,), exclusive=True), None, "its turn in order of submission")


def test_a_gang_at_the_head_of_the_line_blocks_it():
    scheduler = scheduler_of(Fifo(), joined(), submitted("a"), submitted("b-pair", 2, at=1.0), submitted("c", at=2.0))
    assert homes(scheduler) == {"a": (0,)}
    scheduler.handle(ended("a"))
    assert homes(scheduler) == {"b-pair": (0, 1)}
    assert queued(scheduler) == ["c"]


def test_a_gang_is_on_one_node():
    scheduler = scheduler_of(Fifo(), joined("m", 1), joined("n", 1), submitted("pair", 2))
    assert queued(scheduler) == ["pair"]
    scheduler.handle(joined("o", 2))
    assert [job.home[0].node for job in scheduler.state.placed] == ["o"]


def test_a_single_job_goes_where_the_fewest_devices_are_free():
    scheduler = scheduler_of(Fifo(), joined("m", 4), joined("n", 2), submitted("a"), submitted("four", 4))
    assert {job.id: job.home[0].node for job in scheduler.state.placed} == {"a": "n", "four": "m"}


def test_a_stopping_job_keeps_its_devices_until_it_has_ended():
    scheduler = scheduler_of(Fifo(), joined(devices=1), submitted("a"), submitted("b", at=1.0))
    scheduler.handle(StopRequested(2.0, "a", Outcome.STOPPED, ""))
    assert queued(scheduler) == ["b"]
    scheduler.handle(JobEnded(3.0, "a", Outcome.STOPPED, ""))
    assert homes(scheduler) == {"b": (0,)}


def test_a_parked_job_gives_its_devices_up_and_comes_before_the_queue_when_promoted():
    arrivals = [submitted(job, at=float(n), until=1) for n, job in enumerate("abc")]
    scheduler = scheduler_of(Fifo(), joined(devices=1), *arrivals)
    decisions = scheduler.handle(JobParked(3.0, "a", 1))
    assert [(type(decision), decision.job) for decision in decisions] == [(Assign, "a"), (Launch, "b")]
    assert weights(scheduler) == {"a": 0.0, "b": 1.0}
    start_all(scheduler)
    scheduler.handle(JobPromoted(4.0, "a", 2))
    assert weights(scheduler) == {"a": 0.0, "b": 1.0}, "a running job is not suspended"
    decisions = scheduler.handle(JobParked(5.0, "b", 1))
    assert [(type(decision), decision.job) for decision in decisions] == [(Assign, "b"), (Assign, "a")]
    assert weights(scheduler) == {"a": 1.0, "b": 0.0}
    assert queued(scheduler) == ["c"]


def test_the_home_of_a_promoted_gang_is_kept_for_it():
    scheduler = scheduler_of(Fifo(), joined(), submitted("pair", 2, until=1))
    scheduler.handle(JobParked(1.0, "pair", 1))
    scheduler.handle(*(submitted(job, at=2.0) for job in "abc"))
    start_all(scheduler)
    scheduler.handle(JobPromoted(3.0, "pair", 2))
    scheduler.handle(ended("b"))
    assert queued(scheduler) == ["c"]
    scheduler.handle(ended("a"))
    assert weights(scheduler) == {"pair": 1.0}


def test_a_promoted_job_moves_to_a_free_core_where_its_node_rehomes():
    for rehomes, home in ((True, (1,)), (False, (0,))):
        scheduler = scheduler_of(Fifo(), joined(rehomes=rehomes), *(submitted(job, until=1) for job in "ab"))
        scheduler.handle(JobParked(1.0, "a", 1))
        scheduler.handle(submitted("c", at=2.0))
        start_all(scheduler)
        scheduler.handle(JobPromoted(3.0, "a", 2), ended("b"))
        assert homes(scheduler) == {"a": home, "c": (0,)}
        assert weights(scheduler) == {"a": 1.0 if rehomes else 0.0, "c": 1.0}


def test_a_job_with_weight_zero_gives_its_devices_up():
    scheduler = scheduler_of(Fifo(), joined(devices=1), submitted("a"), submitted("b", at=1.0))
    scheduler.handle(WeightChanged(2.0, "a", 0.0, False))
    assert weights(scheduler) == {"a": 0.0, "b": 1.0}


def test_memory_bounds_how_many_parked_jobs_there_are():
    scheduler = scheduler_of(Fifo(), joined(devices=1, free_bytes=10 * GIB), submitted("0", until=1))
    scheduler.handle(progressed("0", 4 * GIB), JobParked(1.0, "0", 1))
    for job in "12":
        scheduler.handle(submitted(job, at=2.0, until=1))
    start_all(scheduler)
    scheduler.handle(JobParked(3.0, "1", 1))
    assert queued(scheduler) == ["2"]
    assert scheduler.plan.why["2"] == "is next, and waits for memory"
    scheduler.handle(ended("0"), TimerFired(4.0))
    assert scheduler.state.jobs["2"].status is Status.LAUNCHING
