"""An LSTM that learns to spell: a character language model on text made on the spot from a small grammar."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import gandiva_ray as tune

EPOCHS = 9
SEQUENCE = 32
BATCHES_PER_EPOCH = 16
SPACE: dict[str, Any] = {
    "lr": tune.loguniform(1e-5, 1.0),
    "hidden": tune.choice([16, 32, 64]),
    "layers": tune.choice([1, 2]),
    "batch_size": tune.choice([8, 16, 32]),
}

_NOUNS = ["river", "mountain", "lantern", "harbour", "garden", "window", "letter", "winter"]
_VERBS = ["holds", "crosses", "follows", "forgets", "carries", "opens"]
_ADJECTIVES = ["old", "silent", "narrow", "bright", "distant"]


@cache
def load() -> tuple[Tensor, int]:
    """20,000 characters as indices into the alphabet, and the size of the alphabet. Always the same text."""
    draw = random.Random(0)
    sentences: list[str] = []
    while sum(map(len, sentences)) < 20_000:
        subject, thing = draw.choice(_NOUNS), draw.choice(_NOUNS)
        sentences.append(f"the {draw.choice(_ADJECTIVES)} {subject} {draw.choice(_VERBS)} the {thing}. ")
    text = "".join(sentences)[:20_000]
    alphabet = sorted(set(text))
    return torch.tensor([alphabet.index(letter) for letter in text]), len(alphabet)


class Speller(nn.Module):
    """Letters in, of shape (batch, time); the logits of the next letter out, of shape (batch, time, letters)."""

    def __init__(self, letters: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(letters, hidden)
        self.lstm = nn.LSTM(hidden, hidden, layers, batch_first=True)
        self.output = nn.Linear(hidden, letters)

    def forward(self, text: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(text))
        logits: Tensor = self.output(states)
        return logits


def steps(config: Mapping[str, Any]) -> Iterator[dict[str, float]]:
    """Train with Adam and yield the mean loss (nats a character) and the perplexity after each epoch.

    An epoch is 16 batches of random passages of 32 characters. `config` holds the keys of `SPACE` and, if it likes,
    `epochs`. Draws from torch's global generator: the same seed gives the same numbers.
    """
    text, letters = load()
    model = Speller(letters, config["hidden"], config["layers"])
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    for _ in range(config.get("epochs", EPOCHS)):
        total = 0.0
        for _ in range(BATCHES_PER_EPOCH):
            starts = torch.randint(len(text) - SEQUENCE, (config["batch_size"], 1))
            passages = text[starts + torch.arange(SEQUENCE + 1)]
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(passages[:, :-1]).flatten(0, 1), passages[:, 1:].flatten())
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.item()
        mean = total / BATCHES_PER_EPOCH
        yield {"loss": mean, "perplexity": math.exp(mean)}


def train(config: Mapping[str, Any]) -> None:
    """The training function for a Tuner."""
    for metrics in steps(config):
        tune.report(metrics)
