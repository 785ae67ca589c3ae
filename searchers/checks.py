"""What the knobs of algorithms have in common."""

from __future__ import annotations

from numbers import Integral, Real


def check_knobs(algorithm: object, max_t: int, reduction_factor: float, grace_period: int = 1) -> None:
    """Raise ValueError where these cannot be the rungs of a search."""
    name = type(algorithm).__name__
    for knob, value in (("max_t", max_t), ("grace_period", grace_period)):
        check_count(name, knob, value)
    if max_t < grace_period:
        raise ValueError(f"{name}: max_t={max_t} is below grace_period={grace_period}; no trial would ever be judged")
    if not isinstance(reduction_factor, Real) or not 1 < reduction_factor < float("inf"):
        raise ValueError(f"{name}: reduction_factor must be above 1 (3 keeps a third), got {reduction_factor!r}")


def check_count(name: str, knob: str, value: int) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}: {knob} must be a whole number of at least 1, got {value!r}")
