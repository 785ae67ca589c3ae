"""Brackets of rungs, which trials reach together and where all but the best 1/eta stop (Li et al., JMLR 2018)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gandiva_ray.core.model import Outcome, TrialId
from gandiva_ray.core.search import Action, Create, Mode, Promote, StopTrial
from searchers.sampling import Sampling


@dataclass(frozen=True, slots=True)
class Plan:
    """A bracket to be filled: its milestones in reports, rising, the last one being the whole budget.

    `size` is how many trials it takes; None takes all there are.
    """

    milestones: tuple[int, ...]
    size: int | None


def milestones(levels: Iterable[float], budget: int) -> tuple[int, ...]:
    """Whole reports for these levels below the budget, and the budget."""
    return tuple(sorted({max(1, math.floor(level)) for level in levels if math.floor(level) < budget} | {budget}))


def rank_key(value: float, mode: Mode) -> tuple[bool, float]:
    """Sorts the best first. What is not finite comes last in both modes: a good infinity is a broken metric too."""
    if not math.isfinite(value):
        return (True, 0.0)
    return (False, -value if mode == "max" else value)


def ranked(values: Mapping[TrialId, float], mode: Mode) -> list[TrialId]:
    """The best first; of equals, the one that comes first in `values`."""
    return sorted(values, key=lambda trial: rank_key(values[trial], mode))


def to_promote(ranking: Sequence[TrialId], alive: set[TrialId], eta: float) -> list[TrialId]:
    """The living of the best 1/eta; where none of these lives, the best that does."""
    best = [trial for trial in ranking[: math.floor(len(ranking) / eta)] if trial in alive]
    return best or [trial for trial in ranking if trial in alive][:1]


class Bracket:
    """Trials on their way up one plan's rungs.

    A rung is decided once the bracket is full and every living trial has reached it. A trial that ended after it had
    reached the rung keeps its place in the ranking; one that ended before it has none.
    """

    def __init__(self, plan: Plan, eta: float, mode: Mode) -> None:
        self._plan = plan
        self._eta = eta
        self._mode = mode
        self._level = 0
        self._added = 0
        self._closed = False
        self._rung: dict[TrialId, float | None] = {}  # in order of creation; None until it is reached
        self._alive: set[TrialId] = set()
        self._missing = 0  # the living that have not reached the rung

    @property
    def full(self) -> bool:
        return self._closed or self._added == self._plan.size

    def add(self, trial: TrialId) -> int:
        """Take the trial in; its first milestone."""
        self._added += 1
        self._rung[trial] = None
        self._alive.add(trial)
        self._missing += 1
        return self._milestone

    def close(self) -> None:
        """There are no more trials to fill it with."""
        self._closed = True

    def report(self, trial: TrialId, step: int, value: float) -> list[Action]:
        if trial not in self._alive or step < self._milestone or self._rung[trial] is not None:
            return []
        self._rung[trial] = value
        self._missing -= 1
        if self._level == len(self._plan.milestones) - 1:
            self._alive.discard(trial)
            return [StopTrial(trial, f"used its whole budget of {self._milestone} reports", Outcome.COMPLETED)]
        return self._decide()

    def ended(self, trial: TrialId) -> list[Action]:
        if trial not in self._alive:
            return []
        self._alive.discard(trial)
        if self._rung[trial] is None:
            del self._rung[trial]
            self._missing -= 1
        return self._decide()

    @property
    def _milestone(self) -> int:
        return self._plan.milestones[self._level]

    def _decide(self) -> list[Action]:
        if not self.full or self._missing or not self._alive:
            return []
        ranking = ranked({trial: value for trial, value in self._rung.items() if value is not None}, self._mode)
        promoted = to_promote(ranking, self._alive, self._eta)
        stopped = self._alive.difference(promoted)
        report, counts = self._milestone, f"{len(promoted)} go on" if len(promoted) > 1 else "1 goes on"
        stops = [
            StopTrial(trial, f"rank {rank} of {len(ranking)} at report {report}, {counts}")
            for rank, trial in enumerate(ranking, start=1)
            if trial in stopped
        ]
        self._climb(promoted)
        return [*(Promote(trial, self._milestone) for trial in promoted), *stops]

    def _climb(self, promoted: list[TrialId]) -> None:
        self._level += 1
        self._alive = set(promoted)
        self._rung = {trial: None for trial in self._rung if trial in self._alive}
        self._missing = len(promoted)


class BracketSearcher:
    """A search that fills brackets one after another and never waits to fill the next."""

    acts_on_feedback = True

    def __init__(self, metric: str, mode: Mode, sampling: Sampling, plans: Iterator[Plan], eta: float) -> None:
        self._metric = metric
        self._mode = mode
        self._sampling = sampling
        self._plans = plans
        self._eta = eta
        self._filling = self._next_bracket()
        self._bracket_of: dict[TrialId, Bracket] = {}

    @property
    def finished(self) -> bool:
        return self._sampling.exhausted

    def suggest(self, n: int) -> list[Create]:
        creates = []
        for trial, config in self._sampling.take(n):
            if self._filling.full:
                self._filling = self._next_bracket()
            creates.append(Create(trial, config, until=self._filling.add(trial)))
            self._bracket_of[trial] = self._filling
        if self._sampling.exhausted:
            self._filling.close()
        return creates

    def report(self, trial: TrialId, step: int, values: Mapping[str, float]) -> list[Action]:
        bracket = self._bracket_of.get(trial)
        return bracket.report(trial, step, values[self._metric]) if bracket else []

    def ended(self, trial: TrialId, outcome: Outcome) -> list[Action]:
        bracket = self._bracket_of.pop(trial, None)
        return bracket.ended(trial) if bracket else []

    def capacity(self, devices: int, step_costs: Mapping[TrialId, float]) -> list[Action]:
        """Nothing: bracket sizes are the algorithm's, whatever the devices."""
        return []

    def _next_bracket(self) -> Bracket:
        return Bracket(next(self._plans), self._eta, self._mode)
