"""Thousands of trials that do nothing, beside Ray Tune: trials a second, and what is kept of each.

A trial returns one metric at once, so what is measured is all that a search does around a trial. Every side runs in a
fresh process on a fresh Ray of its own with two CPUs, after a short search of the same kind; what is timed is `fit()`
alone. Ray Tune, which is slower, runs fewer trials, with its loggers, progress output and last checkpoints turned off.

The memory is what driver, agent and scheduler share with no other process: before the search, when a tenth of its
trials have reported, and after it, its results at hand.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import ray
import ray.tune

import gandiva_ray as tune
from experiments._memory import our_processes, private_bytes
from experiments._nothing import METRIC, nothing
from experiments.ray_tune import CPUS, QUIET

SPACE = {"x": (0.0, 1.0)}
WARM_UP = 20


@dataclass(frozen=True, slots=True)
class Found:
    """One timed search. `memory`: private bytes by process, at each of the three moments; none of Ray Tune's."""

    side: str
    trials: int
    seconds: float
    memory: Sequence[Mapping[str, int]] = ()

    @property
    def rate(self) -> float:
        return self.trials / self.seconds


# --- Ray Tune


class RayNothing(ray.tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._x = new_config["x"]
        return True

    def step(self) -> dict[str, Any]:
        return {METRIC: self._x, "done": True}


def fit_ray(side: str, trials: int, storage: str) -> None:
    reuse = side == "class"
    results = ray.tune.Tuner(
        ray.tune.with_resources(RayNothing if reuse else nothing, {"cpu": 1}),
        param_space={"x": ray.tune.uniform(*SPACE["x"])},
        tune_config=ray.tune.TuneConfig(metric=METRIC, mode="max", num_samples=trials, reuse_actors=reuse),
        run_config=ray.tune.RunConfig(
            storage_path=storage,
            verbose=0,
            checkpoint_config=ray.tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    ).fit()
    if results.num_errors:
        raise RuntimeError(f"{results.num_errors} trials failed in Ray Tune: {results.errors[0]}")


def search_ray(side: str, trials: int, storage: str) -> Found:
    fit_ray(side, CPUS, storage)
    start = time.perf_counter()
    fit_ray(side, trials, storage)
    return Found(side, trials, time.perf_counter() - start)


# --- this project


class Watch:
    """A stop rule that stops nobody, and looks at the memory when a tenth of the trials have reported."""

    def __init__(self, trials: int) -> None:
        self._until = max(1, trials // 10)
        self._pids = our_processes()
        self.memory = [private_bytes(self._pids)]

    def __call__(self, trial: str, metrics: Mapping[str, Any]) -> bool:
        self._until -= 1
        if self._until == 0:
            self.look()
        return False

    def look(self) -> None:
        self.memory.append(private_bytes(self._pids))


def fit_gandiva(trials: int, storage: str, watch: Watch | None) -> tune.ResultGrid:
    return tune.Tuner(
        nothing,
        param_space={"x": tune.uniform(*SPACE["x"])},
        tune_config=tune.TuneConfig(metric=METRIC, mode="max", num_samples=trials),
        run_config=tune.RunConfig(storage_path=storage, verbose=0, stop=watch),
    ).fit()


def search_gandiva(side: str, trials: int, storage: str) -> Found:
    fit_gandiva(WARM_UP, storage, None)
    watch = Watch(trials)
    start = time.perf_counter()
    results = fit_gandiva(trials, storage, watch)
    seconds = time.perf_counter() - start
    watch.look()
    if results.num_terminated != trials:
        raise RuntimeError(f"{results.num_terminated} of {trials} trials ended well: {results.errors[:1]}")
    return Found(side, trials, seconds, watch.memory)


# --- the comparison

SIDES = {"function": search_ray, "class": search_ray, "gandiva": search_gandiva}
NAMES = {
    "function": "Ray Tune, function, defaults",
    "class": "Ray Tune, class, reuse_actors=True",
    "gandiva": "gandiva_ray",
}


def main(arguments: Sequence[str]) -> None:
    options = _parse(arguments)
    found: list[Found] = []
    for side in SIDES:
        found.append(in_own_process(side, options.trials if side == "gandiva" else options.peer_trials))
        print(f"{NAMES[side]}: {found[-1].trials} trials in {found[-1].seconds:.1f} s", flush=True)
    print("\n" + rates(found) + "\n\n" + growth(found[-1]))


def in_own_process(side: str, trials: int) -> Found:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(measure, side, trials).result()


def measure(side: str, trials: int) -> Found:
    os.environ.update(QUIET)
    with tempfile.TemporaryDirectory() as storage:
        ray.init("local", num_cpus=CPUS, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        try:
            return SIDES[side](side, trials, storage)
        finally:
            ray.shutdown()


def rates(found: Sequence[Found]) -> str:
    """As rows of Markdown. "Times as many" is against Ray Tune's best settings, the second side."""
    peer = found[1].rate
    rows = ["| | trials | seconds | trials a second | times as many |", "|---|---|---|---|---|"]
    rows += (
        f"| {NAMES[one.side]} | {one.trials} | {one.seconds:.1f} | {one.rate:.1f} | {one.rate / peer:.1f} |"
        for one in found
    )
    return "\n".join(rows)


def growth(found: Found) -> str:
    """As rows of Markdown: megabytes at the three moments, and the kilobytes a trial in between."""
    before, early, after = found.memory
    rows = [
        "| | before, MB | at a tenth, MB | after, MB | kB a trial in all | kB a trial after the tenth |",
        "|---|---|---|---|---|---|",
    ]
    late = found.trials - max(1, found.trials // 10)
    for name in before:
        megabytes = " | ".join(f"{moment[name] / 1e6:.1f}" for moment in found.memory)
        in_all = (after[name] - before[name]) / 1e3 / found.trials
        rows.append(f"| {name} | {megabytes} | {in_all:.2f} | {(after[name] - early[name]) / 1e3 / late:.2f} |")
    return "\n".join(rows)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments do_nothing", description=__doc__)
    parser.add_argument("--trials", type=int, default=5000, help="trials of this project (default: %(default)s)")
    parser.add_argument("--peer-trials", type=int, default=40, help="trials of Ray Tune (default: %(default)s)")
    return parser.parse_args(arguments)
