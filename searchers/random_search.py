"""Random search, and the grids of grid_search: every trial runs to its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gandiva_ray.arguments import explain_unknown
from gandiva_ray.core.model import Outcome, TrialId
from gandiva_ray.core.search import Action, Create, Problem
from searchers.checks import IN_RAY_TUNE
from searchers.sampling import Points, Sampling


class FeedForward:
    """A search that never acts on what it hears."""

    acts_on_feedback = False

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling

    @property
    def finished(self) -> bool:
        return self._sampling.exhausted

    def suggest(self, n: int) -> list[Create]:
        return [Create(trial, config) for trial, config in self._sampling.take(n)]

    def report(self, trial: TrialId, step: int, values: Mapping[str, float]) -> list[Action]:
        return []

    def ended(self, trial: TrialId, outcome: Outcome) -> list[Action]:
        return []

    def capacity(self, devices: int, step_costs: Mapping[TrialId, float]) -> list[Action]:
        return []


@explain_unknown(IN_RAY_TUNE)
@dataclass(frozen=True, slots=True)
class RandomSearch:
    """num_samples draws of the space, each combined with every combination of its grid_search values."""

    points_to_evaluate: Points | None = None

    def start(self, problem: Problem) -> FeedForward:
        return FeedForward(Sampling(problem, self.points_to_evaluate))
