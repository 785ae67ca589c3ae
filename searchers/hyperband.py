"""Hyperband (Li et al., JMLR 2018): halving at several grace periods, as nobody knows how early a curve tells."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from gandiva_ray.arguments import explain_unknown
from gandiva_ray.core.search import Problem
from searchers.checks import IN_RAY_TUNE, check_knobs, metric_of
from searchers.rungs import BracketSearcher, Plan, milestones
from searchers.sampling import Points, Sampling


@explain_unknown(IN_RAY_TUNE)
@dataclass(frozen=True, slots=True)
class Hyperband:
    """The brackets of algorithm 1, from the one that stops earliest to the one that stops nobody, and round again.

    All of them are there from the start: time-slicing takes the trials of a bracket to its rung together, on however
    few devices. With few samples only the first brackets are filled, and the last of those in part.
    """

    max_t: int = 81
    reduction_factor: float = 3
    points_to_evaluate: Points | None = None

    def __post_init__(self) -> None:
        check_knobs(self, self.max_t, self.reduction_factor)

    def start(self, problem: Problem) -> BracketSearcher:
        plans = itertools.chain.from_iterable(self.iteration() for _ in itertools.count())
        sampling = Sampling(problem, self.points_to_evaluate)
        return BracketSearcher(metric_of(self, problem), problem.mode, sampling, plans, self.reduction_factor)

    def iteration(self) -> Iterator[Plan]:
        """The brackets s = s_max ... 0: ceil((s_max + 1) / (s + 1) * eta^s) trials, first judged at max_t * eta^-s."""
        eta = self.reduction_factor
        s_max = _whole_logarithm(self.max_t, eta)
        for s in range(s_max, -1, -1):
            size = math.ceil((s_max + 1) * eta**s / (s + 1))
            yield Plan(milestones((self.max_t / eta**k for k in range(1, s + 1)), self.max_t), size)


def _whole_logarithm(value: float, base: float) -> int:
    """The largest s with base**s <= value; math.log is a little off at whole powers."""
    return next(s for s in itertools.count() if base ** (s + 1) > value)
