"""Problems for tests of searchers, and the configurations that come of them."""

from collections.abc import Mapping
from typing import Any

from gandiva_ray.core.search import Problem
from searchers import uniform
from searchers.sampling import Points, Sampling


def problem(space: Mapping[str, Any] | None = None, *, metric: str | None = "score", **other: Any) -> Problem:
    return Problem({"x": uniform(0, 1)} if space is None else space, metric, **{"mode": "max", **other})


def configs(space: Mapping[str, Any], num_samples: int, points: Points | None = None, **other: Any) -> list[Any]:
    sampling = Sampling(problem(space, num_samples=num_samples, **other), points)
    return [dict(config) for _, config in sampling.take(10**6)]
