from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gandiva_ray.core.decisions import Assign, Launch
from gandiva_ray.core.events import (
    JobEnded,
    JobParked,
    JobPromoted,
    NodeJoined,
    StopRequested,
    TimerFired,
    WeightChanged,
)
from gandiva_ray.core.model import NodeId, Outcome, Status
from gandiva_ray.core.scheduler import Scheduler
from gandiva_ray.policies import Gandiva
from tests.builders import (
    GIB,
    homes,
    joined,
    progressed,
    random_world,
    scheduler_of,
    start_all,
    submitted,
    turn_takers,
    weights,
)


def ended(job: str) -> JobEnded:
    return JobEnded(9.0, job, Outcome.COMPLETED, "")


def exclusively(job: str, exclusive: bool = True) -> WeightChanged:
    return WeightChanged(5.0, job, 1.0, exclusive)


def nodes_of(scheduler: Scheduler) -> dict[str, NodeId]:
    return {job.id: job.home[0].node for job in scheduler.state.placed}


def queued(scheduler: Scheduler) -> list[str]:
    return [job.id for job in scheduler.state.queued]


def holders(scheduler: Scheduler) -> list[str]:
    return [job.id for job in scheduler.state.placed if job.assignment and job.assignment.exclusive]


def gandiva(*events: object) -> Scheduler:
    return scheduler_of(Gandiva(), *events)


def launched(scheduler: Scheduler, event: object) -> Launch:
    (decision,) = scheduler.handle(event)
    assert isinstance(decision, Launch)
    return decision


# --- Algorithm 1, line by line


def test_same_affinity_with_free_devices_comes_first():
    scheduler = gandiva(joined("empty", 4), joined("m", 4), submitted("a"))
    assert nodes_of(scheduler) == {"a": "empty"}
    decision = launched(scheduler, submitted("b"))
    assert (decision.assignment.node, decision.why) == ("empty", "free devices where gangs of its size live")


def test_of_the_same_affinity_the_least_loaded_is_chosen():
    lone, *more = [submitted(job) for job in "abcd"]
    scheduler = gandiva(joined("m", 3), lone, *more[:2], joined("n", 3), more[2], ended("b"))
    assert nodes_of(scheduler) == {"a": "m", "c": "m", "d": "n"}
    assert launched(scheduler, submitted("e")).assignment.node == "n"


def test_a_free_device_counts_more_than_a_light_load():
    heavy, *light = submitted("a", weight=5.0), submitted("b"), submitted("c"), submitted("d")
    scheduler = gandiva(joined("m", 2), heavy, light[0], joined("n", 2), *light[1:])
    scheduler.handle(ended("b"))
    assert nodes_of(scheduler) == {"a": "m", "c": "n", "d": "n"}
    decision = launched(scheduler, submitted("e"))
    assert (decision.assignment.node, decision.assignment.devices[0].index) == ("m", 1)


def test_a_device_that_an_exclusive_job_holds_is_load():
    scheduler = gandiva(joined("m", 2), submitted("b"), submitted("c"), joined("n", 2))
    scheduler.handle(submitted("x", exclusive=True), submitted("a", at=1.0))
    assert nodes_of(scheduler) == {"b": "m", "c": "m", "x": "n", "a": "n"}
    assert launched(scheduler, submitted("d", at=2.0)).assignment.node == "m"


def test_then_a_node_without_jobs():
    scheduler = gandiva(joined("m", 4), submitted("a"), joined("n", 4))
    decision = launched(scheduler, submitted("pair", 2))
    assert (decision.assignment.node, decision.why) == ("n", "a node without jobs")


def test_then_free_devices_of_another_affinity():
    scheduler = gandiva(joined("m", 4), submitted("a"))
    decision = launched(scheduler, submitted("pair", 2))
    assert (decision.assignment.devices, decision.why) == (
        scheduler.state.nodes["m"].devices[1:3],
        "free devices where other gangs live",
    )


