from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gandiva_ray.core.slicer import (
    JobPlaced,
    JobReady,
    JobRemoved,
    QuantumChanged,
    Resume,
    Suspend,
    TimerFired,
    TimeSlicer,
    TurnEnded,
)
from tests.core.slicer_world import World, home


def devices(*indices: int) -> tuple[object, ...]:
    return home(*indices).devices


# --- one device


def test_equal_jobs_take_turns_of_a_quantum_in_order_of_arrival() -> None:
    world = World(quantum=1.0)
    assert world.start({"a": home(0), "b": home(0), "c": home(0)}) == [Resume("a", devices(0))]
    world.run(3.5)
    assert world.log() == ["0 +a", "1 -a", "1 +b", "2 -b", "2 +c", "3 -c", "3 +a"]


def test_a_suspended_job_keeps_its_device_until_it_says_so() -> None:
    slicer = TimeSlicer(1.0)
    slicer.handle(JobPlaced(0, "a", home(0)), JobReady(0, "a"), JobPlaced(0, "b", home(0)), JobReady(0, "b"))
    assert slicer.wake_at == 1.0
    assert slicer.handle(TimerFired(1.0)) == [Suspend("a")]
    assert slicer.running() == {"a": devices(0)}
    assert slicer.wake_at == math.inf
    assert slicer.handle(TimerFired(1.2)) == []
    assert slicer.handle(TurnEnded(1.5, "a", ready=True)) == [Resume("b", devices(0))]
    assert slicer.running() == {"b": devices(0)}
    assert slicer.time_of_turns("a", now=9.0) == 1.5
    assert slicer.time_of_turns("b", now=2.0) == 0.5


def test_the_wait_for_a_boundary_is_charged() -> None:
    world = World(quantum=1.0, delay=lambda job: 1.0 if job == "slow" else 0.0)
    world.start({"slow": home(0), "fast": home(0)})
    world.run(3.5)
    assert world.log() == ["0 +slow", "1 -slow", "2 +fast"]  # at 3 it has had less, and goes on
    world.run(4.0)
    assert world.log()[3:] == ["4 -fast", "4 +slow"]


def test_a_job_alone_on_its_device_just_goes_on() -> None:
    world = World(quantum=1.0)
    world.start({"a": home(0), "elsewhere": home(1)})
    assert world.slicer.wake_at == math.inf
    world.run(100.0)
    assert world.log() == ["0 +a", "0 +elsewhere"]
    assert world.received("a") == 100.0


def test_a_job_alone_for_long_gives_way_at_once_and_owes_nothing() -> None:
    world = World(quantum=1.0)
    world.start({"a": home(0)})
    world.run(50.25)
    world.start({"new": home(0)})
    world.run(52.5)
    assert world.log() == ["0 +a", "50.25 -a", "50.25 +new", "51.25 -new", "51.25 +a", "52.25 -a", "52.25 +new"]


def test_a_newcomer_waits_for_the_end_of_the_quantum() -> None:
    world = World(quantum=1.0)
    world.start({"a": home(0)})
    world.run(0.5)
    assert world.start({"new": home(0)}) == []
    world.run(1.0)
    assert world.log() == ["0 +a", "1 -a", "1 +new"]


def test_a_newcomer_that_weighs_much_more_waits_for_a_boundary_only() -> None:
    world = World(quantum=1.0)
    world.start({"light": home(0, weight=0.01), "lighter": home(0, weight=0.001)})
    world.run(0.25)
    world.start({"heavy": home(0)})
    world.run(0.5)
    world.send(TurnEnded(0.5, "heavy", ready=False))
    world.run(0.75)
    world.send(JobReady(0.75, "heavy"))
    world.run(1.0)
    assert [line for line in world.log() if "heavy" in line] == ["0.25 +heavy", "0.75 +heavy"]
    assert [line for line in world.log() if "-" in line] == ["0.25 -light", "0.75 -lighter"]


def test_weights_divide_the_time() -> None:
    world = World(quantum=1.0)
    world.start({"a": home(0, weight=3.0), "b": home(0, weight=1.0)})
    world.run(400.0)
    assert world.received("a") == pytest.approx(300.0, abs=1.0)
    assert world.log()[:7] == ["0 +a", "1 -a", "1 +b", "2 -b", "2 +a", "5 -a", "5 +b"]


