"""The search that `faults` disturbs; `python -m experiments._faulted SEED STORAGE` runs it in a process of its own."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import gandiva_ray as tune
from gandiva_ray.core.search import Algorithm

STEPS = 9
MADE = "made"


def train(config: Mapping[str, Any]) -> None:
    """Count to `STEPS`, with a checkpoint at every third step. Each step is written down before it is reported."""
    checkpoint = tune.get_checkpoint()
    begin = checkpoint.to_dict()["step"] if checkpoint is not None else 0
    for step in range(begin + 1, STEPS + 1):
        end = time.process_time() + 0.03
        while time.process_time() < end:
            pass
        with open(MADE, "a") as made:
            print(step, file=made)
            made.flush()
            os.fsync(made.fileno())
        saved = tune.Checkpoint.from_dict({"step": step}) if step % 3 == 0 else None
        tune.report({"value": config["x"] * step}, checkpoint=saved)


def search(seed: int, storage: Path) -> tune.Tuner:
    """Six trials, under a searcher that is drawn from the seed, in the folder `storage/run`."""
    searchers: list[Algorithm] = [
        tune.RandomSearch(),
        tune.ASHA(max_t=STEPS, grace_period=2),
        tune.SuccessiveHalving(max_t=STEPS, grace_period=1, reduction_factor=3),
        tune.Hyperband(max_t=STEPS),
    ]
    return tune.Tuner(
        train,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(
            metric="value", mode="max", num_samples=6, seed=seed, searcher=Random(seed).choice(searchers)
        ),
        run_config=tune.RunConfig(
            name="run", storage_path=storage, verbose=0, failure_config=tune.FailureConfig(max_failures=-1)
        ),
    )


if __name__ == "__main__":
    search(int(sys.argv[1]), Path(sys.argv[2])).fit()