def test_then_turns_where_the_affinity_is_the_same():
    pairs = [submitted("p1", 2), submitted("s1"), submitted("s2"), submitted("s3")]
    scheduler = gandiva(joined("m", 2), joined("n", 2), *pairs)
    assert nodes_of(scheduler) == {"p1": "m", "s1": "n", "s2": "n", "s3": "n"}
    decision = launched(scheduler, submitted("p2", 2))
    assert (decision.assignment.node, decision.why) == ("m", "no free devices; gangs of its size live there")


def test_and_at_last_turns_anywhere_rather_than_the_queue():
    scheduler = gandiva(joined("m", 2), submitted("a"), submitted("b"))
    decision = launched(scheduler, submitted("pair", 2))
    assert (decision.assignment.node, decision.why) == ("m", "no free devices; the least load")


def test_a_partly_filled_node_has_height_below_one():
    """Rounded up, as the paper defines height, one job on four devices would make it 1 and rule the node out."""
    scheduler = gandiva(joined("m", 4), submitted("a"), joined("n", 4))
    assert launched(scheduler, submitted("b")).assignment.node == "m"


def test_a_gang_needs_a_node_that_is_large_enough():
    scheduler = gandiva(joined("m", 1), joined("n", 2), submitted("a"), submitted("pair", 2), submitted("trio", 3))
    assert nodes_of(scheduler)["pair"] == "n"
    assert queued(scheduler) == ["trio"]
    assert scheduler.plan.why["trio"] == "needs 3 devices on one node; the largest node has 2"


def test_within_a_node_the_least_loaded_devices_are_taken_by_index():
    scheduler = gandiva(
        joined(devices=3), *(submitted(job, weight=w) for job, w in zip("abcd", (3, 1, 2, 1), strict=True))
    )
    assert homes(scheduler) == {"a": (0,), "b": (1,), "c": (2,), "d": (1,)}
    assert launched(scheduler, submitted("pair", 2)).assignment.devices == scheduler.state.nodes["n"].devices[1:3]


def test_a_parked_job_is_no_load():
    scheduler = gandiva(joined(), *(submitted(job, until=1) for job in "ab"))
    scheduler.handle(JobParked(1.0, "b", 1))
    assert launched(scheduler, submitted("c")).assignment.devices[0].index == 1


# --- weights


def test_a_job_takes_turns_by_its_weight():
    scheduler = gandiva(joined(devices=1), submitted("a", weight=2.0), submitted("b"))
    assert weights(scheduler) == {"a": 2.0, "b": 1.0}
    (decision,) = scheduler.handle(WeightChanged(1.0, "b", 0.5, False))
    assert (type(decision), decision.job, decision.why) == (Assign, "b", "takes turns with weight 0.5")
    assert weights(scheduler) == {"a": 2.0, "b": 0.5}


def test_parking_orders_nothing_and_a_promotion_one_thing():
    scheduler = gandiva(joined(devices=1), submitted("a", until=1))
    assert scheduler.handle(JobParked(1.0, "a", 1)) == []
    (decision,) = scheduler.handle(JobPromoted(1.0, "a", 3))
    assert isinstance(decision, Assign)
    assert decision.until == 3


def test_a_job_with_weight_zero_waits_at_home_or_in_the_queue():
    scheduler = gandiva(joined(devices=1), submitted("a"), submitted("b", weight=0.0))
    assert queued(scheduler) == ["b"]
    assert scheduler.plan.why["b"] == "has weight 0, so it would get no turns"
    scheduler.handle(WeightChanged(1.0, "a", 0.0, False), WeightChanged(1.0, "b", 1.0, False))
    assert weights(scheduler) == {"a": 0.0, "b": 1.0}


# --- exclusive jobs


def test_an_exclusive_job_gets_a_free_device_and_nobody_joins_it():
    scheduler = gandiva(joined(), submitted("x", exclusive=True), submitted("a"), submitted("b"))
    assert homes(scheduler) == {"x": (0,), "a": (1,), "b": (1,)}
    assert holders(scheduler) == ["x"]


