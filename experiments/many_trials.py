"""256 trials at once on two devices: all of them report within one round, none is lost, and their memory is stated.

A round is the number of trials a device times the quantum. It is counted from when all are up: their starting takes the
same cores. Every report must have come, once.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

import gandiva_ray as tune
from gandiva_ray.core.model import Outcome
from gandiva_ray.run_log import read_log
from workloads import digits

CONFIG: dict[str, Any] = {"lr": 0.1, "optimizer": "sgd", "momentum": 0.5, "width": 4, "batch_size": 128, "model": "mlp"}


def trial(config: Mapping[str, Any], data: digits.Data) -> None:
    for metrics in digits.steps(config, data):
        tune.report({**metrics, "private_bytes": psutil.Process().memory_full_info().uss})


@dataclass(frozen=True, slots=True)
class Found:
    """`starting`: seconds in which the trials came up, one after the other; `first_reports`: seconds from then until
    each had reported; `private_bytes`: what the trials did not share, each at its last report, in all.
    """

    starting: float
    first_reports: float
    reports: int
    completed: int
    private_bytes: int


def run(trials: int, steps: int, devices: int, quantum: float) -> Found:
    tune.init(devices=devices, quantum=quantum)
    with tempfile.TemporaryDirectory() as storage:
        results = tune.Tuner(
            partial(trial, data=digits.load()),
            param_space={**CONFIG, "epochs": steps},
            tune_config=tune.TuneConfig(
                metric="accuracy",
                mode="max",
                num_samples=trials,
                max_concurrent_trials=trials,
                # One rung at the very end: it acts on feedback, so that trials take turns, and stops nobody before it.
                searcher=tune.ASHA(max_t=steps, grace_period=steps),
            ),
            run_config=tune.RunConfig(storage_path=storage, verbose=0),
        ).fit()
        lines = list(read_log(Path(results.path)))
    started = [line["at"] for line in lines if line["what"] == "started"]
    reports = [line for line in lines if line["what"] == "report"]
    return Found(
        starting=max(started) - min(started),
        first_reports=max(line["at"] for line in reports if line["step"] == 1) - max(started),
        reports=len({(line["trial"], line["step"]) for line in reports}),
        completed=results.counts.get(Outcome.COMPLETED, 0),
        private_bytes=sum({line["trial"]: line["metrics"]["private_bytes"] for line in reports}.values()),
    )


def main(arguments: Sequence[str]) -> None:
    options = _parse(arguments)
    found = run(options.trials, options.steps, options.devices, options.quantum)
    one_round = options.trials / options.devices * options.quantum
    print(
        f"{options.trials} trials on {options.devices} devices, quantum {options.quantum} s: "
        f"a round is {one_round:.1f} s\n"
        f"all were up {found.starting:.1f} s after the first one, "
        f"and all had reported {found.first_reports:.1f} s later "
        f"({'within' if found.first_reports <= one_round else 'NOT WITHIN'} a round)\n"
        f"{found.completed} of {options.trials} completed, "
        f"{found.reports} of {options.trials * options.steps} reports arrived\n"
        f"private memory of all trials: {found.private_bytes / 1e6:.0f} MB, "
        f"{found.private_bytes / 1e6 / options.trials:.1f} MB each"
    )


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments many_trials", description=__doc__)
    parser.add_argument("--trials", type=int, default=256, help="trials at once (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="reports of each trial (default: %(default)s)")
    parser.add_argument("--devices", type=int, default=2, help="devices (default: %(default)s)")
    parser.add_argument(
        "--quantum", type=float, default=0.2, help="seconds of a turn, enough for a report (default: %(default)s)"
    )
    return parser.parse_args(arguments)
