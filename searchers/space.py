"""Search spaces in Ray Tune's terms: nested dicts and lists of constants and of what the functions here give.

`Space` reads one once, refuses what cannot be meant, and builds configurations. A parameter's name is its path:
"model/lr".
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import cloudpickle

from gandiva_ray.arguments import explain_unknown
from searchers.domains import Choice, Domain, Float, Integer, Normal, SampleFrom, categories_of, same
from searchers.tree import NotYet, Slot, View, fill, has_slot, join


@explain_unknown()
def uniform(lower: float, upper: float) -> Float:
    """A float from [lower, upper)."""
    return Float(lower, upper)


@explain_unknown()
def quniform(lower: float, upper: float, q: float) -> Float:
    """A multiple of `q` from [lower, upper], which must be multiples of it."""
    return Float(lower, upper, q=q)


@explain_unknown()
def loguniform(lower: float, upper: float) -> Float:
    """A float from [lower, upper), its logarithm uniform."""
    return Float(lower, upper, log=True)


@explain_unknown()
def qloguniform(lower: float, upper: float, q: float) -> Float:
    """A multiple of `q` from [lower, upper], which must be multiples of it: a `loguniform` rounded."""
    return Float(lower, upper, log=True, q=q)


@explain_unknown()
def randn(mean: float = 0.0, sd: float = 1.0) -> Normal:
    """A normal float."""
    return Normal(mean, sd)


@explain_unknown()
def qrandn(mean: float, sd: float, q: float) -> Normal:
    """A normal float rounded to a multiple of `q`."""
    return Normal(mean, sd, q)


@explain_unknown()
def randint(lower: int, upper: int) -> Integer:
    """An int from [lower, upper): `upper` itself is not drawn."""
    return Integer(lower, upper)


@explain_unknown()
def lograndint(lower: int, upper: int) -> Integer:
    """An int from [lower, upper), its logarithm about uniform."""
    return Integer(lower, upper, log=True)


@explain_unknown()
def qrandint(lower: int, upper: int, q: int = 1) -> Integer:
    """An int multiple of `q` from [lower, upper]; with q=1 `upper` itself is not drawn, as in Ray Tune."""
    return Integer(lower, upper, q=q)


@explain_unknown()
def qlograndint(lower: int, upper: int, q: int) -> Integer:
    """An int multiple of `q` from [lower, upper], its logarithm about uniform; with q=1 `upper` is not drawn."""
    return Integer(lower, upper, log=True, q=q)


@explain_unknown()
def choice(categories: Iterable[Any]) -> Choice:
    """One of these objects, each as likely."""
    return Choice(categories_of(categories))


@explain_unknown()
def grid_search(values: Iterable[Any]) -> dict[str, Iterable[Any]]:
    """Every one of these values, combined with those of every other grid_search, for each sample."""
    return {"grid_search": values}


@explain_unknown()
def sample_from(func: Callable[..., Any]) -> SampleFrom:
    """What `func(config)` returns once the other parameters are known; `spec.config.lr` works too, as in Ray Tune.

    A function that draws random numbers of its own is not covered by the search's seed.
    """
    return SampleFrom(func)


_FUNCTIONS = (
    uniform,
    quniform,
    loguniform,
    qloguniform,
    randn,
    qrandn,
    randint,
    lograndint,
    qrandint,
    qlograndint,
    choice,
    grid_search,
    sample_from,
)


class Space:
    """A param_space, read. Raises ValueError that names the parameter's path and the fix.

    `domains` are drawn or, with `Choice.grid`, enumerated; sample_from parameters come after them.
    """

    def __init__(self, param_space: Mapping[str, Any]) -> None:
        if not isinstance(param_space, Mapping):
            raise ValueError(f"param_space must be a dict, got {param_space!r}")
        if "grid_search" in param_space:
            raise ValueError("param_space itself cannot be a grid_search; give the parameter a name")
        self.domains: dict[str, Domain] = {}
        self._functions: dict[str, SampleFrom] = {}
        self._tree = self._read(param_space, "")

    def config(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration with these values, of every domain and of the sample_from parameters not to be called."""
        values = dict(values)
        waiting = [name for name in self._functions if name not in values]
        while waiting:
            view = View(fill(self._tree, values))
            called = [name for name in waiting if self._call(name, view, values)]
            if not called:
                raise ValueError(f"param_space: the sample_from functions of {', '.join(waiting)} need one another")
            waiting = [name for name in waiting if name not in values]
        config: dict[str, Any] = fill(self._tree, values)
        return config

    def point(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """The values by path of a whole or partial configuration.

        Raises ValueError for a value outside its domain, and for a key that is unknown, with the nearest known one.
        """
        return dict(self._match(self._tree, point, ""))

    def _call(self, name: str, view: View, values: dict[str, Any]) -> bool:
        """Put the function's value among `values`; False where it needs one that is not there yet."""
        try:
            value = self._functions[name](view)
            value = value.settled() if isinstance(value, View) else value
        except NotYet:
            return False
        except Exception as error:
            raise ValueError(f"param_space, {name}: sample_from raised {type(error).__name__}: {error}") from error
        if isinstance(value, Domain | SampleFrom):
            raise ValueError(f"param_space, {name}: sample_from must return a value, not {value}")
        values[name] = value
        return True

    def _read(self, value: Any, path: str) -> Any:
        if isinstance(value, Mapping) and "grid_search" in value:
            return self._read_grid(value, path)
        if isinstance(value, Mapping):
            _refuse_near_grid(value, path)
            return {key: self._read(child, join(path, key)) for key, child in value.items()}
        if type(value) in (list, tuple):
            children = [self._read(child, join(path, index)) for index, child in enumerate(value)]
            return type(value)(children) if any(map(has_slot, children)) else value
        if isinstance(value, Domain | SampleFrom):
            return self._place(value, path)
        _refuse_mistakes(value, path)
        _refuse_unpicklable(value, path)
        return value

    def _read_grid(self, value: Mapping[str, Any], path: str) -> Slot:
        if len(value) > 1:
            others = ", ".join(repr(key) for key in value if key != "grid_search")
            raise ValueError(f"param_space, {path}: a dict with the key 'grid_search' cannot hold {others} too")
        return self._place(Choice(categories_of(value["grid_search"]), grid=True), path)

    def _place(self, domain: Domain | SampleFrom, path: str) -> Slot:
        try:
            domain.check()
        except ValueError as error:
            raise ValueError(f"param_space, {path}: {error}") from None
        if path in self.domains or path in self._functions:
            raise ValueError(f"param_space: two parameters have the path {path}; rename one")
        if isinstance(domain, SampleFrom):
            self._functions[path] = domain
            return Slot(path)
        if isinstance(domain, Choice):
            for category in domain.categories:
                _refuse_nested(category, domain, path)
        self.domains[path] = domain
        return Slot(path)

    def _match(self, tree: Any, given: Any, path: str) -> Iterator[tuple[str, Any]]:
        if isinstance(tree, dict):
            if not isinstance(given, Mapping):
                raise ValueError(f"{path or 'it'} must be a dict with keys of {_names(tree)}, got {given!r}")
            for key, value in given.items():
                if key not in tree:
                    raise ValueError(f"{join(path, key)} is not in param_space; {_nearest(key, tree, path)}")
                yield from self._match(tree[key], value, join(path, key))
        elif isinstance(tree, Slot):
            yield tree.name, self._adopt(tree.name, given)
        elif has_slot(tree):
            if not isinstance(given, list | tuple) or len(given) != len(tree):
                raise ValueError(f"{path} must be a list of {len(tree)} values, got {given!r}")
            for index, (child, value) in enumerate(zip(tree, given, strict=True)):
                yield from self._match(child, value, join(path, index))
        elif not same(tree, given):
            raise ValueError(f"{path}: {given!r} is not what param_space fixes it at, {tree!r}")

    def _adopt(self, name: str, value: Any) -> Any:
        if name in self._functions:
            return value
        try:
            return self.domains[name].adopt(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None


def _refuse_mistakes(value: Any, path: str) -> None:
    """Constants are anything at all, but for what only a slip puts there."""
    module = getattr(value, "__module__", None) or ""
    if inspect.isfunction(value) and (value in _FUNCTIONS or module.startswith("ray.tune.")):
        raise ValueError(
            f"param_space, {path}: {value.__name__} is the function itself; call it: {value.__name__}(...)"
        )
    if type(value).__module__.startswith(("ray.tune.search.sample", "optuna.distributions")):
        raise ValueError(
            f"param_space, {path}: {type(value).__module__}.{type(value).__name__} is not known here; "
            f"use gandiva_ray's own function of Ray Tune's name, such as gandiva_ray.uniform"
        )


def _refuse_near_grid(value: Mapping[Any, Any], path: str) -> None:
    if len(value) == 1:
        (key,) = value
        if isinstance(key, str) and difflib.get_close_matches(key, ["grid_search"], cutoff=0.8):
            raise ValueError(f"param_space, {path}: did you mean 'grid_search' where it says {key!r}?")


def _refuse_unpicklable(value: Any, path: str) -> None:
    """What is part of every configuration must reach the trials."""
    if isinstance(value, bool | int | float | str | None):
        return
    try:
        cloudpickle.dumps(value)
    except Exception as error:
        raise TypeError(
            f"param_space, {path}: a {type(value).__name__} cannot be sent to the trials ({error}); "
            f"create it in the training function"
        ) from error


def _refuse_nested(category: Any, domain: Choice, path: str) -> None:
    inner = Space({path: category})
    if inner.domains or inner._functions:
        raise ValueError(
            f"param_space, {path}: {domain} holds a search space of its own, which is not supported; make the inner "
            f"parameters parameters of their own and pick among them in the training function"
        )


def _names(tree: Mapping[Any, Any]) -> str:
    return ", ".join(map(repr, tree))


def _nearest(key: Any, tree: Mapping[Any, Any], path: str) -> str:
    known = difflib.get_close_matches(str(key), [str(name) for name in tree], n=1, cutoff=0.0)
    return f"the nearest key is {join(path, known[0])}" if known else "it has no keys there"
