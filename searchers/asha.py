"""Asynchronous successive halving (Li et al., MLSys 2020), with the stopping rule, names and defaults of Ray Tune.

That rule judges a trial by those that came to the rung before it, so the order in which they come decides how much is
trained in vain. Where time is sliced the order is ours: everybody runs up to its first rung, then the best go ahead of
the others, one for each device, and set the cuts for those that follow.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gandiva_ray.arguments import explain_unknown
from gandiva_ray.core.model import Outcome, TrialId
from gandiva_ray.core.search import Action, Create, Problem, Promote, Reweigh, StopTrial
from searchers.checks import IN_RAY_TUNE, check_count, check_knobs, metric_of
from searchers.sampling import Points, Sampling

AHEAD, BEHIND = 1.0, 0.001
"""Weights. Those behind share what little they have, and a device where nobody is ahead."""


@explain_unknown(IN_RAY_TUNE)
@dataclass(frozen=True, slots=True)
class ASHA:
    """At each rung a trial stops that is below the best 1/reduction_factor of those that came there before it.

    Bracket s of `brackets` has its first rung at grace_period * reduction_factor**s reports; trials fall into them at
    random, the more the more rungs a bracket has.
    """

    max_t: int = 100
    grace_period: int = 1
    reduction_factor: float = 4
    brackets: int = 1
    points_to_evaluate: Points | None = None

    def __post_init__(self) -> None:
        check_knobs(self, self.max_t, self.reduction_factor, self.grace_period)
        check_count(type(self).__name__, "brackets", self.brackets)

    def start(self, problem: Problem) -> AshaSearcher:
        return AshaSearcher(self, problem)

    def rungs(self, s: int) -> list[float]:
        """The rungs of bracket s, the highest first."""
        decades = math.log(self.max_t / self.grace_period) / math.log(self.reduction_factor)
        exponents = range(s, s + int(decades - s + 1))
        return [self.grace_period * self.reduction_factor**k for k in reversed(exponents)]


@dataclass(slots=True, eq=False)
class _Rung:
    """`values` are the finite ones recorded here, larger is better."""

    milestone: float
    values: list[float] = field(default_factory=list)

    def cutoff(self, reduction_factor: float) -> float | None:
        """What a newcomer must reach. None for the first one."""
        return float(np.percentile(self.values, (1 - 1 / reduction_factor) * 100)) if self.values else None


@dataclass(slots=True)
class _Runner:
    """A trial on its way. `ahead` are the rungs that it is not recorded at, the highest first.

    `worth` is its value at the last rung, larger is better; None before its first one.
    """

    ahead: list[_Rung]
    until: int
    worth: float | None = None
    weight: float = AHEAD


class AshaSearcher:
    acts_on_feedback = True

    def __init__(self, knobs: ASHA, problem: Problem) -> None:
        self._knobs = knobs
        self._metric = metric_of(knobs, problem)
        self._sign = 1.0 if problem.mode == "max" else -1.0
        self._sampling = Sampling(problem, knobs.points_to_evaluate)
        self._brackets = [[_Rung(milestone) for milestone in knobs.rungs(s)] for s in range(knobs.brackets)]
        self._random = random.Random(problem.seed)
        self._runners: dict[TrialId, _Runner] = {}
        self._devices = 1

    @property
    def finished(self) -> bool:
        return self._sampling.exhausted

    def suggest(self, n: int) -> list[Create]:
        return [Create(trial, config, until=self._enter(trial)) for trial, config in self._sampling.take(n)]

    def report(self, trial: TrialId, step: int, values: Mapping[str, float]) -> list[Action]:
        runner = self._runners.get(trial)
        if runner is None or step < runner.until:
            return []
        if step >= self._knobs.max_t:
            return self._stop(trial, f"used its whole budget of {self._knobs.max_t} reports", Outcome.COMPLETED)
        rung = next(rung for rung in runner.ahead if rung.milestone <= step)
        value = values[self._metric]
        verdict = self._judge(rung, step, value)
        if verdict:
            return self._stop(trial, verdict, Outcome.STOPPED)
        runner.worth = self._worth(value)
        runner.ahead.remove(rung)
        runner.until = self._next_until(runner.ahead, step)
        return [Promote(trial, runner.until), *self._reweigh()]

    def ended(self, trial: TrialId, outcome: Outcome) -> list[Action]:
        return self._reweigh() if self._runners.pop(trial, None) else []

    def capacity(self, devices: int, step_costs: Mapping[TrialId, float]) -> list[Action]:
        self._devices = devices
        return self._reweigh()

    def _enter(self, trial: TrialId) -> int:
        most = max(map(len, self._brackets))
        weights = [math.exp(len(rungs) - most) for rungs in self._brackets]
        (bracket,) = self._random.choices(self._brackets, weights)
        runner = self._runners[trial] = _Runner(list(bracket), self._next_until(bracket, 0))
        return runner.until

    def _next_until(self, ahead: list[_Rung], step: int) -> int:
        """The next report that a rung will judge: the lowest one ahead, and no earlier than the next report."""
        lowest = math.ceil(ahead[-1].milestone) if ahead else self._knobs.max_t
        return min(max(lowest, step + 1), self._knobs.max_t)

    def _worth(self, value: float) -> float:
        """Larger is better. What is not finite is below all that is."""
        return self._sign * value if math.isfinite(value) else -math.inf

    def _judge(self, rung: _Rung, step: int, value: float) -> str:
        """Why a trial with this value stops here; empty where it goes on."""
        cutoff = rung.cutoff(self._knobs.reduction_factor)
        others = len(rung.values)
        worth = self._worth(value)
        if worth > -math.inf:
            rung.values.append(worth)
        if cutoff is None or worth >= cutoff:
            return ""
        return (
            f"{value:.6g} at report {step} is worse than {self._sign * cutoff:.6g}, the cut of the {others} before it"
        )

    def _stop(self, trial: TrialId, reason: str, outcome: Outcome) -> list[Action]:
        del self._runners[trial]
        return [StopTrial(trial, reason, outcome), *self._reweigh()]

    def _reweigh(self) -> list[Action]:
        """Who goes ahead, where that changed: those before their first rung; where there is none, the best."""
        judged = {trial: runner.worth for trial, runner in self._runners.items() if runner.worth is not None}
        ahead: set[TrialId] = set()
        if not any(runner.ahead for trial, runner in self._runners.items() if trial not in judged):
            ahead.update(heapq.nlargest(self._devices, judged, key=judged.__getitem__))
        changed: list[Action] = []
        for trial in judged:
            weight = AHEAD if trial in ahead else BEHIND
            if weight != self._runners[trial].weight:
                self._runners[trial].weight = weight
                changed.append(Reweigh(trial, weight))
        return changed