def test_a_heavy_job_is_served_between_light_ones_and_not_after_them_all() -> None:
    world = World(quantum=1.0)
    world.start({"heavy": home(0, weight=4.0)} | {f"light{i}": home(0) for i in range(4)})
    world.run(7.5)
    assert [line.split("+")[1] for line in world.log() if "+" in line] == [
        "heavy", "light0", "heavy", "light1", "heavy", "light2", "light3", "heavy",
    ]  # fmt: skip


def test_a_change_of_weight_changes_nothing_in_what_a_job_is_owed() -> None:
    world = World(quantum=1.0)
    world.start({"a": home(0), "b": home(0, weight=0.01)})
    world.run(2.0)
    assert world.log() == ["0 +a", "1 -a", "1 +b", "2 -b", "2 +a"]
    world.send(JobPlaced(2.0, "b", home(0)))
    world.run(6.5)  # b is ahead by one turn of a second, whatever that weighed
    assert world.log()[5:] == ["4 -a", "4 +b", "5 -b", "5 +a", "6 -a", "6 +b"]


def test_a_parked_job_of_little_weight_comes_back_at_its_new_weight_without_delay() -> None:
    world = World(quantum=1.0)
    world.start({"a": home(0), "b": home(0, weight=0.01)})
    world.run(1.5)
    world.send(TurnEnded(1.5, "b", ready=False))
    world.run(2.0)
    world.send(JobPlaced(2.0, "b", home(0)), JobReady(2.0, "b"))
    world.run(4.5)
    assert world.log()[3:] == ["1.5 +a", "2.5 -a", "2.5 +b", "3.5 -b", "3.5 +a", "4.5 -a", "4.5 +b"]


def test_weight_zero_keeps_the_home_and_takes_no_turns() -> None:
    world = World(quantum=1.0)
    assert world.start({"a": home(0, weight=0.0), "b": home(0)}) == [Resume("b", devices(0))]
    world.run(5.0)
    assert world.send(JobPlaced(5.0, "b", home(0, weight=0.0))) == [Suspend("b")]  # at once, though nobody waits
    world.run(6.0)
    assert world.slicer.running() == {}
    assert world.send(JobPlaced(6.0, "a", home(0))) == [Resume("a", devices(0))]


def test_a_job_of_weight_zero_gets_no_credit_for_that_time() -> None:
    world = World(quantum=1.0)
    world.start({"a": home(0), "b": home(0, weight=0.0)})
    world.run(10.0)
    world.send(JobPlaced(10.0, "b", home(0)))
    world.run(30.0)
    assert world.received("b") == pytest.approx(10.0, abs=1.0)


def test_a_parked_job_gets_no_turns_and_no_credit() -> None:
    world = World(quantum=1.0)
    world.start({"a": home(0), "b": home(0)})
    assert world.send(TurnEnded(0.0, "a", ready=False)) == [Resume("b", devices(0))]
    world.run(10.0)
    assert world.received("b") == 10.0
    assert world.send(JobReady(10.0, "a")) == [Suspend("b")]
    world.run(30.0)
    assert world.received("a") == pytest.approx(10.0, abs=1.0)


def test_parking_at_every_boundary_earns_nothing() -> None:
    world = World(quantum=1.0)
    world.start({"honest": home(0), "parks": home(0)})
    for _ in range(1000):
        if "parks" in world.slicer.running() and "parks" not in world.asked:
            world.send(TurnEnded(world.now, "parks", ready=False))
            world.send(JobReady(world.now, "parks"))
        world.run(world.now + 0.1)
    assert world.received("parks") <= 51.0


def test_a_job_placed_but_not_ready_gets_no_turn() -> None:
    slicer = TimeSlicer(1.0)
    assert slicer.handle(JobPlaced(0, "a", home(0))) == []
    assert slicer.handle(JobReady(1, "a")) == [Resume("a", devices(0))]


def test_a_turn_may_end_unasked() -> None:
    world = World(quantum=1.0)
    world.start({"a": home(0), "b": home(0)})
    world.run(0.25)
    assert world.send(TurnEnded(0.25, "a", ready=True)) == [Resume("b", devices(0))]
    assert world.received("a") == 0.25


