from __future__ import annotations

from typing import Any

import pytest
import torch

from experiments import ray_tune
from experiments.ray_tune import RayClass, Search, table
from workloads import digits

CONFIG: dict[str, Any] = {"lr": 0.01, "optimizer": "adam", "momentum": 0.9, "width": 4, "batch_size": 128, "seed": 3}


def test_the_table_gives_medians_a_side_in_the_order_of_the_sides() -> None:
    searches = [
        Search("function", 0, 200.0, 100, 90.0, 0.99),
        Search("gandiva", 0, 20.0, 200, 12.0, 0.99),
        Search("function", 1, 300.0, 200, None, 0.98),
        Search("function", 2, 250.0, 250, 70.0, 0.99),
    ]
    assert table(searches).splitlines()[2:] == [
        "| Ray Tune, function, defaults | 3 | 250.0 | 1.0 | 200 | 1.500 | 90.0 |",
        "| gandiva_ray | 1 | 20.0 | 12.5 | 200 | 0.100 | 12.0 |",
    ]


def test_a_side_that_seldom_reaches_the_target_never_does() -> None:
    never, once = Search("class", 0, 1.0, 1, None, 0.9), Search("class", 1, 1.0, 1, 0.5, 0.99)
    assert table([never, once, never]).splitlines()[-1].endswith("| never |")


def test_a_reused_class_trains_like_a_fresh_one() -> None:
    def first_epochs(trainable: RayClass) -> list[dict[str, float]]:
        return [trainable.step(), trainable.step()]

    reused = object.__new__(RayClass)  # without Ray's own set-up, which wants an actor
    reused.setup({"point": {**CONFIG, "seed": 1}}, data=digits.load())
    first_epochs(reused)
    assert reused.reset_config({"point": CONFIG})
    again = first_epochs(reused)

    torch.manual_seed(CONFIG["seed"])
    bare = digits.steps(CONFIG, digits.load())
    assert again == [next(bare), next(bare)]


def test_an_unknown_side_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ray_tune.main(["--only", "function,klass"])
    assert "'klass' is no side; they are function, class, gandiva" in capsys.readouterr().err
