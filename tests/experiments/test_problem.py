from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from experiments import _problem, demo
from gandiva_ray.core.model import Outcome
from gandiva_ray.results import Result, ResultGrid
from gandiva_ray.run_log import Reports, RunLog
from workloads import digits


def test_everybody_gets_the_same_configurations() -> None:
    configs = _problem.configurations(64)
    assert configs == _problem.configurations(64)
    assert configs[:8] == _problem.configurations(8)
    assert len({config["seed"] for config in configs}) == 64
    assert all(set(config) == {"lr", "optimizer", "momentum", "width", "batch_size", "seed"} for config in configs)
    assert min(config["lr"] for config in configs) < 1e-4 < 0.1 < max(config["lr"] for config in configs)


def test_a_configuration_learns_the_same_wherever_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[dict[str, float]] = []
    monkeypatch.setattr(digits.tune, "report", reported.append)
    config = {**_problem.configurations(1)[0], "width": 4, "batch_size": 128, "epochs": 1}
    _problem.train(config, digits.load())
    _problem.train(config, digits.load())
    _problem.train({**config, "seed": 1}, digits.load())
    assert reported[0] == reported[1] != reported[2]


def write_log(folder: Path, reports: list[tuple[float, str, float]]) -> None:
    """Reports as (at, trial, accuracy), each the next step of its trial."""
    now = [0.0]
    log = RunLog(folder, lambda: now[0])
    steps: dict[str, int] = {}
    for at, trial, accuracy in reports:
        now[0] = at
        steps[trial] = steps.get(trial, 0) + 1
        line: dict[str, Any] = {"what": "report", "trial": trial, "step": steps[trial], "device_seconds": 0.0}
        log.write({**line, "metrics": {"accuracy": accuracy}})
    log.close()


def test_progress_counts_the_epochs_and_finds_the_first_at_the_target(tmp_path: Path) -> None:
    write_log(tmp_path, [(1.0, "00000", 0.5), (2.0, "00001", 0.98), (3.5, "00000", 0.99), (4.0, "00001", 1.0)])
    assert _problem.progress(str(tmp_path)) == _problem.Progress(epochs=4, first=3.5)


def test_progress_says_where_nobody_reached_the_target(tmp_path: Path) -> None:
    write_log(tmp_path, [(1.0, "00000", 0.9899)])
    assert _problem.progress(str(tmp_path)).first is None


def test_the_demo_says_what_it_found(tmp_path: Path) -> None:
    write_log(tmp_path, [(1.0, "00000", 0.9), (2.0, "00001", 0.995), (3.0, "00001", 0.985)])

    def result(trial: str, accuracy: float, outcome: Outcome, lr: float) -> Result:
        return Result(trial, {"lr": lr}, {"accuracy": accuracy}, outcome, "", None, None, 1, 0.0, Reports(tmp_path))

    trials = (result("00000", 0.9, Outcome.STOPPED, 0.5), result("00001", 0.985, Outcome.COMPLETED, 0.1))
    text = demo.summary(ResultGrid(trials, "accuracy", "max", str(tmp_path), "done"), seconds=math.pi)
    assert text.splitlines()[:3] == [
        "2 configurations in 3.1 s: 3 epochs, 1 stopped early",
        "first at accuracy 0.99: after 2.0 s",
        "best: trial 00001, accuracy 0.9950, {'lr': 0.1}",
    ]
