from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from workloads import transformer

GOOD: dict[str, Any] = {"lr": 0.005, "width": 32, "layers": 1, "heads": 2, "batch_size": 32, "epochs": 5}


def run(seed: int, **changes: Any) -> list[dict[str, float]]:
    torch.manual_seed(seed)
    return list(transformer.steps({**GOOD, **changes}))


def test_the_model_learns_to_sort_on_a_small_budget() -> None:
    first, *_, last = run(0)
    assert last["loss"] < first["loss"] / 3
    assert last["accuracy"] > 0.85


def test_an_answer_holds_the_digits_of_its_question_in_their_order() -> None:
    asked, answered = transformer.questions(50).split(transformer.LENGTH, dim=1)
    assert answered.tolist() == [sorted(digits) for digits in asked.tolist()]


def test_a_place_sees_nothing_of_what_comes_after_it() -> None:
    model = transformer.Sorter(width=16, layers=2, heads=2)
    symbols = transformer.questions(1)
    other = symbols.clone()
    other[:, 5:] = (other[:, 5:] + 1) % transformer.SYMBOLS
    before, after = model(symbols), model(other)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(before[:, 5:], after[:, 5:])


def test_a_model_that_knows_the_answers_has_an_accuracy_of_one() -> None:
    test = transformer.questions(20)

    class Knows(torch.nn.Module):
        def forward(self, symbols: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot(test[:, 1:], transformer.SYMBOLS).float()

    assert transformer.accuracy(Knows(), test) == 1.0


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others() -> None:
    assert run(1, epochs=1) == run(1, epochs=1)
    assert run(1, epochs=1) != run(2, epochs=1)


def test_an_epoch_is_cheap() -> None:
    began = time.process_time()
    run(0, epochs=2)
    assert time.process_time() - began < 2 * 1.0


def test_training_reports_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[dict[str, float]] = []
    monkeypatch.setattr(transformer.tune, "report", reported.append)
    torch.manual_seed(0)
    transformer.train({**GOOD, "epochs": 2})
    assert reported == run(0, epochs=2)