def test_on_a_gpu_those_at_home_there_wait_with_weight_zero_and_get_their_weight_back():
    scheduler = gandiva(joined(), *(submitted(job, weight=2.0) for job in "abcd"))
    assert homes(scheduler) == {"a": (0,), "b": (1,), "c": (0,), "d": (1,)}
    decisions = scheduler.handle(exclusively("a"))
    assert [(decision.job, decision.assignment.weight) for decision in decisions] == [("c", 0.0), ("a", 1.0)]
    assert decisions[0].why == "is set aside, for its devices are held by an exclusive job"
    assert homes(scheduler) == {"a": (0,), "b": (1,), "c": (0,), "d": (1,)}
    (decision,) = scheduler.handle(ended("a"))
    assert (decision.job, decision.assignment.weight) == ("c", 2.0)


def test_where_nodes_rehome_those_at_home_there_move_away():
    scheduler = gandiva(joined(rehomes=True), *(submitted(job) for job in "abcd"))
    scheduler.handle(exclusively("a"))
    assert homes(scheduler) == {"a": (0,), "b": (1,), "c": (1,), "d": (1,)}
    assert weights(scheduler) == dict.fromkeys("abcd", 1.0)
    scheduler.handle(exclusively("a", False))
    assert sorted(homes(scheduler).values()) == [(0,), (0,), (1,), (1,)]


def test_exclusive_jobs_on_every_device_leave_the_others_waiting_and_later_return_their_turns():
    scheduler = gandiva(joined(rehomes=True), *(submitted(job) for job in "abcd"))
    scheduler.handle(exclusively("a"), exclusively("b"))
    assert holders(scheduler) == ["a", "b"]
    assert weights(scheduler) == {"a": 1.0, "b": 1.0, "c": 0.0, "d": 0.0}
    scheduler.handle(ended("a"))
    assert homes(scheduler) == {"b": (1,), "c": (0,), "d": (0,)}
    assert weights(scheduler) == {"b": 1.0, "c": 1.0, "d": 1.0}


def test_an_exclusive_job_evicts_no_other_and_waits_in_order():
    arrivals = [submitted(job, at=float(n), exclusive=True) for n, job in enumerate("wxyz")]
    scheduler = gandiva(joined(), *arrivals)
    assert holders(scheduler) == ["w", "x"]
    assert queued(scheduler) == ["y", "z"]
    assert scheduler.plan.why["y"] == "waits for devices that exclusive jobs hold"
    scheduler.handle(ended("x"))
    assert holders(scheduler) == ["w", "y"]


def test_a_waiting_exclusive_gang_is_not_overtaken_by_a_smaller_exclusive_job():
    arrivals = [submitted("x", exclusive=True), submitted("pair", 2, exclusive=True), submitted("z", exclusive=True)]
    scheduler = gandiva(joined(), *arrivals)
    assert queued(scheduler) == ["pair", "z"]
    assert launched(scheduler, submitted("shared")).job == "shared"


def test_a_second_exclusive_job_of_a_gpu_waits_with_weight_zero_at_home():
    scheduler = gandiva(joined(), *(submitted(job) for job in "abcd"))
    scheduler.handle(exclusively("a"))
    scheduler.handle(exclusively("c"))
    assert holders(scheduler) == ["a"]
    assert weights(scheduler)["c"] == 0.0
    scheduler.handle(ended("a"))
    assert holders(scheduler) == ["c"]


def test_a_second_exclusive_job_of_a_core_moves_to_another():
    scheduler = gandiva(joined(devices=3, rehomes=True), *(submitted(job) for job in "abcd"))
    assert homes(scheduler)["d"] == homes(scheduler)["a"]
    scheduler.handle(exclusively("a"), exclusively("d"))
    assert sorted(holders(scheduler)) == ["a", "d"]
    assert len({homes(scheduler)[job] for job in "ad"}) == 2


def test_of_two_that_become_exclusive_on_one_device_the_first_submitted_gets_it():
    scheduler = gandiva(joined(devices=1), submitted("a", weight=0.0), submitted("b", at=1.0))
    scheduler.handle(WeightChanged(2.0, "a", 1.0, False))
    start_all(scheduler)
    assert [job.id for job in scheduler.state.placed] == ["b", "a"]
    scheduler.handle(exclusively("a"), exclusively("b"))
    assert holders(scheduler) == ["a"]


