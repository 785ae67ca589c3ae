"""Grid search over a whole space."""

from __future__ import annotations

from dataclasses import dataclass

from gandiva_ray.arguments import explain_unknown
from gandiva_ray.core.search import Problem
from searchers.checks import IN_RAY_TUNE
from searchers.random_search import FeedForward
from searchers.sampling import Sampling


@explain_unknown(IN_RAY_TUNE)
@dataclass(frozen=True, slots=True)
class GridSearch:
    """Every combination of the values of all parameters, num_samples times; each parameter must have finitely many."""

    def start(self, problem: Problem) -> FeedForward:
        if problem.num_samples == -1:
            raise ValueError("GridSearch ends when its grid does; give num_samples, the times that it is repeated")
        return FeedForward(Sampling(problem, enumerate_all=True))
