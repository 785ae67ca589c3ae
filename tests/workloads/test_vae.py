from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from workloads import digits, vae

GOOD: dict[str, Any] = {"lr": 0.005, "hidden": 64, "latent": 8, "batch_size": 32, "epochs": 4}


def run(seed: int, **changes: Any) -> list[dict[str, float]]:
    torch.manual_seed(seed)
    return list(vae.steps({**GOOD, **changes}, digits.load()))


def test_it_learns_to_code_images_that_it_has_not_seen() -> None:
    nothing_learnt = run(0, lr=1e-9, epochs=1)[-1]["test_loss"]
    assert nothing_learnt > 40  # a coin for each of 64 pixels: 64 ln 2 = 44 nats
    first, *_, last = run(0)
    assert last["loss"] < first["loss"] - 3
    assert last["test_loss"] < 27


def test_the_bound_of_a_model_that_says_nothing_is_a_coin_a_pixel() -> None:
    model = vae.Vae(hidden=4, latent=2)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)  # codes are standard normal and tell the decoder nothing
    assert vae.negative_elbo(model, torch.rand(5, vae.PIXELS)).item() == pytest.approx(64 * 0.6931472, rel=1e-5)


def test_codes_cost_what_they_tell() -> None:
    model = vae.Vae(hidden=4, latent=2)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    model.encoder[-1].bias.data = torch.tensor([1.0, 2.0, 0.0, 0.0])  # the means; a variance of 1
    expected = 64 * 0.6931472 + (1 + 4) / 2
    assert vae.negative_elbo(model, torch.rand(5, vae.PIXELS)).item() == pytest.approx(expected, rel=1e-5)


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others() -> None:
    assert run(1, epochs=2) == run(1, epochs=2)
    assert run(1, epochs=2) != run(2, epochs=2)


def test_an_epoch_is_cheap() -> None:
    began = time.process_time()
    run(0, epochs=2)
    assert time.process_time() - began < 2 * 1.0


def test_training_reports_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[dict[str, float]] = []
    monkeypatch.setattr(vae.tune, "report", reported.append)
    torch.manual_seed(0)
    vae.train({**GOOD, "epochs": 2})
    assert reported == run(0, epochs=2)
