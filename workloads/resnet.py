"""A small residual network (He et al., 2016) with batch normalisation, which learns the handwritten digits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import gandiva_ray as tune
from workloads import digits

EPOCHS = 9
SPACE: dict[str, Any] = {
    "lr": tune.loguniform(1e-4, 10.0),
    "momentum": tune.uniform(0.0, 0.99),
    "weight_decay": tune.loguniform(1e-6, 1e-1),
    "width": tune.choice([4, 8, 16]),
    "blocks": tune.choice([1, 2, 3]),
    "batch_size": tune.choice([32, 64, 128]),
}


class Block(nn.Module):
    """Two convolutions and what they add to; `stride` 2 halves both sides of the image."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, padding=1, bias=False),
            nn.BatchNorm2d(out),
        )
        same = channels == out and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        return functional.relu(self.residual(images) + self.shortcut(images))


def resnet(width: int, blocks: int) -> nn.Module:
    """Images of shape (batch, 1, 8, 8) to logits of shape (batch, 10): `blocks` on 8 x 8 pixels, then one on 4 x 4."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1, bias=False),
        *(Block(width, width, stride=1) for _ in range(blocks)),
        Block(width, 2 * width, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 10),
    )


def steps(config: Mapping[str, Any], data: digits.Data) -> Iterator[dict[str, float]]:
    """Train with SGD under a cosine schedule; yield the mean loss and the held-out accuracy after each epoch.

    `config` holds the keys of `SPACE` and, if it likes, `epochs`. Draws from torch's global generator: the same seed
    gives the same numbers.
    """
    epochs = config.get("epochs", EPOCHS)
    model = resnet(config["width"], config["blocks"])
    optimizer = torch.optim.SGD(
        model.parameters(), config["lr"], momentum=config["momentum"], weight_decay=config["weight_decay"]
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        total = 0.0
        for batch in digits.batches(len(data.labels), config["batch_size"]):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(data.images[batch]), data.labels[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.item() * len(batch)
        schedule.step()
        model.eval()
        accuracy = digits.accuracy(model, data)
        model.train()
        yield {"loss": total / len(data.labels), "accuracy": accuracy}


def train(config: Mapping[str, Any], data: digits.Data | None = None) -> None:
    """The training function for a Tuner. Data given with functools.partial is shared by all trials of a node."""
    for metrics in steps(config, data or digits.load()):
        tune.report(metrics)
