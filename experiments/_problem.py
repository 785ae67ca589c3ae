"""The search that the experiments share: 64 configurations of a small network on digits, of which few reach 0.99."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import gandiva_ray as tune
from gandiva_ray.core.search import Problem
from gandiva_ray.run_log import read_log
from workloads import digits

METRIC = "accuracy"
SAMPLES = 64
SEED = 0  # of these configurations three reach the target within their 27 epochs
SPACE: dict[str, Any] = {**digits.SPACE, "seed": tune.randint(0, 2**31)}
MAX_T, GRACE_PERIOD, REDUCTION_FACTOR = digits.EPOCHS, 1, 3


def configurations(count: int) -> list[dict[str, Any]]:
    """The problem's first `count` configurations, each with the seed of its training: always the same ones."""
    search = tune.RandomSearch().start(Problem(SPACE, METRIC, "max", count, SEED))
    return [dict(create.config) for create in search.suggest(count)]


def train(config: Mapping[str, Any], data: digits.Data) -> None:
    """Train as the configuration's own seed says, so that it gives the same numbers wherever it runs."""
    torch.manual_seed(config["seed"])
    digits.train(config, data)


@dataclass(frozen=True, slots=True)
class Progress:
    """`epochs` trained in all; `first`: seconds from fit() to the first report at the target, None if none came."""

    epochs: int
    first: float | None


def progress(run_folder: str) -> Progress:
    """What the log of a run of this project says."""
    reports = [line for line in read_log(Path(run_folder)) if line["what"] == "report"]
    qualified = (line["at"] for line in reports if line["metrics"][METRIC] >= digits.TARGET)
    return Progress(len(reports), next(qualified, None))
