from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from workloads import digits, input_bound

GOOD: dict[str, Any] = {"lr": 0.1, "momentum": 0.5, "epochs": 2, "latency": 0.0}


def run(seed: int, **changes: Any) -> list[dict[str, float]]:
    torch.manual_seed(seed)
    return list(input_bound.steps({**GOOD, **changes}, digits.load()))


def test_the_network_learns_on_a_small_budget() -> None:
    first, last = run(0)
    assert last["loss"] < first["loss"] / 2


def test_the_seed_alone_decides_the_numbers_and_not_the_latency() -> None:
    assert run(1) == run(1, latency=0.001)
    assert run(1) != run(2)


def test_it_spends_more_time_waiting_than_computing() -> None:
    digits.load()
    wall, cpu = time.perf_counter(), time.process_time()
    run(0, latency=input_bound.LATENCY, epochs=1)
    assert time.process_time() - cpu < 0.6 * (time.perf_counter() - wall)


def test_training_reports_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[dict[str, float]] = []
    monkeypatch.setattr(input_bound.tune, "report", reported.append)
    torch.manual_seed(0)
    input_bound.train(GOOD)
    assert reported == run(0)