def test_a_promoted_job_whose_core_is_held_goes_to_the_least_loaded_and_moves_nobody_else():
    jobs = [submitted(job, until=1) for job in ("p", "q", "r", "x")]
    scheduler = gandiva(joined(devices=3, rehomes=True), *jobs)
    assert homes(scheduler) == {"p": (0,), "q": (1,), "r": (2,), "x": (0,)}
    scheduler.handle(JobParked(1.0, "p", 1), exclusively("x"))
    scheduler.handle(submitted("s", at=2.0))
    start_all(scheduler)
    assert homes(scheduler) == {"p": (0,), "q": (1,), "r": (2,), "x": (0,), "s": (1,)}
    (decision,) = scheduler.handle(JobPromoted(3.0, "p", 2))
    assert (decision.job, homes(scheduler)["p"]) == ("p", (2,))


def test_a_gang_loses_its_turns_when_one_of_its_devices_is_taken():
    scheduler = gandiva(joined(), submitted("pair", 2), submitted("a"))
    scheduler.handle(exclusively("a"))
    assert weights(scheduler) == {"pair": 0.0, "a": 1.0}


def test_a_parked_exclusive_job_gives_its_devices_up_and_gets_them_back():
    scheduler = gandiva(joined(devices=1), submitted("a", until=1), submitted("b"))
    scheduler.handle(exclusively("a"))
    assert weights(scheduler) == {"a": 1.0, "b": 0.0}
    scheduler.handle(JobParked(6.0, "a", 1))
    assert weights(scheduler) == {"a": 0.0, "b": 1.0}
    scheduler.handle(JobPromoted(7.0, "a", 2))
    assert weights(scheduler) == {"a": 1.0, "b": 0.0}
    assert holders(scheduler) == ["a"]


def test_a_stopping_exclusive_job_holds_its_devices_until_it_has_ended():
    scheduler = gandiva(joined(devices=1), submitted("x", exclusive=True), submitted("y", at=1.0, exclusive=True))
    scheduler.handle(StopRequested(2.0, "x", Outcome.STOPPED, ""))
    assert queued(scheduler) == ["y"]
    scheduler.handle(JobEnded(3.0, "x", Outcome.STOPPED, ""))
    assert holders(scheduler) == ["y"]


def test_a_sharing_job_does_not_come_where_exclusive_jobs_hold_everything():
    scheduler = gandiva(joined(devices=1), submitted("x", exclusive=True), submitted("a", at=1.0))
    assert queued(scheduler) == ["a"]
    scheduler.handle(ended("x"))
    assert weights(scheduler) == {"a": 1.0}


# --- re-homing


def test_no_core_idles_while_another_has_two_jobs():
    scheduler = gandiva(joined(rehomes=True), *(submitted(job) for job in "abcd"))
    decisions = scheduler.handle(ended("b"), ended("d"))
    assert [(type(decision), decision.job, decision.why) for decision in decisions] == [
        (Assign, "c", "moves to the least loaded devices")
    ]
    assert homes(scheduler) == {"a": (0,), "c": (1,)}


def test_one_job_more_on_a_core_is_no_reason_to_move():
    scheduler = gandiva(joined(rehomes=True), *(submitted(job) for job in "abc"))
    assert scheduler.handle(TimerFired(1.0)) == []
    scheduler.handle(ended("c"))
    assert homes(scheduler) == {"a": (0,), "b": (1,)}


def test_a_parked_job_stays_where_it_is():
    scheduler = gandiva(joined(rehomes=True), *(submitted(job, until=1) for job in "abcd"))
    decisions = scheduler.handle(JobParked(1.0, "a", 1), JobParked(1.0, "c", 1))
    assert [decision.job for decision in decisions] == ["d"]
    assert homes(scheduler) == {"a": (0,), "b": (1,), "c": (0,), "d": (0,)}
    # Promoted, they find d on their core: one of the three goes to b's.
    assert len([d for d in scheduler.handle(*(JobPromoted(2.0, job, 2) for job in "ac")) if d.job not in "ac"]) <= 1
    assert sorted(homes(scheduler).values()) == [(0,), (0,), (1,), (1,)]


