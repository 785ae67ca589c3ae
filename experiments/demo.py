"""The main job: 64 configurations of a small network on digits, all at once on every device of this machine."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from functools import partial

import gandiva_ray as tune
from experiments._problem import GRACE_PERIOD, MAX_T, METRIC, REDUCTION_FACTOR, SAMPLES, SEED, SPACE, progress, train
from gandiva_ray.core.model import Outcome
from workloads import digits


def main(arguments: Sequence[str]) -> None:
    options = _parse(arguments)
    tuner = tune.Tuner(
        partial(train, data=digits.load()),
        param_space=SPACE,
        tune_config=tune.TuneConfig(
            metric=METRIC,
            mode="max",
            num_samples=options.samples,
            searcher=tune.ASHA(max_t=MAX_T, grace_period=GRACE_PERIOD, reduction_factor=REDUCTION_FACTOR),
            seed=options.seed,
        ),
    )
    start = time.perf_counter()
    results = tuner.fit()
    print(summary(results, time.perf_counter() - start))


def summary(results: tune.ResultGrid, seconds: float) -> str:
    """What the search found, in a few lines."""
    best = results.get_best_result(scope="all")
    accuracy = best.metrics_dataframe[METRIC].max()
    done = progress(results.path)
    reached = "never" if done.first is None else f"after {done.first:.1f} s"
    stopped = results.counts.get(Outcome.STOPPED, 0)
    return "\n".join(
        [
            f"{len(results)} configurations in {seconds:.1f} s: {done.epochs} epochs, {stopped} stopped early",
            f"first at {METRIC} {digits.TARGET}: {reached}",
            f"best: trial {best.trial_id}, {METRIC} {accuracy:.4f}, {dict(best.config)}",
            f"all of it: {results.path}",
        ]
    )


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments demo", description=__doc__)
    parser.add_argument("--samples", type=int, default=SAMPLES, help="configurations to try (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=SEED, help="which configurations (default: %(default)s)")
    return parser.parse_args(arguments)
