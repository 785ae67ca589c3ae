"""The same 64 configurations and the same ASHA rule in Ray Tune, as a function and as a reused class, and here.

Every search runs in a fresh process on a fresh Ray of its own with two CPUs; the sides take turns, order by order. What
is timed is `fit()` alone. Warm before it: Ray itself, the data in this process, and whatever one search of two trivial
trials that import torch leaves behind (Ray Tune: idle worker processes; here: scheduler, agent, and the zygote that has
torch). "First search" is the same here without that search before it. Each trial has one CPU and one torch thread, two
run at a moment.

Turned off, in Ray Tune's favour: the checkpoint that a class saves at its end, the TensorBoard, CSV and JSON files of
every trial, its progress output, and the workers' output on this terminal. A configuration carries its own seed and so
learns the same wherever it runs.
"""

from __future__ import annotations

import argparse
import logging
import math
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray
import ray.tune
import torch

import gandiva_ray as tune
from experiments._problem import (
    GRACE_PERIOD,
    MAX_T,
    METRIC,
    REDUCTION_FACTOR,
    SAMPLES,
    SPACE,
    configurations,
    progress,
    train,
)
from workloads import digits

CPUS = 2
Configs = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Search:
    """One timed search. `first`: seconds to the first report at the target, None if none came; `best`: best report."""

    side: str
    order: int
    seconds: float
    epochs: int
    first: float | None
    best: float


# --- Ray Tune


