"""Where the configurations of every searcher come from: Optuna's draws, grids and the user's own points."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gandiva_ray.core.model import TrialId
from gandiva_ray.core.search import Config, Problem
from searchers.domains import Choice, Domain
from searchers.space import Space

if TYPE_CHECKING:
    from optuna import Study
    from optuna.samplers import BaseSampler

Points = Sequence[Mapping[str, Any]]
"""Configurations to try first, whole or partial; what is missing is sampled."""


class Sampling:
    """The trials of a problem, one after another: the same ones for the same seed, however they are asked for.

    The points come first, each in the place of a sample; a sample is combined with every grid that it does not fix.
    `enumerate_all` makes a grid of every domain; `total` is how many trials there are, None without an end. Raises
    ValueError where the space or the points are at fault.
    """

    def __init__(self, problem: Problem, points: Points | None = None, *, enumerate_all: bool = False) -> None:
        self._space = Space(problem.space)
        self._grids = {name: _count(name, domain) for name, domain in _in_grid_order(self._space, enumerate_all)}
        self._points = [self._read(index, point) for index, point in enumerate(points or ())]
        self._samples = problem.num_samples
        self._seed = problem.seed
        self._configs = self._generate()
        self.total = self._total()
        self._sampler: BaseSampler | None = None
        self._given = 0

    @property
    def exhausted(self) -> bool:
        return self._given == self.total

    def take(self, n: int) -> Iterator[tuple[TrialId, Config]]:
        """The next `n` trials, or what is left of them."""
        for config in itertools.islice(self._configs, max(0, n)):
            self._given += 1
            yield f"{self._given - 1:05d}", config

    def _read(self, index: int, point: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._space.point(point)
        except ValueError as error:
            raise ValueError(f"points_to_evaluate[{index}]: {error}") from None

    def _total(self) -> int | None:
        if self._samples == -1:
            return None
        rest = max(0, self._samples - len(self._points))
        return sum(map(self._combinations, self._points)) + rest * self._combinations({})

    def _generate(self) -> Iterator[Config]:
        rest = itertools.count() if self._samples == -1 else range(self._samples - len(self._points))
        for fixed in itertools.chain(self._points, ({} for _ in rest)):
            for index in range(self._combinations(fixed)):
                values = {**fixed, **self._combination(fixed, index)}
                yield self._space.config({**values, **self._draw(values)})

    def _combinations(self, fixed: Mapping[str, Any]) -> int:
        return math.prod(count for name, count in self._grids.items() if name not in fixed)

    def _combination(self, fixed: Mapping[str, Any], index: int) -> dict[str, Any]:
        """The `index`-th combination of the grids not fixed; the first grid changes fastest, as in Ray Tune."""
        values = {}
        for name, count in self._grids.items():
            if name not in fixed:
                index, digit = divmod(index, count)
                values[name] = self._space.domains[name].pick(digit)
        return values

    def _draw(self, known: Mapping[str, Any]) -> dict[str, Any]:
        missing = {name: domain for name, domain in self._space.domains.items() if name not in known}
        if not missing:
            return {}
        if self._sampler is None:
            self._sampler = _random_sampler(self._seed)
        study = _study(self._sampler)  # a fresh one: it would remember every trial, and random draws need no memory
        drawn = study.ask({name: domain.distribution() for name, domain in missing.items()}).params
        return {name: domain.value(drawn[name]) for name, domain in missing.items()}


def _in_grid_order(space: Space, enumerate_all: bool) -> list[tuple[str, Domain]]:
    grids = ((name, domain) for name, domain in space.domains.items() if enumerate_all or _is_grid(domain))
    return sorted(grids, key=lambda grid: grid[0].split("/"))


def _is_grid(domain: Domain) -> bool:
    return isinstance(domain, Choice) and domain.grid


def _count(name: str, domain: Domain) -> int:
    if domain.count is None:
        raise ValueError(
            f"param_space, {name}: {domain} has infinitely many values, which no grid holds; "
            f"give it a step, such as quniform(lower, upper, q), or a list of values"
        )
    return domain.count


def _random_sampler(seed: int) -> BaseSampler:
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)


def _study(sampler: BaseSampler) -> Study:
    import optuna

    with _quiet():
        return optuna.create_study(sampler=sampler)


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna announces a new study; this one is nobody's business. The user's own setting returns afterwards."""
    from optuna import logging

    before = logging.get_verbosity()
    logging.set_verbosity(max(before, logging.WARNING))
    try:
        yield
    finally:
        logging.set_verbosity(before)
