from __future__ import annotations

import pytest

from gandiva_ray.core.decisions import Assign, Launch, Stop
from gandiva_ray.core.events import JobEnded, JobPromoted, JobStarted, StopRequested, WeightChanged
from gandiva_ray.core.model import Assignment, Outcome
from gandiva_ray.core.plan import InvalidPlan, Plan, reconcile
from gandiva_ray.core.state import ClusterState
from tests.builders import joined, make_node, state_of, submitted

D0, D1 = make_node().devices
FAR = make_node("m").devices


def running(*jobs: str, rehomes: bool = False) -> ClusterState:
    """Jobs that all live on the first of two devices."""
    state = state_of(joined(rehomes=rehomes), joined("m"))
    for job in jobs:
        state.apply(submitted(job))
        state.apply(Launch(job, Assignment((D0,)), None, ""))
        state.apply(JobStarted(0.0, job))
    return state


def test_a_planned_job_that_queues_is_launched_with_its_milestone():
    state = state_of(joined(), submitted("a", until=3))
    home = Assignment((D1,), 2.0)
    assert reconcile(state, Plan({"a": home}, why={"a": "first"})) == [Launch("a", home, 3, "first")]


def test_a_job_that_is_not_named_keeps_what_it_has():
    state = running("a")
    state.apply(submitted("b"))
    assert reconcile(state, Plan({})) == []


def test_what_a_job_has_already_is_not_ordered_again():
    assert reconcile(running("a"), Plan({"a": Assignment((D0,))})) == []


def test_a_change_is_ordered():
    wished = Assignment((D0,), 0.0)
    assert reconcile(running("a"), Plan({"a": wished}, why={"a": "rest"})) == [Assign("a", wished, None, "rest")]


def test_a_promotion_is_ordered_though_no_plan_names_the_job():
    state = running("a")
    state.apply(JobPromoted(1.0, "a", 9))
    assert reconcile(state, Plan({})) == [Assign("a", Assignment((D0,)), 9, "promoted to step 9")]
    state.apply(Assign("a", Assignment((D0,)), 9, ""))
    state.apply(JobPromoted(1.0, "a", None))
    assert reconcile(state, Plan({})) == [Assign("a", Assignment((D0,)), None, "promoted to its end")]


def test_a_weight_is_the_policys_to_give():
    state = running("a")
    state.apply(WeightChanged(1.0, "a", 5.0, False))
    assert reconcile(state, Plan({})) == []


def test_a_stop_is_ordered_where_the_job_lives():
    state = running("a")
    state.apply(StopRequested(1.0, "a", Outcome.COMPLETED, "used its budget"))
    assert reconcile(state, Plan({})) == [Stop("a", "n", Outcome.COMPLETED, "used its budget")]


def test_devices_are_given_up_before_they_are_given():
    state = running("e", "d", "c", "b", "a", rehomes=True)
    state.apply(submitted("new"))
    state.apply(StopRequested(1.0, "c", Outcome.STOPPED, ""))
    wished = {
        "new": Assignment((D1,)),
        "a": Assignment((D0,), exclusive=True),
        "e": Assignment((D1,), 2.0),
        "d": Assignment((D1,), 3.0),
        "b": Assignment((D0,), 0.0),
    }
    decisions = reconcile(state, Plan(wished))
    assert [(type(decision), decision.job) for decision in decisions] == [
        (Stop, "c"),
        (Assign, "b"),
        (Assign, "d"),
        (Assign, "e"),
        (Assign, "a"),
        (Launch, "new"),
    ]
    assert reconcile(state, Plan(dict(reversed(wished.items())))) == decisions


@pytest.mark.parametrize(
    ("wished", "complaint"),
    [
        ({"x": Assignment((D0,))}, "'x' is planned but was never submitted"),
        ({"gone": Assignment((D0,))}, "'gone' is ended and takes no more orders"),
        ({"stopping": Assignment((D0,))}, "'stopping' is stopping and takes no more orders"),
        ({"pair": Assignment((D0,))}, "'pair' is a gang of 2, planned on n:0"),
        ({"pair": Assignment((D0, FAR[0]))}, "'pair' is planned on n:0, m:0, not all devices of one node"),
        ({"single": Assignment((make_node(devices=3).devices[2],))}, "'single' is planned on n:2, not all devices"),
        ({"single": Assignment(make_node("o").devices[:1])}, "'single' is planned on o:0, not all devices"),
        ({"home": Assignment((FAR[0],))}, "'home' lives on node 'n' and cannot change to 'm'"),
        ({"home": Assignment((D1,))}, "'home' cannot leave its home n:0: node 'n' does not re-home"),
        (
            {"single": Assignment((D1,), exclusive=True), "pair": Assignment((D0, D1), exclusive=True)},
            "'single' and 'pair' are both exclusive on n:1",
        ),
    ],
)
def test_a_plan_that_cannot_be_is_refused_by_name(wished, complaint):
    state = running("home", "gone", "stopping")
    for fact in (
        JobEnded(1.0, "gone", Outcome.COMPLETED, ""),
        StopRequested(1.0, "stopping", Outcome.STOPPED, ""),
        submitted("pair", 2),
        submitted("single"),
    ):
        state.apply(fact)
    with pytest.raises(InvalidPlan, match=complaint):
        reconcile(state, Plan(wished))


def test_a_device_is_exclusive_to_one_though_the_plan_names_only_the_other():
    state = running("a")
    state.apply(Assign("a", Assignment((D0,), exclusive=True), None, ""))
    state.apply(submitted("b"))
    with pytest.raises(InvalidPlan, match="'a' and 'b' are both exclusive on n:0"):
        reconcile(state, Plan({"b": Assignment((D0,), exclusive=True)}))
    shared = {"b": Assignment((D0,), exclusive=True), "a": Assignment((D0,), 0.0)}
    assert [type(decision) for decision in reconcile(state, Plan(shared))] == [Assign, Launch]


def test_a_job_changes_its_device_where_the_node_rehomes():
    moved = Assignment((D1,))
    assert reconcile(running("a", rehomes=True), Plan({"a": moved})) == [Assign("a", moved, None, "planned anew")]
