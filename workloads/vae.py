"""A variational auto-encoder (Kingma and Welling, 2014) of the handwritten digits; the loss is what a search lowers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import gandiva_ray as tune
from workloads import digits

EPOCHS = 27
PIXELS = 64
SPACE: dict[str, Any] = {
    "lr": tune.loguniform(1e-5, 1.0),
    "hidden": tune.choice([32, 64, 128]),
    "latent": tune.choice([2, 4, 8, 16]),
    "batch_size": tune.choice([16, 32, 64, 128]),
}


class Vae(nn.Module):
    """Images of shape (batch, 64), pixels in [0, 1]; codes of shape (batch, latent)."""

    def __init__(self, hidden: int, latent: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(PIXELS, hidden), nn.ReLU(), nn.Linear(hidden, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, PIXELS))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The logits of the pixels, and mean and log-variance of the codes that they were drawn from."""
        mean, log_variance = self.encoder(images).chunk(2, dim=1)
        code = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        logits: Tensor = self.decoder(code)
        return logits, mean, log_variance


def negative_elbo(model: Vae, images: Tensor) -> Tensor:
    """An estimate of the negative evidence lower bound: nats an image, mean over the batch. Draws one code an image."""
    logits, mean, log_variance = model(images)
    reconstruction = functional.binary_cross_entropy_with_logits(logits, images, reduction="sum")
    divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum()
    bound: Tensor = (reconstruction + divergence) / len(images)
    return bound


def steps(config: Mapping[str, Any], data: digits.Data) -> Iterator[dict[str, float]]:
    """Train with Adam and yield the negative lower bound of what was learnt from and of the held-out images.

    `config` holds the keys of `SPACE` and, if it likes, `epochs`. Draws from torch's global generator: the same seed
    gives the same numbers.
    """
    images, test_images = data.images.flatten(1), data.test_images.flatten(1)
    model = Vae(config["hidden"], config["latent"])
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    for _ in range(config.get("epochs", EPOCHS)):
        total = 0.0
        for batch in digits.batches(len(images), config["batch_size"]):
            optimizer.zero_grad()
            loss = negative_elbo(model, images[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.item() * len(batch)
        with torch.no_grad():
            held_out = negative_elbo(model, test_images).item()
        yield {"loss": total / len(images), "test_loss": held_out}


def train(config: Mapping[str, Any], data: digits.Data | None = None) -> None:
    """The training function for a Tuner. Data given with functools.partial is shared by all trials of a node."""
    for metrics in steps(config, data or digits.load()):
        tune.report(metrics)
