"""What may be trained: a plain function of one argument, the configuration."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

Trainable = Callable[[dict[str, Any]], Any]


def name_of(trainable: object) -> str:
    """A short name, good as a part of a folder's name."""
    function = _unwrapped(trainable)
    name = getattr(function, "__name__", type(function).__name__)
    return name if name.isidentifier() else "trainable"


def check_trainable(trainable: object) -> None:
    """Raise TypeError, naming the fix, unless it is a function that takes the configuration as its one argument."""
    name = name_of(trainable)
    if isinstance(trainable, type):
        raise TypeError(f"the trainable is a class, {name}: not supported yet; pass a function def train(config): ...")
    if not callable(trainable):
        raise TypeError(f"the trainable is a function def train(config): ..., got {trainable!r}")
    function = _unwrapped(trainable)
    code = function if inspect.isroutine(function) else type(function).__call__
    if inspect.isgeneratorfunction(code):
        raise TypeError(f"{name} is a generator (it has a yield), not supported yet: call gandiva_ray.report instead")
    if inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code):
        raise TypeError(f"{name} is asynchronous (async def): make it a plain function, def {name}(config): ...")
    _check_arguments(name, trainable)


def _unwrapped(trainable: object) -> Any:
    while isinstance(trainable, functools.partial):
        trainable = trainable.func
    return trainable


def _check_arguments(name: str, trainable: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(trainable)
    except ValueError:  # some built-in callables have none
        return
    try:
        signature.bind({})
    except TypeError:
        raise TypeError(
            f"{name}{signature} is called with one argument, the configuration: write def {name}(config): ..., "
            "and bind any other with functools.partial"
        ) from None


def check_space(space: object) -> None:
    """Raise TypeError, naming the fix, unless it is a dict."""
    if callable(space):
        raise TypeError("param_space is a function; spaces by function are not supported yet: pass a dict")
    if not isinstance(space, Mapping):
        raise TypeError(f'param_space is a dict like {{"lr": gandiva_ray.loguniform(1e-5, 1)}}, got {space!r}')
