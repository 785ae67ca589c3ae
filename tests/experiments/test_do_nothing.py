from __future__ import annotations

import os

import pytest

from experiments import do_nothing
from experiments._memory import private_bytes
from experiments.do_nothing import Found, Watch, growth, rates

MEMORY = [
    {"driver": 100_000_000, "agent": 50_000_000},
    {"driver": 103_000_000, "agent": 51_000_000},
    {"driver": 112_000_000, "agent": 51_900_000},
]


def test_sides_are_compared_with_ray_tunes_best() -> None:
    found = [Found("function", 10, 20.0), Found("class", 10, 2.5), Found("gandiva", 1000, 25.0)]
    rows = rates(found).splitlines()[2:]
    assert rows == [
        "| Ray Tune, function, defaults | 10 | 20.0 | 0.5 | 0.1 |",
        "| Ray Tune, class, reuse_actors=True | 10 | 2.5 | 4.0 | 1.0 |",
        "| gandiva_ray | 1000 | 25.0 | 40.0 | 10.0 |",
    ]


def test_growth_is_said_of_each_process_in_all_and_after_a_tenth() -> None:
    rows = growth(Found("gandiva", 1000, 25.0, MEMORY)).splitlines()[2:]
    assert rows == [
        "| driver | 100.0 | 103.0 | 112.0 | 12.00 | 10.00 |",
        "| agent | 50.0 | 51.0 | 51.9 | 1.90 | 1.00 |",
    ]


def test_the_memory_is_looked_at_when_a_tenth_has_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(do_nothing, "our_processes", dict)
    moments = iter(MEMORY)
    monkeypatch.setattr(do_nothing, "private_bytes", lambda pids: next(moments))
    watch = Watch(30)
    seen = []
    for n in range(30):
        assert not watch(f"{n:05d}", {"score": 0.0})
        seen.append(len(watch.memory))
    assert seen == [1, 1] + [2] * 28
    watch.look()
    assert watch.memory == MEMORY


def test_a_block_that_a_process_fills_is_its_private_memory() -> None:
    before = private_bytes({"me": os.getpid()})["me"]
    block = bytearray(os.urandom(1 << 20)) * 32
    after = private_bytes({"me": os.getpid()})["me"]
    assert len(block) <= after - before < 2 * len(block)
