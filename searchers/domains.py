"""The kinds of parameter a space is made of, each an Optuna distribution and the way from its draws to values.

A domain is made unchecked, so that the error can name where in the space it stands: `check` raises ValueError.
Optuna is imported where a distribution is made, and not before.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from searchers.checks import is_number, is_whole

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_SMALLEST_QUANTILE = 2.0**-53
"""How near to 0 and 1 a normal's quantiles are drawn: at 0 and 1 themselves it is infinite."""


class Domain(ABC):
    """A parameter's values. `str` gives it as the user wrote it."""

    __slots__ = ()

    @abstractmethod
    def check(self) -> None:
        """Raise ValueError, with the fix, where this is no domain."""

    @abstractmethod
    def distribution(self) -> BaseDistribution:
        """What Optuna draws from."""

    @abstractmethod
    def value(self, drawn: Any) -> Any:
        """The parameter's value for what Optuna drew."""

    @abstractmethod
    def adopt(self, value: Any) -> Any:
        """A user's own value, in this domain's type. Raises ValueError where it is outside."""

    @property
    def count(self) -> int | None:
        """How many values there are; None for infinitely many."""
        return None

    def pick(self, index: int) -> Any:
        """The value at `index` of the `count` ones."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Float(Domain):
    """uniform, quniform, loguniform, qloguniform."""

    lower: float
    upper: float
    log: bool = False
    q: float | None = None

    def __str__(self) -> str:
        return _call("uniform", self.log, self.q, self.lower, self.upper)

    def check(self) -> None:
        _check_range(self, self.lower, self.upper, self.log, self.q)
        if self.q is None:
            return
        for bound in (self.lower, self.upper):
            if not _is_multiple(bound, self.q):
                nearest = round(bound / self.q) * self.q
                raise ValueError(f"{self}: {bound!r} is no multiple of q={self.q!r}; the nearest is {nearest!r}")

    def distribution(self) -> BaseDistribution:
        from optuna.distributions import FloatDistribution, IntDistribution

        if self.q is not None and not self.log:
            return IntDistribution(round(self.lower / self.q), round(self.upper / self.q))
        return FloatDistribution(self.lower, self.upper, log=self.log)

    def value(self, drawn: Any) -> float:
        if self.q is None:
            return float(drawn)
        return float((round(drawn / self.q) if self.log else drawn) * self.q)

    def adopt(self, value: Any) -> float:
        if not is_number(value) or not self.lower <= value <= self.upper or not _fits(value, self.q):
            raise ValueError(f"{value!r} is outside {self}")
        return float(value)

    @property
    def count(self) -> int | None:
        return None if self.q is None else round(self.upper / self.q) - round(self.lower / self.q) + 1

    def pick(self, index: int) -> float:
        assert self.q is not None
        return float((round(self.lower / self.q) + index) * self.q)


@dataclass(frozen=True, slots=True)
class Integer(Domain):
    """randint, qrandint, lograndint, qlograndint. `upper` is exclusive, inclusive where q is at least 2 (Ray Tune)."""

    lower: int
    upper: int
    log: bool = False
    q: int | None = None

    def __str__(self) -> str:
        return _call("randint", self.log, self.q, self.lower, self.upper)

    def check(self) -> None:
        for name, number in (("lower", self.lower), ("upper", self.upper), ("q", self.q)):
            if number is not None and not is_whole(number):
                raise ValueError(f"{self}: {name} must be a whole number")
        if self.lower == self.upper:
            raise ValueError(f"{self} is empty: its upper bound is exclusive; make it larger")
        _check_range(self, self.lower, self.upper, self.log, self.q)

    def distribution(self) -> BaseDistribution:
        from optuna.distributions import IntDistribution

        indices = self._indices
        return IntDistribution(indices.start, indices.stop - 1, log=self.log)

    def value(self, drawn: Any) -> int:
        return int(drawn) * self._q

    def adopt(self, value: Any) -> int:
        if not is_whole(value) or value % self._q or int(value) // self._q not in self._indices:
            raise ValueError(f"{value!r} is outside {self}")
        return int(value)

    @property
    def count(self) -> int:
        return len(self._indices)

    def pick(self, index: int) -> int:
        return self._indices[index] * self._q

    @property
    def _q(self) -> int:
        return 1 if self.q is None else int(self.q)

    @property
    def _indices(self) -> range:
        """The multiples of q, divided by q."""
        lower, upper, q = int(self.lower), int(self.upper), self._q
        return range(-(-lower // q), upper if q == 1 else upper // q + 1)


@dataclass(frozen=True, slots=True)
class Normal(Domain):
    """randn, qrandn: the inverse of the cumulative distribution at a uniform quantile."""

    mean: float
    sd: float
    q: float | None = None

    def __str__(self) -> str:
        return _call("randn", False, self.q, self.mean, self.sd)

    def check(self) -> None:
        _check_numbers(self, {"mean": self.mean, "sd": self.sd, "q": self.q})
        if self.sd <= 0:
            raise ValueError(f"{self}: sd must be above 0")
        if self.q is not None and self.q <= 0:
            raise ValueError(f"{self}: q must be above 0")

    def distribution(self) -> BaseDistribution:
        from optuna.distributions import FloatDistribution

        return FloatDistribution(_SMALLEST_QUANTILE, 1 - _SMALLEST_QUANTILE)

    def value(self, drawn: Any) -> float:
        value = NormalDist(self.mean, self.sd).inv_cdf(drawn)
        return value if self.q is None else float(round(value / self.q) * self.q)

    def adopt(self, value: Any) -> float:
        if not is_number(value) or not _fits(value, self.q):
            raise ValueError(f"{value!r} is outside {self}")
        return float(value)


@dataclass(frozen=True, slots=True)
class Choice(Domain):
    """choice and grid_search: one of some Python objects."""

    categories: Any
    grid: bool = False

    def __str__(self) -> str:
        shown = repr(list(self.categories)) if isinstance(self.categories, tuple) else repr(self.categories)
        return f"{'grid_search' if self.grid else 'choice'}({shown if len(shown) < 200 else shown[:200] + '...'})"

    def check(self) -> None:
        if not isinstance(self.categories, tuple):
            raise ValueError(f"{self} needs a list of values; a single one is a list too: [...]")
        if not self.categories:
            raise ValueError(f"{self} is empty; give it at least one value")

    def distribution(self) -> BaseDistribution:
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(range(len(self.categories)))

    def value(self, drawn: Any) -> Any:
        return self.categories[drawn]

    def adopt(self, value: Any) -> Any:
        for category in self.categories:
            if same(category, value):
                return category
        raise ValueError(f"{value!r} is outside {self}")

    @property
    def count(self) -> int:
        return len(self.categories)

    def pick(self, index: int) -> Any:
        return self.categories[index]


@dataclass(frozen=True, slots=True)
class SampleFrom:
    """sample_from: a function of the configuration, or of nothing, that is called once the rest is known."""

    function: Callable[..., Any]

    def check(self) -> None:
        if not callable(self.function):
            raise ValueError(f"sample_from needs a function, got {self.function!r}; a constant stands by itself")
        if not _accepts(self.function, 1) and not _accepts(self.function, 0):
            raise ValueError(f"sample_from({self.function!r}) must take one argument, the configuration, or none")

    def __call__(self, config: Any) -> Any:
        return self.function(config) if _accepts(self.function, 1) else self.function()


def categories_of(values: Any) -> Any:
    """The values as a tuple; what is no series in an order of its own stays as it is, for `check` to refuse."""
    is_series = isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping | Set)
    return tuple(values) if is_series else values


def same(one: Any, other: Any) -> bool:
    """Equality that arrays survive."""
    try:
        return one is other or bool(one == other)
    except ValueError:
        return False


def _accepts(function: Callable[..., Any], arguments: int) -> bool:
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return arguments == 1
    return True


def _call(name: str, log: bool, q: float | None, *arguments: float) -> str:
    shown = ", ".join(repr(a) for a in (*arguments, *(() if q is None else (q,))))
    return f"{'' if q is None else 'q'}{'log' if log else ''}{name}({shown})"


def _check_range(domain: Domain, lower: float, upper: float, log: bool, q: float | None) -> None:
    _check_numbers(domain, {"lower": lower, "upper": upper, "q": q})
    if lower > upper:
        raise ValueError(f"{domain}: the lower bound is above the upper one; swap them")
    if log and lower <= 0:
        raise ValueError(
            f"{domain}: a logarithmic range needs a lower bound above 0; give the value, not its logarithm"
        )
    if q is not None and q <= 0:
        raise ValueError(f"{domain}: q must be above 0")
    if q is not None and q > upper - lower:
        raise ValueError(f"{domain}: q is larger than the range of {upper - lower!r}; make it smaller")


def _check_numbers(domain: Domain, numbers: Mapping[str, Any]) -> None:
    for name, number in numbers.items():
        if number is not None and not is_number(number):
            raise ValueError(f"{domain}: {name} must be a finite number, got {number!r}")


def _is_multiple(value: float, q: float) -> bool:
    return math.isclose(value / q, round(value / q))


def _fits(value: float, q: float | None) -> bool:
    return q is None or _is_multiple(value, q)
