from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from workloads import digits, resnet

GOOD: dict[str, Any] = {
    "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4, "width": 4, "blocks": 1, "batch_size": 32, "epochs": 3
}  # fmt: skip


def run(seed: int, **changes: Any) -> list[dict[str, float]]:
    torch.manual_seed(seed)
    return list(resnet.steps({**GOOD, **changes}, digits.load()))


def test_the_network_learns_on_a_small_budget() -> None:
    first, *_, last = run(0)
    assert last["loss"] < first["loss"] / 2
    assert last["accuracy"] > 0.75


def test_a_block_whose_residual_says_nothing_hands_on_what_it_got() -> None:
    block = resnet.Block(4, 4, stride=1)
    torch.nn.init.zeros_(block.residual[-1].weight)
    images = torch.rand(2, 4, 8, 8)
    assert torch.equal(block(images), images)


@pytest.mark.parametrize("blocks", [1, 3])
def test_more_blocks_make_a_deeper_network_of_the_same_output(blocks: int) -> None:
    model = resnet.resnet(width=4, blocks=blocks)
    assert model(torch.rand(2, 1, 8, 8)).shape == (2, 10)
    assert sum(isinstance(module, resnet.Block) for module in model) == blocks + 1


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others() -> None:
    assert run(1, epochs=1) == run(1, epochs=1)
    assert run(1, epochs=1) != run(2, epochs=1)


def test_an_epoch_is_cheap() -> None:
    began = time.process_time()
    run(0, epochs=2)
    assert time.process_time() - began < 2 * 1.0


def test_training_reports_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[dict[str, float]] = []
    monkeypatch.setattr(resnet.tune, "report", reported.append)
    torch.manual_seed(0)
    resnet.train({**GOOD, "epochs": 2})
    assert reported == run(0, epochs=2)
