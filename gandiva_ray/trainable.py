"""What may be trained: a function of one argument, the configuration; a generator; a class."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from gandiva_ray.arguments import explain_unknown
from gandiva_ray.trial.kinds import Trainable, run_class, run_generator


def name_of(trainable: object) -> str:
    """A short name, good as a part of a folder's name."""
    function = _unwrapped(trainable)
    name = getattr(function, "__name__", type(function).__name__)
    return name if name.isidentifier() else "trainable"


def with_parameters(trainable: Callable[..., Any], **parameters: Any) -> Callable[..., Any]:
    """The trainable with these keyword arguments bound, as with Ray Tune's: for data that all trials share.

    It is sent to each node once, and its trials read the same memory. Raises TypeError, naming the fix, where the
    trainable does not take them.
    """
    if not callable(trainable):
        raise TypeError(f"the trainable is a function def train(config, ...): ..., got {trainable!r}")
    function = _unwrapped(trainable)
    takes = inspect.signature(getattr(function, "setup", function) if isinstance(function, type) else trainable)
    before: tuple[Any, ...] = (None, {}) if isinstance(function, type) else ({},)
    try:
        takes.bind_partial(*before, **parameters)
    except TypeError as error:
        given = ", ".join(parameters)
        raise TypeError(f"{name_of(trainable)}{takes}: {error}; with_parameters gave it {given}") from None
    return functools.partial(trainable, **parameters)


class _WithResources(functools.partial[Any]):
    """A trainable, and what each trial of it asks for."""

    resources: Mapping[str, float]


@explain_unknown()
def with_resources(trainable: Callable[..., Any], resources: Mapping[str, float]) -> Callable[..., Any]:
    """The trainable with what each of its trials asks for, as with Ray Tune's: {"cpu": 2}, {"cpu": 4, "gpu": 0.5}.

    "gpu" is a number of GPUs, all of one node, or a share of one: trials whose shares sum to at most 1 run side by
    side. "cpu" is the same of CPU cores where the cluster has no GPU; where it has, it is how many threads a trial may
    use. Without, a trial gets one device. Raises TypeError or ValueError, naming the fix; `fit()` raises ValueError at
    once where no node is large enough.
    """
    if not isinstance(resources, Mapping):
        raise TypeError(f'resources is a dict like {{"gpu": 0.5}}, got {resources!r}')
    for name, amount in resources.items():
        if name not in ("cpu", "gpu"):
            raise ValueError(f'resources are "cpu" and "gpu"; {name!r} is not supported')
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            raise TypeError(f"{name!r} is a number, got {amount!r}")
        if not (math.isfinite(amount) and (amount > 0 or (amount == 0 and name == "gpu"))):
            raise ValueError(f"{name!r} is more than 0, got {amount!r}")
    if not callable(trainable):
        raise TypeError(f"the trainable is a function def train(config): ..., got {trainable!r}")
    bound = _WithResources(trainable)
    bound.resources = dict(resources)
    return bound


def resources_of(trainable: object) -> Mapping[str, float]:
    """What `with_resources` said of it; nothing where it was not called."""
    while isinstance(trainable, functools.partial):
        if isinstance(trainable, _WithResources):
            return trainable.resources
        trainable = trainable.func
    return {}


def check_trainable(trainable: object) -> None:
    """Raise TypeError, naming the fix, unless it is a function that takes the configuration as its one argument."""
    name = name_of(trainable)
    if isinstance(_unwrapped(trainable), type):
        _check_class(_unwrapped(trainable))
        return
    if not callable(trainable):
        raise TypeError(f"the trainable is a function def train(config): ..., got {trainable!r}")
    function = _unwrapped(trainable)
    code = function if inspect.isroutine(function) else type(function).__call__
    if inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code):
        raise TypeError(f"{name} is asynchronous (async def): make it a plain function, def {name}(config): ...")
    _check_arguments(name, trainable)


def _check_class(cls: type) -> None:
    if not issubclass(cls, Trainable):
        raise TypeError(
            f"the class {cls.__name__} is no gandiva_ray.Trainable: derive it from that, with setup(config) and step()"
        )
    if cls.step is Trainable.step:
        raise TypeError(f"the class {cls.__name__} has no step(self): define it, and return a dict of metrics")


def as_function(
    trainable: Any, checkpoint_frequency: int = 0, checkpoint_at_end: bool = False
) -> Callable[[dict[str, Any]], Any]:
    """What trials run. Raises ValueError where a function is asked for checkpoints that only a class can make."""
    function = _unwrapped(trainable)
    if isinstance(function, type):
        return functools.partial(run_class, function, _parameters(trainable), checkpoint_frequency, checkpoint_at_end)
    for name, asked in (("checkpoint_frequency", checkpoint_frequency), ("checkpoint_at_end", checkpoint_at_end)):
        if asked:
            raise ValueError(f"{name} is for class trainables: a function saves by report(checkpoint=...)")
    code = function if inspect.isroutine(function) else type(function).__call__
    return functools.partial(run_generator, trainable) if inspect.isgeneratorfunction(code) else trainable


def _parameters(trainable: object) -> dict[str, Any]:
    """What is bound to it by keyword, the outermost binding first."""
    if not isinstance(trainable, functools.partial):
        return {}
    return {**_parameters(trainable.func), **trainable.keywords}


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
