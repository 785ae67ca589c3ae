"""Training that waits for its input about three quarters of the time, as with a slow disk or a far store.

Alone it leaves most of a device idle: what packing (several trials at the same moment) is for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import gandiva_ray as tune
from workloads import digits

EPOCHS = 9
BATCHES_PER_EPOCH = 45
BATCH_SIZE = 32
LATENCY = 0.0075  # seconds a batch; computing on it takes about 2.5 ms
SPACE: dict[str, Any] = {
    "lr": tune.loguniform(1e-5, 1.0),
    "momentum": tune.uniform(0.0, 0.99),
}


def arrivals(data: digits.Data, latency: float) -> Iterator[tuple[Tensor, Tensor]]:
    """An epoch of random batches, each of which comes `latency` seconds after it was asked for."""
    for _ in range(BATCHES_PER_EPOCH):
        time.sleep(latency)
        batch = torch.randint(len(data.labels), (BATCH_SIZE,))
        yield data.images[batch], data.labels[batch]


def steps(config: Mapping[str, Any], data: digits.Data) -> Iterator[dict[str, float]]:
    """Train with SGD and yield the mean loss and the held-out accuracy after each epoch.

    `config` holds the keys of `SPACE` and, if it likes, `epochs` and `latency`. Draws from torch's global generator:
    the same seed gives the same numbers, whatever the latency.
    """
    model = digits.cnn(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=config["momentum"])
    for _ in range(config.get("epochs", EPOCHS)):
        total = 0.0
        for images, labels in arrivals(data, config.get("latency", LATENCY)):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.item()
        yield {"loss": total / BATCHES_PER_EPOCH, "accuracy": digits.accuracy(model, data)}


def train(config: Mapping[str, Any], data: digits.Data | None = None) -> None:
    """The training function for a Tuner. Data given with functools.partial is shared by all trials of a node."""
    for metrics in steps(config, data or digits.load()):
        tune.report(metrics)
