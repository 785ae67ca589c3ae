"""Jobs that ask for a share of a device, side by side."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gandiva_ray.core.events import JobEnded, JobParked, JobPromoted, StopRequested
from gandiva_ray.core.model import Assignment, Device, JobId, Outcome
from gandiva_ray.core.plan import InvalidPlan, Plan, Policy, reconcile
from gandiva_ray.core.scheduler import Scheduler
from gandiva_ray.policies import POLICIES
from gandiva_ray.policies.fifo import Fifo
from gandiva_ray.policies.gandiva import Gandiva
from tests.builders import homes, joined, scheduler_of, state_of, submitted

both = pytest.mark.parametrize("policy", [make() for make in POLICIES.values()], ids=repr)


def packs(scheduler: Scheduler) -> dict[JobId, str | None]:
    return {job.id: job.assignment.pack for job in scheduler.state.placed if job.assignment is not None}


@both
def test_jobs_run_side_by_side_where_their_shares_fit(policy: Policy) -> None:
    scheduler = scheduler_of(policy, joined(devices=1), submitted("a", share=0.5), submitted("b", share=0.5))
    assert homes(scheduler) == {"a": (0,), "b": (0,)}
    assert len(set(packs(scheduler).values()) - {None}) == 1


def test_packs_take_turns_where_not_all_fit_at_once() -> None:
    jobs = [submitted(job, share=0.5) for job in "abcde"]
    assert packs(scheduler_of(Gandiva(), joined(devices=1), *jobs)) == {
        "a": "0",
        "b": "0",
        "c": "1",
        "d": "1",
        "e": "2",
    }


def test_a_job_that_asks_for_the_whole_device_is_in_no_pack() -> None:
    scheduler = scheduler_of(Gandiva(), joined(devices=1), submitted("a", share=0.5), submitted("whole"))
    assert packs(scheduler) == {"a": "0", "whole": None}


def test_ten_shares_of_a_tenth_fit() -> None:
    scheduler = scheduler_of(Fifo(), joined(devices=1), *(submitted(str(n), share=0.1) for n in range(11)))
    assert set(packs(scheduler).values()) == {"held"}
    assert len(scheduler.state.queued) == 1


def test_the_rest_of_a_pack_joins_another_one_when_some_have_ended() -> None:
    jobs = [submitted(job, share=0.5) for job in "abcd"]
    scheduler = scheduler_of(Gandiva(), joined(devices=1), *jobs)
    assert packs(scheduler) == {"a": "0", "b": "0", "c": "1", "d": "1"}
    stops = scheduler.handle(*(StopRequested(1.0, job, Outcome.STOPPED, "") for job in "ad"))
    assert {decision.job for decision in stops} == {"a", "d"}, "their places are free only when they have ended"
    decisions = scheduler.handle(*(JobEnded(2.0, job, Outcome.STOPPED, "") for job in "ad"))
    assert {decision.why for decision in decisions} == {"runs beside others whose shares fit"}
    assert packs(scheduler)["b"] == packs(scheduler)["c"]


def test_a_parked_job_that_goes_on_finds_its_place_taken_and_gets_another_one() -> None:
    jobs = [submitted(job, share=0.5, until=1) for job in "abc"]
    scheduler = scheduler_of(Gandiva(), joined(devices=1), *jobs)
    scheduler.handle(JobParked(1.0, "a", 1))
    together = packs(scheduler)
    assert together["b"] == together["c"]
    scheduler.handle(JobPromoted(2.0, "a", 2))
    assert sorted(pack or "" for pack in packs(scheduler).values()) == ["0", "1", "1"]


def test_fifo_fills_a_device_before_the_next_job_waits() -> None:
    jobs = [submitted(job, share=share) for job, share in {"a": 0.7, "b": 0.5, "c": 0.3, "d": 0.5, "e": 0.1}.items()]
    scheduler = scheduler_of(Fifo(), joined(devices=2), *jobs)
    assert homes(scheduler) == {"a": (0,), "b": (1,), "c": (0,), "d": (1,)}
    assert scheduler.plan.why["e"] == "is next, and waits for devices"


def test_exclusive_jobs_run_side_by_side_but_take_no_turns() -> None:
    jobs = [submitted(job, share=0.5, exclusive=True) for job in "abc"]
    scheduler = scheduler_of(Gandiva(), joined(devices=1), *jobs)
    assert packs(scheduler) == {"a": "held", "b": "held"}
    assert all(job.assignment is not None and job.assignment.exclusive for job in scheduler.state.placed)
    assert scheduler.plan.why["c"] == "waits for devices that exclusive jobs hold"


def test_jobs_go_where_they_can_run_beside_those_that_are_there() -> None:
    """Not by their number: three of a quarter leave room, one of a whole does not."""
    quarters = [submitted(job, share=0.25) for job in "abc"]
    scheduler = scheduler_of(Gandiva(), joined(devices=2, rehomes=True), submitted("whole"), *quarters)
    assert homes(scheduler) == {"whole": (0,), "a": (1,), "b": (1,), "c": (1,)}


def test_two_exclusive_jobs_that_are_not_packed_together_are_refused() -> None:
    state = state_of(joined(devices=1), submitted("a", share=0.5), submitted("b", share=0.5))
    device = (Device("n", 0),)
    packed = {job: Assignment(device, exclusive=True, pack="0") for job in "ab"}
    assert len(reconcile(state, Plan(packed))) == 2
    with pytest.raises(InvalidPlan, match="'a' and 'b' are both exclusive on n:0"):
        reconcile(state, Plan({job: Assignment(device, exclusive=True) for job in "ab"}))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from([0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 0.75, 0.9, 1.0]), min_size=1, max_size=12))
def test_every_mix_of_shares_starts(shares: list[float]) -> None:
    jobs = [submitted(f"{n:02d}", share=share) for n, share in enumerate(shares)]
    scheduler = scheduler_of(Gandiva(), joined(devices=2, rehomes=True), *jobs)
    assert scheduler.state.queued == ()
