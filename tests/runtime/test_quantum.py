import pytest

from gandiva_ray.runtime.quantum import LONGEST, REMEMBERED, SHORTEST, QuantumTuner


def turns(tuner: QuantumTuner, *, hops: float, mini_batches: int, mini_batch: float, count: int = REMEMBERED) -> None:
    for _ in range(count):
        tuner.turn_begins("j", 100.0, boundaries=7)
        tuner.turn_began("j", 100.0 + hops)
        tuner.turn_ended("j", 100.0 + mini_batches * mini_batch, boundaries=7 + mini_batches)


def test_it_is_100_switches_of_five_times_their_hops_where_mini_batches_are_short() -> None:
    tuner = QuantumTuner(None)
    turns(tuner, hops=0.0006, mini_batches=100, mini_batch=0.002)
    assert tuner.tune()
    assert tuner.quantum == pytest.approx(0.3)


def test_it_is_one_mini_batch_where_those_are_long() -> None:
    tuner = QuantumTuner(None)
    turns(tuner, hops=0.0006, mini_batches=3, mini_batch=2.0)
    assert tuner.tune()
    assert tuner.quantum == pytest.approx(2.0)


def test_it_stays_within_its_bounds() -> None:
    tuner = QuantumTuner(None)
    turns(tuner, hops=1e-6, mini_batches=10, mini_batch=1e-6)
    assert tuner.tune()
    assert tuner.quantum == SHORTEST
    turns(tuner, hops=1e3, mini_batches=1, mini_batch=1e3)
    assert tuner.tune()
    assert tuner.quantum == LONGEST


def test_a_few_slow_switches_among_many_do_not_count() -> None:
    tuner = QuantumTuner(None)
    turns(tuner, hops=0.5, mini_batches=100, mini_batch=0.002, count=10)
    turns(tuner, hops=0.0002, mini_batches=100, mini_batch=0.002, count=20)
    tuner.tune()
    assert tuner.quantum == pytest.approx(0.1)


def test_two_turns_say_nothing_yet() -> None:
    tuner = QuantumTuner(None)
    turns(tuner, hops=0.5, mini_batches=100, mini_batch=0.002, count=2)
    assert not tuner.tune()


def test_noise_does_not_change_it() -> None:
    tuner = QuantumTuner(None)
    turns(tuner, hops=0.0006, mini_batches=100, mini_batch=0.002)
    tuner.tune()
    turns(tuner, hops=0.00066, mini_batches=100, mini_batch=0.002)
    assert not tuner.tune()


def test_a_fixed_quantum_is_left_alone() -> None:
    tuner = QuantumTuner(0.5)
    turns(tuner, hops=0.1, mini_batches=1, mini_batch=50.0)
    assert not tuner.tune()
    assert tuner.quantum == 0.5