def test_a_removed_job_frees_its_devices_whatever_its_state() -> None:
    world = World(quantum=1.0, delay=lambda job: 5.0)
    world.start({"a": home(0), "b": home(0)})
    world.run(1.5)
    assert world.asked == {"a"}
    assert world.send(JobRemoved(1.5, "a")) == [Resume("b", devices(0))]
    assert world.slicer.handle(TurnEnded(1.6, "a", ready=True)) == []  # late, absorbed


def test_a_quantum_may_change_under_running_turns() -> None:
    world = World(quantum=10.0)
    world.start({"a": home(0), "b": home(0)})
    world.run(2.0)
    assert world.send(QuantumChanged(2.0, 3.0)) == []
    assert world.slicer.wake_at == 3.0
    assert world.send(QuantumChanged(2.0, 1.0)) == [Suspend("a")]


def test_impossible_events_say_what_is_wrong() -> None:
    slicer = TimeSlicer(1.0)
    with pytest.raises(ValueError, match="'a': ready, but it has no home here"):
        slicer.handle(JobReady(0, "a"))
    with pytest.raises(ValueError, match="'a': removed, but it has no home here"):
        slicer.handle(JobRemoved(0, "a"))
    slicer.handle(JobPlaced(5, "a", home(0)))
    with pytest.raises(ValueError, match="'a': its turn ended, but it has none"):
        slicer.handle(TurnEnded(5, "a", ready=True))
    with pytest.raises(ValueError, match="older than"):
        slicer.handle(TimerFired(4.0))
    with pytest.raises(ValueError, match="'b': time of turns asked"):
        slicer.time_of_turns("b", 0.0)
    for quantum in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="a quantum is more than 0"):
            TimeSlicer(quantum)
        with pytest.raises(ValueError, match="a quantum is more than 0"):
            slicer.handle(QuantumChanged(5, quantum))


# --- gangs


def test_a_gang_is_whole_or_not_at_all() -> None:
    world = World(quantum=1.0)
    world.start({"a": home(0), "b": home(1), "gang": home(0, 1)})
    assert world.slicer.running() == {"a": devices(0), "b": devices(1)}
    world.run(2.5)
    assert world.log() == [
        "0 +a", "0 +b", "1 -a", "1 -b", "1 +gang", "2 -gang", "2 +a", "2 +b",
    ]  # fmt: skip


def test_devices_wait_for_the_least_served_gang() -> None:
    world = World(quantum=1.0, delay=lambda job: 0.5 if job == "slow" else 0.0)
    world.start({"fast": home(0), "slow": home(1), "gang": home(0, 1), "late": home(0)})
    world.run(1.25)
    assert world.slicer.running() == {"slow": devices(1)}  # device 0 is kept for the gang, not given to `late`
    world.run(1.5)
    assert world.slicer.running() == {"gang": devices(0, 1)}


def test_turns_end_early_for_a_gang_that_is_served_least() -> None:
    world = World(quantum=1.0)
    world.start({"a": home(0)})
    world.run(0.5)
    world.start({"b": home(1), "gang": home(0, 1)})  # b has its turn until 1.5
    world.run(1.0)
    assert world.log()[-3:] == ["1 -a", "1 -b", "1 +gang"]


def test_no_device_waits_for_a_gang_that_must_wait_for_another() -> None:
    world = World(quantum=1.0)
    world.start({"one": home(0, 1), "two": home(1, 2), "single": home(2)})
    assert world.slicer.running() == {"one": devices(0, 1), "single": devices(2)}
    world.run(1.0)
    assert world.slicer.running() == {"two": devices(1, 2)}


def test_gangs_in_a_ring_take_turns_of_a_quantum() -> None:
    world = World(quantum=1.0)
    world.start({"a": home(0, 1), "b": home(1, 2), "c": home(2, 0)})
    world.run(4.5)
    assert [line for line in world.log() if "+" in line] == ["0 +a", "1 +c", "2 +b", "3 +a", "4 +c"]


def test_a_gang_is_not_starved_by_gangs_that_alternate_on_its_devices() -> None:
    world = World(quantum=1.0)
    world.start({"left": home(0, 2)})
    world.run(0.5)
    world.start({"right": home(1, 3), "left2": home(0, 2), "right2": home(1, 3), "middle": home(0, 1)})
    world.run(300.0)
    assert world.received("middle") > 90.0


# --- exclusive jobs


