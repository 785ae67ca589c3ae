"""What every policy must do, whatever the world is like."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gandiva_ray.core.events import JobParked, JobPromoted, JobStarted, StopRequested
from gandiva_ray.core.model import JobId, Outcome, Status
from gandiva_ray.core.plan import Policy
from gandiva_ray.core.scheduler import Scheduler
from gandiva_ray.policies import POLICIES
from tests.builders import World, joined, random_world, snapshot, submitted

pytestmark = pytest.mark.parametrize("policy", [make() for make in POLICIES.values()], ids=repr)
worlds = settings(deadline=None, max_examples=60)
seeds = st.integers(0, 2**32)


@worlds
@given(seed=seeds)
def test_every_job_ends_and_no_order_is_unsound(policy: Policy, seed: int):
    """`World` checks after each call: whole gangs, kept homes, one holder a device, nothing left to order."""
    random_world(policy, seed).settle()


@worlds
@given(seed=seeds)
def test_planning_changes_nothing_and_the_same_question_gets_the_same_plan(policy: Policy, seed: int):
    state = random_world(policy, seed).state
    before = snapshot(state)
    assert policy.plan(state) == policy.plan(state)
    assert snapshot(state) == before


@worlds
@given(seed=seeds)
def test_the_same_events_give_the_same_decisions(policy: Policy, seed: int):
    again = Scheduler(policy)
    for events, decisions in random_world(policy, seed).history:
        assert again.handle(*events) == decisions


@worlds
@given(seed=seeds)
def test_a_job_that_waits_is_told_why_or_has_somebody_before_it(policy: Policy, seed: int):
    scheduler = random_world(policy, seed).scheduler
    if scheduler.state.queued:
        assert any(job.id in scheduler.plan.why for job in scheduler.state.queued)


def test_a_job_that_is_larger_than_every_node_waits_by_name_and_holds_nobody_up(policy: Policy):
    scheduler = Scheduler(policy)
    scheduler.handle(joined(devices=2), joined("m", 4), submitted("huge", 5), submitted("late"))
    assert scheduler.state.jobs["huge"].status is Status.QUEUED
    assert scheduler.plan.why["huge"] == "needs 5 devices on one node; the largest node has 4"
    assert scheduler.state.jobs["late"].status is Status.LAUNCHING


def halving(policy: Policy) -> World:
    """64 trials on 4 cores in rungs of 1, 2, 4 ... reports: each rung is waited for, then its half goes on."""
    world = World(policy, random.Random(0))
    world.tell(joined(devices=4, rehomes=True))
    trials: list[JobId] = [f"{n:02d}" for n in range(64)]
    world.tell(*(submitted(trial, until=1) for trial in trials))
    milestone = 1
    while len(trials) > 1:
        for _ in range(1000):
            _let_all_report(world)
            if all(world.state.jobs[trial].status is Status.PARKED for trial in trials):
                break
        else:
            raise AssertionError("a rung never filled")
        milestone *= 2
        kept = world.chance.sample(trials, len(trials) // 2)
        stops = [StopRequested(0.0, trial, Outcome.STOPPED, "lower half") for trial in trials if trial not in kept]
        trials = kept
        world.tell(*stops, *(JobPromoted(0.0, trial, milestone) for trial in trials))
    return world


def _let_all_report(world: World) -> None:
    for job in list(world.orders):
        while job in world.orders:
            world.deliver_order(job)
    for job, process in world.processes.items():
        process.length = 10_000
        world.run(job)
    world.deliver_news(1000)


def test_moves_are_few_in_a_halving_whose_rungs_are_waited_for(policy: Policy):
    world = halving(policy)
    assert world.moves <= 16, "at most a quarter as many moves as there are trials"
    assert (
        sum(isinstance(event, JobParked) for events, _ in world.history for event in events) == 64 + 32 + 16 + 8 + 4 + 2
    )


def test_nothing_moves_where_moving_is_not_free(policy: Policy):
    world = World(policy, random.Random(0))
    world.tell(joined(devices=4), *(submitted(f"{n:02d}") for n in range(16)))
    world.tell(*(JobStarted(0.0, job.id) for job in world.state.placed))
    leaving = [job for job in world.state.placed if job.home[0].index > 0]
    world.tell(*(StopRequested(0.0, job.id, Outcome.STOPPED, "") for job in leaving))
    assert world.moves == 0
