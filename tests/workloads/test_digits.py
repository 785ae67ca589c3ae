from __future__ import annotations

from typing import Any

import pytest
import torch

from workloads import digits

GOOD: dict[str, Any] = {"lr": 0.01, "optimizer": "adam", "momentum": 0.9, "width": 4, "batch_size": 64, "epochs": 3}


def run(config: dict[str, Any], seed: int = 0) -> list[dict[str, float]]:
    torch.manual_seed(seed)
    return list(digits.steps(config, digits.load()))


@pytest.mark.parametrize("model", ["cnn", "mlp"])
@pytest.mark.parametrize(("optimizer", "lr"), [("adam", 0.01), ("sgd", 0.1)])
def test_a_network_learns_on_a_small_budget(model: str, optimizer: str, lr: float) -> None:
    first, *_, last = run({**GOOD, "model": model, "optimizer": optimizer, "lr": lr, "momentum": 0.5, "batch_size": 16})
    assert last["loss"] < first["loss"] / 2
    assert last["accuracy"] > 0.75


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others() -> None:
    assert run(GOOD, seed=1) == run(GOOD, seed=1)
    assert run(GOOD, seed=1) != run(GOOD, seed=2)


def test_a_configuration_trains_for_27_epochs_unless_it_says_otherwise() -> None:
    assert len(run({"lr": 0.1, "optimizer": "sgd", "momentum": 0.0, "width": 4, "batch_size": 1437})) == 27
    assert len(run(GOOD)) == 3


def test_a_learning_rate_far_too_small_learns_nothing() -> None:
    assert run({**GOOD, "optimizer": "sgd", "lr": 1e-5})[-1]["accuracy"] < 0.3


def test_no_held_out_image_is_learnt_from() -> None:
    data = digits.load()
    assert len(data.images) == len(data.labels) == 1437
    assert len(data.test_images) == len(data.test_labels) == 360
    assert data.images.shape[1:] == data.test_images.shape[1:] == (1, 8, 8)
    assert 0 <= data.images.min() < data.images.max() <= 1
    learnt = {image.numpy().tobytes() for image in data.images}
    assert not any(image.numpy().tobytes() in learnt for image in data.test_images)


def test_the_data_is_read_once() -> None:
    assert digits.load() is digits.load()


def test_training_reports_every_epoch_on_the_data_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[dict[str, float]] = []
    monkeypatch.setattr(digits.tune, "report", reported.append)
    monkeypatch.setattr(digits, "load", lambda: pytest.fail("the data was read though it was given"))
    torch.manual_seed(0)
    data = digits.Data(
        torch.rand(64, 1, 8, 8), torch.zeros(64, dtype=torch.long), torch.rand(8, 1, 8, 8), torch.zeros(8)
    )
    digits.train(GOOD, data)
    assert len(reported) == 3
    assert reported[-1]["accuracy"] == 1.0