def test_an_exclusive_job_comes_first_and_is_never_suspended() -> None:
    world = World(quantum=1.0)
    world.start({"a": home(0), "b": home(0)})
    world.run(0.5)
    assert world.start({"x": home(0, exclusive=True)}) == [Suspend("a")]
    world.run(0.5)
    assert world.slicer.running() == {"x": devices(0)}
    assert world.slicer.wake_at == math.inf
    world.run(100.0)
    assert world.received("x") == 99.5
    assert world.send(JobRemoved(100.0, "x")) == [Resume("b", devices(0))]


def test_while_an_exclusive_job_is_parked_others_take_turns() -> None:
    world = World(quantum=1.0)
    world.start({"x": home(0, 1, exclusive=True), "a": home(0)})
    assert world.slicer.running() == {"x": devices(0, 1)}
    assert world.send(TurnEnded(0.0, "x", ready=False)) == [Resume("a", devices(0))]
    assert world.send(JobReady(0.0, "x")) == [Suspend("a")]


def test_a_job_that_is_no_longer_exclusive_is_sliced_again_without_debt() -> None:
    world = World(quantum=1.0)
    world.start({"x": home(0, exclusive=True), "a": home(0)})
    world.run(50.0)
    assert world.send(JobPlaced(50.0, "x", home(0))) == [Suspend("x")]
    world.run(60.0)
    assert world.received("a") == pytest.approx(5.0, abs=1.0)


def test_of_two_exclusive_jobs_the_one_that_runs_stays() -> None:
    world = World(quantum=1.0)
    world.start({"first": home(0, exclusive=True)})
    assert world.start({"second": home(0, 1, exclusive=True), "single": home(1)}) == [Resume("single", devices(1))]
    world.run(10.0)
    assert world.send(JobRemoved(10.0, "first")) == [Suspend("single")]
    world.run(10.0)
    assert world.slicer.running() == {"second": devices(0, 1)}


# --- moves


def test_a_job_with_a_turn_is_suspended_before_it_goes_on_elsewhere() -> None:
    world = World(quantum=1.0, delay=lambda job: 0.25)
    world.start({"a": home(0), "b": home(0)})
    assert world.send(JobPlaced(0.0, "a", home(1))) == [Suspend("a")]
    assert world.slicer.running() == {"a": devices(0)}
    world.run(1.0)
    assert world.log() == ["0 +a", "0 -a", "0.25 +a", "0.25 +b"]
    assert world.slicer.running() == {"a": devices(1), "b": devices(0)}
    assert world.received("a") == 1.0


def test_a_job_that_moves_takes_along_what_it_owes() -> None:
    world = World(quantum=1.0)
    world.start({"a": home(0), "light": home(0, weight=0.1), "c": home(1), "d": home(1)})
    world.run(2.0)
    assert world.received("light") == 1.0
    world.send(JobPlaced(2.0, "light", home(1, weight=0.1)))
    world.run(9.0)
    assert world.received("light") == 1.0  # a second of device 1 is its part of 21 seconds there
    world.run(30.0)
    assert world.received("light") == 2.0


def test_a_change_of_weight_needs_no_switch() -> None:
    world = World(quantum=1.0)
    world.start({"a": home(0), "b": home(0)})
    assert world.send(JobPlaced(0.0, "a", home(0, weight=2.0))) == []
    assert world.send(JobPlaced(0.0, "a", home(0, exclusive=True))) == []
    world.run(50.0)
    assert world.log() == ["0 +a"]


# --- packs


def test_packed_jobs_run_at_the_same_moment_and_acknowledge_each_on_its_own() -> None:
    delays = {"p": 0.25, "q": 0.5, "a": 0.0}
    world = World(quantum=1.0, delay=delays.__getitem__)
    world.start({"p": home(0, pack="pair"), "q": home(0, pack="pair"), "a": home(0, weight=2.0)})
    world.run(2.0)
    assert world.log() == ["0 +p", "0 +q", "1 -p", "1 -q", "1.5 +a"]


def test_a_member_that_parks_leaves_the_others_running() -> None:
    world = World(quantum=1.0)
    world.start({"p": home(0, pack="pair"), "q": home(0, pack="pair"), "a": home(0)})
    assert world.send(TurnEnded(0.0, "p", ready=False)) == []
    assert world.slicer.running() == {"q": devices(0)}
    assert world.send(JobReady(0.0, "p")) == [Resume("p", devices(0))]
    assert world.send(JobRemoved(0.0, "q")) == []
    assert world.send(JobRemoved(0.0, "p")) == [Resume("a", devices(0))]


