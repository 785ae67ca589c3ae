"""What a trial asks for, said of its trainable."""

from __future__ import annotations

import re
from typing import Any

import cloudpickle
import pytest

from gandiva_ray.trainable import as_function, check_trainable, resources_of, with_parameters, with_resources
from gandiva_ray.trial.kinds import Trainable


def with_data(config: dict[str, Any], data: Any) -> Any:
    return data


def test_what_a_trial_asks_for_stays_with_the_trainable_whatever_else_is_bound() -> None:
    inside = with_parameters(with_resources(with_data, {"cpu": 2}), data=[1])
    outside = with_resources(with_parameters(with_data, data=[1]), {"cpu": 2})
    for bound in (inside, outside, cloudpickle.loads(cloudpickle.dumps(inside))):
        assert resources_of(bound) == {"cpu": 2}
        check_trainable(bound)
        assert as_function(bound)({}) == [1]
    assert resources_of(with_data) == {}


def test_a_class_keeps_its_parameters_under_its_resources() -> None:
    class Train(Trainable):
        def setup(self, config: dict[str, Any], data: Any = None) -> None: ...

        def step(self) -> dict[str, Any]:
            return {}

    bound = with_resources(with_parameters(Train, data=[1]), {"gpu": 0.5})
    assert as_function(bound).args[1] == {"data": [1]}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("resources", "error", "message"),
    [
        ([("gpu", 1)], TypeError, 'resources is a dict like {"gpu": 0.5}'),
        ({"tpu": 1}, ValueError, 'resources are "cpu" and "gpu"; \'tpu\' is not supported'),
        ({"gpu": "1"}, TypeError, "'gpu' is a number, got '1'"),
        ({"cpu": 0}, ValueError, "'cpu' is more than 0, got 0"),
        ({"gpu": -0.5}, ValueError, "'gpu' is more than 0, got -0.5"),
        ({"gpu": float("nan")}, ValueError, "'gpu' is more than 0, got nan"),
    ],
)
def test_resources_that_are_none_are_refused(resources: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        with_resources(with_data, resources)
