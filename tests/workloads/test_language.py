from __future__ import annotations

from typing import Any

import pytest
import torch

from workloads import language

GOOD: dict[str, Any] = {"lr": 0.01, "hidden": 16, "layers": 1, "batch_size": 8, "epochs": 4}


def run(seed: int) -> list[dict[str, float]]:
    torch.manual_seed(seed)
    return list(language.steps(GOOD))


def test_the_model_learns_to_spell_on_a_small_budget() -> None:
    first, *_, last = run(0)
    assert first["perplexity"] > 10
    assert last["perplexity"] < first["perplexity"] / 2


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others() -> None:
    assert run(1) == run(1)
    assert run(1) != run(2)


def test_the_text_is_the_same_in_every_process() -> None:
    text, letters = language.load()
    assert len(text) == 20_000
    assert int(text.max()) == letters - 1
    language.load.cache_clear()
    assert torch.equal(language.load()[0], text)


def test_training_reports_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[dict[str, float]] = []
    monkeypatch.setattr(language.tune, "report", reported.append)
    torch.manual_seed(0)
    language.train(GOOD)
    assert reported == run(0)