def test_a_pack_has_the_weight_of_its_ready_members() -> None:
    world = World(quantum=1.0)
    world.start({"p": home(0, pack="pair"), "q": home(0, pack="pair"), "a": home(0)})
    world.run(300.0)
    assert world.received("p") == world.received("q") == pytest.approx(200.0, abs=1.0)


def test_a_job_leaves_its_pack_at_a_boundary() -> None:
    world = World(quantum=1.0)
    world.start({"p": home(0, pack="pair"), "q": home(0, pack="pair")})
    assert world.send(JobPlaced(0.0, "q", home(0))) == [Suspend("q")]
    world.run(0.5)
    assert world.slicer.running() == {"p": devices(0)}
    world.run(1.0)
    assert world.slicer.running() == {"q": devices(0)}


# --- rates


def test_rates_are_weighted_max_min_shares() -> None:
    world = World()
    world.start(
        {"gang": home(0, 1, weight=2.0), "busy1": home(1), "busy2": home(1, weight=5.0), "free": home(0)}
        | {"p": home(2, pack="pair"), "q": home(2, pack="pair"), "alone": home(2), "zero": home(2, weight=0.0)}
        | {"x": home(3, exclusive=True), "blocked": home(3)}
    )
    world.send(JobPlaced(0.0, "not ready", home(2)))
    assert world.slicer.rates() == pytest.approx(
        {"gang": 0.25, "busy1": 0.125, "busy2": 0.625, "free": 0.75}
        | {"p": 2 / 3, "q": 2 / 3, "alone": 1 / 3, "zero": 0.0, "x": 1.0, "blocked": 0.0}
    )


# --- what must hold in every world

WEIGHTS = st.sampled_from([0.1, 0.5, 1.0, 1.0, 1.0, 2.0, 3.0, 10.0])
DELAYS = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20)


def delays(values: list[float], longest: float):
    ring = itertools.cycle(values)
    return lambda job: longest * next(ring)


@settings(deadline=None, max_examples=150)
@given(st.lists(WEIGHTS, min_size=2, max_size=8), DELAYS, st.sampled_from([0.0, 0.1, 1.0]))
def test_a_job_stays_within_one_quantum_and_one_mini_batch_of_its_share(
    weights: list[float], waits: list[float], mini_batch: float
) -> None:
    quantum, total = 1.0, sum(weights)
    homes = {f"job{i}": home(0, weight=weight) for i, weight in enumerate(weights)}

    def watch(world: World) -> None:
        for job, at_home in homes.items():
            if job in world.homes:
                share = at_home.weight / total
                ahead = world.received(job) - share * world.now
                assert -(quantum + mini_batch) - 1e-6 <= ahead <= (quantum + mini_batch) * (1 - share) + 1e-6

    world = World(quantum, delays(waits, mini_batch), watch)
    world.start(homes)
    world.run(60.0)
    assert sum(world.received(job) for job in homes) == pytest.approx(60.0)  # the device never idles


@settings(deadline=None, max_examples=150)
@given(
    st.lists(WEIGHTS, min_size=2, max_size=6),
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.3, 1.0, 4.0]), st.integers(0, 5), WEIGHTS | st.just(0.001)), max_size=20
    ),
    DELAYS,
    st.sampled_from([0.0, 0.1, 1.0]),
)
def test_a_job_stays_near_its_share_however_weights_change(
    weights: list[float], changes: list[tuple[float, int, float]], waits: list[float], mini_batch: float
) -> None:
    world = World(1.0, delays(waits, mini_batch))
    now = {f"job{i}": weight for i, weight in enumerate(weights)}
    world.start({job: home(0, weight=weight) for job, weight in now.items()})
    owed = dict.fromkeys(now, 0.0)
    for gap, number, weight in [*changes, (20.0, 0, 1.0)]:
        world.run(world.now + gap)
        for job in owed:
            owed[job] += gap * now[job] / sum(now.values())
            assert abs(world.received(job) - owed[job]) <= 2 * (1.0 + mini_batch) + 1e-6, job
        if (job := f"job{number}") in now:
            now[job] = weight
            world.send(JobPlaced(world.now, job, home(0, weight=weight)))