def test_a_gang_moves_whole():
    scheduler = gandiva(joined(devices=4, rehomes=True), *(submitted(f"p{n}", 2) for n in range(3)))
    assert homes(scheduler) == {"p0": (0, 1), "p1": (2, 3), "p2": (0, 1)}
    scheduler.handle(ended("p1"))
    assert homes(scheduler) == {"p0": (0, 1), "p2": (2, 3)}


def test_the_heaviest_useful_job_moves_rather_than_many_light_ones():
    light = [submitted(f"l{n}") for n in range(3)]
    scheduler = gandiva(joined(devices=1, rehomes=True), submitted("heavy", weight=3.0), *light)
    decisions = scheduler.handle(joined(devices=2, rehomes=True))
    assert [decision.job for decision in decisions] == ["heavy"]


def test_a_gpus_jobs_keep_their_home():
    scheduler = gandiva(joined(), *(submitted(job) for job in "abcd"))
    assert scheduler.handle(ended("b"), ended("d")) == []


SINGLES = st.lists(st.tuples(st.sampled_from([1.0, 0.1, 0.3, 5.0]), st.booleans()), max_size=25)


@settings(deadline=None)
@given(jobs=SINGLES, devices=st.integers(1, 5))
def test_single_jobs_are_spread_and_nothing_is_left_to_move(jobs, devices):
    scheduler = Scheduler(Gandiva())
    scheduler.handle(joined(devices=devices, rehomes=True))
    scheduler.handle(*(submitted(f"{n:02d}", weight=weight) for n, (weight, _) in enumerate(jobs)))
    start_all(scheduler)
    scheduler.handle(*(ended(f"{n:02d}") for n, (_, ends) in enumerate(jobs) if ends))
    takers = [turn_takers(scheduler.state, device) for device in scheduler.state.nodes["n"].devices]
    assert not (min(map(len, takers)) == 0 and max(map(len, takers)) >= 2)
    if len({job.weight for job in scheduler.state.placed}) == 1:
        assert max(map(len, takers)) - min(map(len, takers)) <= 1
    assert scheduler.handle(TimerFired(1.0)) == []


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_no_core_idles_in_any_world(seed):
    state = random_world(Gandiva(), seed).state
    for node in state.nodes.values():
        takers = {device: turn_takers(state, device) for device in node.devices}
        holders = [job for job in state.jobs_at(node.id) if job.assignment and job.assignment.exclusive]
        held = {device for job in holders for device in job.home}
        idle = [device for device in node.devices if not takers[device] and device not in held]
        crowded = [device for device, jobs in takers.items() if len(jobs) > 1 and device not in held]
        movable = [job for device in crowded for job in takers[device] if job.spec.num_devices == 1]
        assert not (node.rehomes and idle and movable), f"{movable[0].id} could move to {idle[0]}"


# --- residency


def crowd(free_bytes: int, jobs: int, **kwargs: object) -> Scheduler:
    return gandiva(joined(free_bytes=free_bytes), *(submitted(f"{n}", at=float(n), **kwargs) for n in range(jobs)))


def test_as_many_jobs_are_resident_as_four_fifths_of_memory_hold():
    scheduler = crowd(int(0.25 * GIB), 5)  # 64 MiB are assumed: three fit in 204 MiB
    assert len(scheduler.state.placed) == 3
    assert queued(scheduler) == ["3", "4"]
    assert scheduler.plan.why["3"] == "is next, and waits for memory"


def test_measured_sizes_replace_the_assumed_one():
    scheduler = crowd(int(0.25 * GIB), 12)
    scheduler.handle(progressed("0", 20 * 2**20))
    assert len(scheduler.state.placed) == 10, "ten times 20 MiB are under 204.8"
    scheduler.handle(progressed("1", 200 * 2**20))
    assert len(scheduler.state.placed) == 10, "nobody is put out"
    scheduler.handle(ended("2"))
    assert queued(scheduler) == ["10", "11"]


