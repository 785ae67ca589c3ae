from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gandiva_ray.core.decisions import Assign, Launch, Stop
from gandiva_ray.core.events import JobEnded, JobParked, JobPromoted, JobStarted, StopRequested, TimerFired
from gandiva_ray.core.model import Assignment, Job, Kind, Outcome, Status
from gandiva_ray.core.plan import Plan, Policy, reconcile
from gandiva_ray.core.scheduler import Scheduler
from gandiva_ray.core.state import ClusterState, ClusterView, IllegalFact
from gandiva_ray.policies import POLICIES, Fifo, Gandiva
from tests.builders import homes, joined, make_node, random_world, scheduler_of, submitted

D0, D1 = make_node().devices


@dataclass
class Counting:
    """Gandiva, which wants to be woken ten seconds on, and counts how often it is asked."""

    asked: list[float] = field(default_factory=list)

    def plan(self, state: ClusterView) -> Plan:
        self.asked.append(state.now)
        return Plan(Gandiva().plan(state).assignments, until=state.now + 10)


def test_a_job_is_launched_when_it_is_submitted():
    scheduler = scheduler_of(Gandiva(), joined())
    (decision,) = scheduler.handle(submitted("a", weight=2.0, until=3))
    assert decision == Launch("a", Assignment((D0,), 2.0), 3, "a node without jobs")
    assert scheduler.state.jobs["a"].status is Status.LAUNCHING


def test_many_events_of_one_cause_are_planned_once():
    policy = Counting()
    scheduler = scheduler_of(policy, joined())
    scheduler.handle(*(submitted(f"{n:02d}", until=1) for n in range(64)))
    scheduler.handle(*(JobStarted(1.0, f"{n:02d}") for n in range(64)))
    scheduler.handle(*(JobParked(2.0, f"{n:02d}", 1) for n in range(64)))
    asked = len(policy.asked)
    stops = [StopRequested(3.0, f"{n:02d}", Outcome.STOPPED, "lower half") for n in range(32)]
    promotions = [JobPromoted(3.0, f"{n:02d}", 3) for n in range(32, 64)]
    decisions = scheduler.handle(*promotions, *stops)
    assert len(policy.asked) == asked + 1
    assert [type(decision) for decision in decisions] == [Stop] * 32 + [Assign] * 32
    assert [decision.job for decision in decisions] == [f"{n:02d}" for n in range(64)]


def test_what_was_ordered_is_not_ordered_again():
    scheduler = scheduler_of(Gandiva(), joined())
    assert len(scheduler.handle(submitted("a"))) == 1
    assert scheduler.handle(TimerFired(1.0)) == []
    assert len(scheduler.handle(StopRequested(2.0, "a", Outcome.STOPPED, ""))) == 1
    assert scheduler.handle(StopRequested(2.0, "a", Outcome.STOPPED, ""), TimerFired(3.0)) == []


def test_it_asks_to_be_woken_when_its_plan_ends():
    scheduler = Scheduler(Counting())
    assert scheduler.wake_at == math.inf
    scheduler.handle(TimerFired(5.0))
    assert scheduler.wake_at == 15.0
    scheduler.handle(TimerFired(1.0))
    assert scheduler.wake_at == 15.0, "time does not go back"
    assert scheduler_of(Fifo(), joined()).wake_at == math.inf


def test_jobs_wait_for_a_node_and_are_told_why():
    scheduler = scheduler_of(Gandiva(), submitted("a"))
    assert scheduler.plan.why["a"] == "needs 1 devices on one node; the largest node has 0"
    scheduler.handle(joined())
    assert homes(scheduler) == {"a": (0,)}


def test_an_impossible_event_raises_and_those_before_it_stay():
    scheduler = scheduler_of(Gandiva(), joined())
    with pytest.raises(IllegalFact):
        scheduler.handle(submitted("a"), JobStarted(1.0, "b"))
    assert [decision.job for decision in scheduler.handle(TimerFired(2.0))] == ["a"]


# --- very many jobs


def test_a_job_that_ends_is_known_until_the_next_call():
    scheduler = scheduler_of(Gandiva(), joined(), submitted("a"))
    scheduler.handle(JobEnded(1.0, "a", Outcome.COMPLETED, "returned"))
    assert scheduler.state.jobs["a"].outcome is Outcome.COMPLETED
    scheduler.handle(TimerFired(2.0))
    assert list(scheduler.state.jobs) == []


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32))
def test_what_is_forgotten_changes_no_decision(seed: int):
    policy, state = Gandiva(), ClusterState()
    for events, decisions in random_world(policy, seed).history:
        for event in events:
            state.apply(event)
        assert reconcile(state, policy.plan(state)) == decisions
        for decision in decisions:
            state.apply(decision)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32), of_a_thousand=st.integers(0, 1000))
@pytest.mark.parametrize("policy", [make() for make in POLICIES.values()], ids=repr)
def test_a_successor_that_recalls_a_history_goes_on_as_the_first_would_have(
    policy: Policy, seed: int, of_a_thousand: int
):
    history = random_world(policy, seed, happenings=60).history
    died_after = len(history) * of_a_thousand // 1000
    successor = Scheduler(policy)
    for events, decisions in history[:died_after]:
        successor.recall(events, decisions)
    for events, decisions in history[died_after:]:
        assert successor.handle(*events) == decisions


class Watched(Sequence[Job]):
    """A queue that notes whom a policy looks at."""

    def __init__(self, jobs: Sequence[Job], seen: list[str]) -> None:
        self._jobs = jobs
        self._seen = seen

    def __len__(self) -> int:
        return len(self._jobs)

    def __getitem__(self, index):
        self._seen.append(self._jobs[index].id)
        return self._jobs[index]


@dataclass(frozen=True)
class Watching:
    """A policy whose view is watched: the whole queue cannot be had at once."""

    policy: Policy
    seen: list[str]

    def plan(self, state: ClusterView) -> Plan:
        seen = self.seen

        class View:
            queued = property(lambda self: pytest.fail("all queued jobs were asked for"))
            jobs = property(lambda self: pytest.fail("all jobs were asked for"))

            @property
            def queues(self) -> dict[Kind, Watched]:
                return {kind: Watched(jobs, seen) for kind, jobs in state.queues.items()}

            def __getattr__(self, name: str):
                return getattr(state, name)

        return self.policy.plan(View())  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", [make() for make in POLICIES.values()], ids=repr)
@pytest.mark.parametrize("gang", [1, 2])
def test_an_event_costs_the_same_however_many_jobs_wait(policy: Policy, gang: int):
    def looks(waiting: int) -> int:
        """How many queued jobs are looked at while 20 gangs end one by one."""
        seen: list[str] = []
        scheduler = Scheduler(Watching(policy, seen))
        scheduler.handle(joined(devices=2))
        scheduler.handle(*(submitted(f"{n:04d}", gang, exclusive=True) for n in range(waiting)))
        seen.clear()
        for _ in range(20):
            running = scheduler.state.placed[0].id
            scheduler.handle(JobStarted(1.0, running))
            scheduler.handle(JobEnded(1.0, running, Outcome.COMPLETED, "returned"))
        return len(seen)

    assert looks(1000) == looks(100) <= 40 * 6


def test_a_job_of_another_kind_is_found_behind_a_thousand_that_must_wait():
    scheduler = scheduler_of(Gandiva(), joined(devices=3))
    scheduler.handle(*(submitted(f"{n:04d}", 2, exclusive=True) for n in range(1000)))
    scheduler.handle(submitted("small", at=1.0))
    assert homes(scheduler) == {"0000": (0, 1), "small": (2,)}
