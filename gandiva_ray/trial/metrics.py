"""What a trial may report: a dict of names and values that JSON can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def plain(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the metrics in plain Python: scalars of numpy and torch become numbers, tuples become lists.

    NaN and the infinities pass. Raises TypeError, with the key, on what JSON cannot hold, ValueError on an empty dict.
    """
    if not isinstance(metrics, Mapping):
        raise TypeError(f"report() takes a dict of metrics, got {_kind(metrics)}: report({{'loss': loss}})")
    if not metrics:
        raise ValueError("report() got an empty dict: report at least one metric, as in report({'loss': loss})")
    return _plain_mapping(metrics, "")


def _plain_mapping(values: Mapping[Any, Any], path: str) -> dict[str, Any]:
    for key in values:
        if not isinstance(key, str):
            where = f" in metric {path!r}" if path else ""
            raise TypeError(f"metrics have names, got the key {key!r} ({_kind(key)}){where}: use str({key!r})")
    return {str(key): _plain_value(value, f"{path}/{key}" if path else key) for key, value in values.items()}


def _plain_value(value: Any, path: str) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return _plain_mapping(value, path)
    if isinstance(value, list | tuple):
        return [_plain_value(item, f"{path}/{index}") for index, item in enumerate(value)]
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        item = value.item()
        if isinstance(item, bool | int | float | str):
            return item
    raise TypeError(f"metric {path!r} is {_kind(value)}, which JSON cannot hold: {_fix(value)}")


def _kind(value: object) -> str:
    shape = getattr(value, "shape", None)
    name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return f"{name} of shape {tuple(shape)}" if shape else name


def _fix(value: object) -> str:
    if hasattr(value, "tolist"):
        return "report a number, as in float(x) or x.mean().item(), or x.tolist()"
    return "report a number, a string, or lists and dicts of these"