SINGLES = st.lists(st.tuples(WEIGHTS, st.sampled_from([(0,), (1,), (2,)])), min_size=1, max_size=7)
GANGS = st.lists(st.tuples(WEIGHTS, st.sampled_from([(0, 1), (0, 2), (0, 1, 2)])), min_size=1, max_size=3)


@settings(deadline=None, max_examples=40)
@given(SINGLES, GANGS)
def test_long_run_rates_are_those_of_the_turns(singles, gangs) -> None:
    world = World(quantum=1.0)
    world.start({f"job{i}": home(*where, weight=weight) for i, (weight, where) in enumerate(singles + gangs)})
    world.run(500.0)
    for job, rate in world.slicer.rates().items():
        assert world.received(job) / 500.0 == pytest.approx(rate, abs=0.02), job


@settings(deadline=None, max_examples=60)
@given(SINGLES, WEIGHTS, DELAYS, st.sampled_from([0.0, 0.1, 1.0]))
def test_a_gang_gets_at_least_its_weights_part_of_its_busiest_device(singles, weight, waits, mini_batch) -> None:
    homes = {f"job{i}": home(*where, weight=w) for i, (w, where) in enumerate(singles)} | {
        "gang": home(0, 1, weight=weight)
    }
    load = [sum(a.weight for a in homes.values() if device in a.devices) for device in devices(0, 1)]

    def watch(world: World) -> None:
        if "gang" in world.homes:
            worst[0] = max(worst[0], (weight / max(load) * world.now - world.received("gang")) / (1.0 + mini_batch))

    worst = [0.0]
    world = World(1.0, delays(waits, mini_batch), watch)
    world.start(homes)
    world.run(100.0)
    assert worst[0] <= 2.0


HOMES = st.builds(
    home,
    st.integers(0, 2),
    weight=st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0]),
    exclusive=st.sampled_from([False, False, False, True]),
    pack=st.sampled_from([None, None, "pack"]),
) | st.builds(
    lambda where, weight, exclusive: home(*where, weight=weight, exclusive=exclusive),
    st.sampled_from([(0, 1), (1, 2), (0, 2), (0, 1, 2), (1, 0)]),
    st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    st.sampled_from([False, False, False, True]),
)
JOBS = st.sampled_from([f"job{i}" for i in range(7)])
STEPS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0, 0.1, 0.7, 1.0, 2.5]),
        JOBS,
        HOMES | st.sampled_from(["ready", "end", "park", "remove"]),
    ),
    max_size=40,
)


def play(steps, waits: list[float]) -> World:
    """A world after these steps: a home places the job there; what does not fit the job's state is left out."""
    world = World(1.0, delays(waits, 0.4))
    for gap, job, step in steps:
        world.run(world.now + gap)
        if not isinstance(step, str):
            world.send(JobPlaced(world.now, job, step))
        elif step == "ready" and job in world.homes:
            world.send(JobReady(world.now, job))
        elif step == "remove" and job in world.homes:
            world.send(JobRemoved(world.now, job))
        elif step in ("end", "park") and job in world.busy:
            world.send(TurnEnded(world.now, job, ready=step == "end"))
    return world


@settings(deadline=None, max_examples=300)
@given(STEPS, DELAYS)
def test_every_job_that_can_run_has_its_turns_whatever_happened_before(steps, waits) -> None:
    world = play(steps, waits)
    world.run(world.now + 1.0)
    before = {job: world.received(job) for job, rate in world.slicer.rates().items() if rate > 0}
    began = world.now
    world.run(began + 60.0)
    for job, time in before.items():
        assert world.received(job) > time, job


@settings(deadline=None, max_examples=100)
@given(st.lists(HOMES, min_size=4, max_size=7), STEPS, DELAYS)
def test_exclusive_jobs_are_never_suspended_where_they_stay(homes, steps, waits) -> None:
    """`World` checks it at each turn; here it is crowded from the start."""
    crowd = [(gap, f"job{i}", step) for i, at in enumerate(homes) for gap, step in ((0.0, at), (0.1, "ready"))]
    world = play(crowd + steps, waits)
    world.run(world.now + 10.0)


@settings(deadline=None, max_examples=50)
@given(STEPS, DELAYS)
def test_the_same_events_give_the_same_turns(steps, waits) -> None:
    assert play(steps, waits).turns == play(steps, waits).turns
