"""What is a number, and what the knobs of algorithms have in common."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from gandiva_ray.core.search import Problem

IN_RAY_TUNE = {
    **dict.fromkeys(("metric", "mode"), "it belongs into TuneConfig(...), beside searcher"),
    "time_attr": "leave it out: a trial's time is the number of its reports",
    "stop_last_trials": "leave it out: a trial stops at max_t",
}
"""Arguments of Ray Tune's schedulers that searchers do without."""


def is_number(value: Any) -> bool:
    """A finite one; a bool is none."""
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def is_whole(value: Any) -> bool:
    """A whole one, be it a float."""
    return is_number(value) and (isinstance(value, Integral) or float(value).is_integer())


def metric_of(algorithm: object, problem: Problem) -> str:
    """The metric of a search that judges. Raises ValueError where there is none."""
    if problem.metric is None:
        raise ValueError(f"{type(algorithm).__name__} judges trials by a metric; give metric= and mode=")
    return problem.metric


def check_knobs(algorithm: object, max_t: int, reduction_factor: float, grace_period: int = 1) -> None:
    """Raise ValueError where these cannot be the rungs of a search."""
    name = type(algorithm).__name__
    check_count(name, "max_t", max_t)
    check_count(name, "grace_period", grace_period)
    if max_t < grace_period:
        raise ValueError(f"{name}: max_t={max_t} is below grace_period={grace_period}; no trial would ever be judged")
    if not is_number(reduction_factor) or reduction_factor <= 1:
        raise ValueError(f"{name}: reduction_factor must be above 1 (3 keeps a third), got {reduction_factor!r}")


def check_count(name: str, knob: str, value: Any) -> None:
    """Raise ValueError unless the knob is a whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise ValueError(f"{name}: {knob} must be a whole number of at least 1, got {value!r}")