class Watch(ray.tune.Callback):
    """Counts the reports as they reach the driver."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.epochs = 0
        self.first: float | None = None
        self.best = 0.0

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_: Any) -> None:
        self.epochs += 1
        self.best = max(self.best, result[METRIC])
        if self.first is None and result[METRIC] >= digits.TARGET:
            self.first = time.perf_counter() - self.start


def ray_function(config: Mapping[str, Any], data: digits.Data) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(config["point"]["seed"])
    for metrics in digits.steps(config["point"], data):
        ray.tune.report(metrics)


class RayClass(ray.tune.Trainable):
    """One actor trains one configuration after another: `reset_config` leaves nothing of the last one."""

    def setup(self, config: dict[str, Any], data: digits.Data) -> None:  # type: ignore[override]
        torch.set_num_threads(1)
        self._data = data
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        torch.manual_seed(new_config["point"]["seed"])
        self._training = digits.steps(new_config["point"], self._data)
        return True

    def step(self) -> dict[str, float]:
        return next(self._training)


def fit_ray(trainable: Any, configs: Configs, storage: str, reuse_actors: bool) -> Watch:
    watch = Watch()
    tuner = ray.tune.Tuner(
        ray.tune.with_resources(ray.tune.with_parameters(trainable, data=digits.load()), {"cpu": 1}),
        param_space={"point": ray.tune.grid_search(configs)},
        tune_config=ray.tune.TuneConfig(
            metric=METRIC,
            mode="max",
            reuse_actors=reuse_actors,
            scheduler=ray.tune.schedulers.ASHAScheduler(
                max_t=MAX_T, grace_period=GRACE_PERIOD, reduction_factor=REDUCTION_FACTOR
            ),
        ),
        run_config=ray.tune.RunConfig(
            storage_path=storage,
            verbose=0,
            callbacks=[watch],
            checkpoint_config=ray.tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )
    watch.start = time.perf_counter()
    results = tuner.fit()
    if results.num_errors:
        raise RuntimeError(f"{results.num_errors} trials failed in Ray Tune: {results.errors[0]}")
    return watch


def search_ray(side: str, configs: Configs, order: int, storage: str) -> Search:
    trainable, reuse_actors = (RayClass, True) if side == "class" else (ray_function, False)
    fit_ray(_trivial_ray, [{}, {}], storage, reuse_actors=False)
    watch = fit_ray(trainable, configs, storage, reuse_actors)
    return Search(side, order, time.perf_counter() - watch.start, watch.epochs, watch.first, watch.best)


def _trivial_ray(config: Mapping[str, Any], data: digits.Data) -> None:
    ray.tune.report({METRIC: float(torch.zeros(1))})


# --- this project


def fit_gandiva(trainable: Callable[[dict[str, Any]], None], configs: Configs, storage: str) -> tune.ResultGrid:
    searcher = tune.ASHA(
        max_t=MAX_T, grace_period=GRACE_PERIOD, reduction_factor=REDUCTION_FACTOR, points_to_evaluate=configs
    )
    return tune.Tuner(
        trainable,
        param_space=SPACE,
        tune_config=tune.TuneConfig(metric=METRIC, mode="max", num_samples=len(configs), searcher=searcher),
        run_config=tune.RunConfig(storage_path=storage, verbose=0),
    ).fit()


def search_gandiva(side: str, configs: Configs, order: int, storage: str) -> Search:
    data = digits.load()
    if side == "gandiva":
        fit_gandiva(_trivial, configs[:2], storage)
    start = time.perf_counter()
    results = fit_gandiva(partial(train, data=data), configs, storage)
    seconds = time.perf_counter() - start
    if results.num_errors:
        raise RuntimeError(f"{results.num_errors} trials failed here: {results.errors[0]}")
    done = progress(results.path)
    best: float = results.get_best_result(scope="all").metrics_dataframe[METRIC].max()
    return Search(side, order, seconds, done.epochs, done.first, best)


def _trivial(config: Mapping[str, Any]) -> None:
    tune.report({METRIC: float(torch.zeros(1))})


# --- the comparison

SIDES = {"function": search_ray, "class": search_ray, "gandiva": search_gandiva, "first": search_gandiva}
NAMES = {
    "function": "Ray Tune, function, defaults",
    "class": "Ray Tune, class, reuse_actors=True",
    "gandiva": "gandiva_ray",
    "first": "gandiva_ray, first search",
}
QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # verbose=0 silences the old output wholly, the new one not
}


def main(arguments: Sequence[str]) -> None:
    options = _parse(arguments)
    searches: list[Search] = []
    for order in range(options.orders):
        for side in options.only:
            search = in_own_process(side, order, options.samples)
            print(f"order {order}, {NAMES[side]}: {search.seconds:.1f} s, {search.epochs} epochs", flush=True)
            searches.append(search)
    print("\n" + table(searches))


def in_own_process(side: str, order: int, samples: int) -> Search:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(measure, side, order, samples).result()


def measure(side: str, order: int, samples: int) -> Search:
    os.environ.update(QUIET)
    configs = configurations(samples)
    if order:
        random.Random(order).shuffle(configs)
    with tempfile.TemporaryDirectory() as storage:
        ray.init("local", num_cpus=CPUS, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        try:
            return SIDES[side](side, configs, order, storage)
        finally:
            ray.shutdown()


def table(searches: Sequence[Search]) -> str:
    """Medians over the orders, as rows of Markdown. "Times sooner" is against the first side."""
    rows = [
        "| | searches | search, s | times sooner | epochs | seconds an epoch | first at 0.99, s |",
        "|---|---|---|---|---|---|---|",
    ]
    sides = {search.side: [other for other in searches if other.side == search.side] for search in searches}
    medians = {side: statistics.median(search.seconds for search in mine) for side, mine in sides.items()}
    for side, mine in sides.items():
        first = statistics.median(math.inf if search.first is None else search.first for search in mine)
        rows.append(
            f"| {NAMES[side]} | {len(mine)} | {medians[side]:.1f} | {medians[searches[0].side] / medians[side]:.1f} "
            f"| {statistics.median(search.epochs for search in mine):.0f} "
            f"| {statistics.median(search.seconds / search.epochs for search in mine):.3f} "
            f"| {'never' if math.isinf(first) else f'{first:.1f}'} |"
        )
    return "\n".join(rows)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments ray_tune", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--orders", type=int, default=3, help="orders of the configurations (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="configurations (default: %(default)s)")
    parser.add_argument("--only", type=_sides, default=list(SIDES), metavar="SIDE,...", help="of " + ", ".join(SIDES))
    return parser.parse_args(arguments)


def _sides(text: str) -> list[str]:
    sides = text.split(",")
    for side in sides:
        if side not in SIDES:
            raise argparse.ArgumentTypeError(f"{side!r} is no side; they are {', '.join(SIDES)}")
    return sides
