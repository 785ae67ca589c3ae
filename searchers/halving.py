"""Successive halving (Jamieson and Talwalkar, AISTATS 2016)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from gandiva_ray.arguments import explain_unknown
from gandiva_ray.core.search import Problem
from searchers.checks import IN_RAY_TUNE, check_knobs, metric_of
from searchers.rungs import BracketSearcher, Plan, milestones
from searchers.sampling import Points, Sampling


@explain_unknown(IN_RAY_TUNE)
@dataclass(frozen=True, slots=True)
class SuccessiveHalving:
    """All samples in one bracket: at grace_period, grace_period * reduction_factor, ... reports all but the best
    1/reduction_factor stop, and the last ones use the budget of `max_t` reports.
    """

    max_t: int
    grace_period: int = 1
    reduction_factor: float = 3
    points_to_evaluate: Points | None = None

    def __post_init__(self) -> None:
        check_knobs(self, self.max_t, self.reduction_factor, self.grace_period)

    def start(self, problem: Problem) -> BracketSearcher:
        if problem.num_samples == -1:
            raise ValueError(
                "SuccessiveHalving needs all its samples to begin with; give num_samples, or use ASHA or Hyperband"
            )
        levels = (self.grace_period * self.reduction_factor**k for k in itertools.count())
        plan = Plan(milestones(itertools.takewhile(lambda level: level < self.max_t, levels), self.max_t), size=None)
        sampling = Sampling(problem, self.points_to_evaluate)
        return BracketSearcher(metric_of(self, problem), problem.mode, sampling, iter([plan]), self.reduction_factor)
