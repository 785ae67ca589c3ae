"""A small transformer (Vaswani et al., 2017) that learns to sort: it reads digits and writes them in their order.

Unlike the text of `workloads.language`, which can be guessed letter by letter, a digit of the answer depends on all of
the question: only attention over the whole of it solves this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import gandiva_ray as tune

EPOCHS = 9
LENGTH = 6
SYMBOLS = 10
BATCHES_PER_EPOCH = 32
TEST_QUESTIONS = 256
SPACE: dict[str, Any] = {
    "lr": tune.loguniform(1e-5, 1.0),
    "width": tune.choice([16, 32, 64]),
    "layers": tune.choice([1, 2]),
    "heads": tune.choice([1, 2, 4]),
    "batch_size": tune.choice([32, 64]),
}


def questions(count: int, generator: torch.Generator | None = None) -> Tensor:
    """Random digits and, behind them, the same ones sorted: shape (count, 2 * LENGTH)."""
    digits = torch.randint(SYMBOLS, (count, LENGTH), generator=generator)
    return torch.cat([digits, digits.sort(dim=1).values], dim=1)


class Sorter(nn.Module):
    """Symbols in, of shape (batch, time); the logits of the next ones out, of shape (batch, time, symbols)."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.symbols = nn.Embedding(SYMBOLS, width)
        self.places = nn.Embedding(2 * LENGTH, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.output = nn.Linear(width, SYMBOLS)

    def forward(self, symbols: Tensor) -> Tensor:
        time = symbols.shape[1]
        later = torch.ones(time, time, dtype=torch.bool).triu(1)
        states = self.layers(self.symbols(symbols) + self.places(torch.arange(time)), mask=later)
        logits: Tensor = self.output(states)
        return logits


@torch.no_grad()
def accuracy(model: nn.Module, test: Tensor) -> float:
    """The part of the digits of the answers that the model gets right, given those before them."""
    guesses = model(test[:, :-1])[:, LENGTH - 1 :].argmax(dim=2)
    return float((guesses == test[:, LENGTH:]).double().mean())


def steps(config: Mapping[str, Any]) -> Iterator[dict[str, float]]:
    """Train with AdamW; yield the mean loss (nats a digit of an answer) and the accuracy after each epoch.

    An epoch is 32 batches of new questions. `config` holds the keys of `SPACE` and, if it likes, `epochs`. Draws from
    torch's global generator: the same seed gives the same numbers.
    """
    test = questions(TEST_QUESTIONS, torch.Generator().manual_seed(0))
    model = Sorter(config["width"], config["layers"], config["heads"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    for _ in range(config.get("epochs", EPOCHS)):
        total = 0.0
        for _ in range(BATCHES_PER_EPOCH):
            batch = questions(config["batch_size"])
            optimizer.zero_grad()
            answers = model(batch[:, :-1])[:, LENGTH - 1 :]
            loss = functional.cross_entropy(answers.flatten(0, 1), batch[:, LENGTH:].flatten())
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.item()
        yield {"loss": total / BATCHES_PER_EPOCH, "accuracy": accuracy(model, test)}


def train(config: Mapping[str, Any]) -> None:
    """The training function for a Tuner."""
    for metrics in steps(config):
        tune.report(metrics)
