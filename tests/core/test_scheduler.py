from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest

from gandiva_ray.core.decisions import Assign, Launch, Stop
from gandiva_ray.core.events import JobParked, JobPromoted, JobStarted, StopRequested, TimerFired
from gandiva_ray.core.model import Assignment, Outcome, Status
from gandiva_ray.core.plan import Plan
from gandiva_ray.core.scheduler import Scheduler
from gandiva_ray.core.state import ClusterView, IllegalFact
from gandiva_ray.policies import Fifo, Gandiva
from tests.builders import homes, joined, make_node, scheduler_of, submitted

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