def test_parked_and_stopping_jobs_are_resident_and_those_that_end_make_room_in_order():
    scheduler = crowd(int(0.25 * GIB), 6, until=1)
    scheduler.handle(JobParked(9.0, "0", 1), StopRequested(9.0, "1", Outcome.STOPPED, ""))
    assert queued(scheduler) == ["3", "4", "5"]
    scheduler.handle(JobEnded(9.0, "1", Outcome.STOPPED, ""))
    assert queued(scheduler) == ["4", "5"]
    scheduler.handle(ended("0"), ended("2"))
    assert queued(scheduler) == []


def test_an_unmeasured_job_counts_as_its_multi_job_does_or_else_as_all_do():
    free = int(0.5 * GIB)  # 409 MiB may be filled
    scheduler = gandiva(joined(free_bytes=free), submitted("x1", multi_job="x"))
    scheduler.handle(progressed("x1", 150 * 2**20))
    scheduler.handle(submitted("y1", at=1.0, multi_job="y"), submitted("y2", at=2.0, multi_job="y"))
    assert queued(scheduler) == ["y2"]
    start_all(scheduler)
    scheduler.handle(progressed("y1", 100 * 2**20))
    assert queued(scheduler) == []


def test_a_small_job_does_not_overtake_a_large_one_that_waits_for_memory():
    scheduler = gandiva(joined(free_bytes=10 * GIB), submitted("x1", multi_job="x"), submitted("y1", multi_job="y"))
    scheduler.handle(progressed("x1", 5 * GIB), progressed("y1", GIB))
    scheduler.handle(submitted("x2", at=1.0, multi_job="x"), submitted("y2", at=2.0, multi_job="y"))
    assert queued(scheduler) == ["x2", "y2"]


def test_the_assumed_size_is_a_knob():
    scheduler = scheduler_of(Gandiva(assumed_private_bytes=GIB), joined(free_bytes=4 * GIB), *map(submitted, "abcd"))
    assert queued(scheduler) == ["d"]


def test_one_job_is_resident_however_large_it_is():
    scheduler = gandiva(joined(free_bytes=0), submitted("a"), submitted("b", at=1.0))
    assert queued(scheduler) == ["b"]
    scheduler.handle(ended("a"))
    assert queued(scheduler) == []


def test_a_node_with_room_takes_what_another_has_no_room_for():
    scheduler = gandiva(joined("m", free_bytes=0), joined("n"), *map(submitted, "abc"))
    assert nodes_of(scheduler) == {"a": "m", "b": "n", "c": "n"}


@pytest.mark.parametrize("rehomes", [True, False])
def test_at_most_256_jobs_are_resident_on_a_device(rehomes):
    scheduler = Scheduler(Gandiva())
    scheduler.handle(joined(rehomes=rehomes), *(submitted(f"{n:03d}") for n in range(514)))
    assert queued(scheduler) == ["512", "513"]
    start_all(scheduler)
    here = [job.id for job in scheduler.state.placed if job.home[0].index == 0]
    scheduler.handle(*(WeightChanged(1.0, job, 0.0, False) for job in here))
    counts = [len(scheduler.state.jobs_on(device)) for device in scheduler.state.nodes["n"].devices]
    assert counts == [256, 256]


def test_a_node_that_grows_takes_more():
    scheduler = gandiva(joined(devices=1), submitted("pair", 2))
    assert queued(scheduler) == ["pair"]
    event: NodeJoined = joined(devices=2)
    scheduler.handle(event)
    assert scheduler.state.jobs["pair"].status is Status.LAUNCHING


def test_parked_jobs_leave_their_place_to_those_that_their_search_waits_for():
    scheduler = Scheduler(Gandiva())
    scheduler.handle(joined(), *(submitted(f"{n:03d}", until=1) for n in range(600)))
    assert len(queued(scheduler)) == 600 - 512
    start_all(scheduler)
    launched = [job.id for job in scheduler.state.placed]
    scheduler.handle(*(JobParked(1.0, job, 1) for job in launched))
    assert queued(scheduler) == []
