"""What every searcher must pass, whoever wrote it: `check_searcher` raises where it does not.

A `World` plays the cluster to a MultiJob, as badly as chance allows: reports, ends, failures and losses in any order,
batched, late and repeated; values that are NaN or infinite; brackets that are short; and room for few trials at once.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from gandiva_ray.core.model import Outcome, TrialId
from gandiva_ray.core.multi_job import DropCheckpoint, Effect, Failures, Keep, MultiJob, Retry, TimeUp, TrialState
from gandiva_ray.core.search import (
    Action,
    Algorithm,
    CapacityChanged,
    Create,
    Problem,
    Promote,
    Reweigh,
    Searcher,
    StopTrial,
    TrialEnded,
    TrialEvent,
    TrialReported,
    TrialStarted,
)

VALUES = {
    "plain": (0.1, 0.2, 0.3, 0.4),
    "odd": (0.1, 0.2, float("nan"), float("inf"), float("-inf")),
    "nan": (float("nan"),),
}


@dataclass(frozen=True, slots=True)
class Chaos:
    """How a world misbehaves. Trials end by themselves after `length` reports at most."""

    seed: int
    mode: Any
    num_samples: int
    max_concurrent_trials: int | None
    values: str
    failures: float
    length: int
    interrupted: bool = False
    retries: int = 0


def chaos(max_samples: int = 16) -> st.SearchStrategy[Chaos]:
    return st.builds(
        Chaos,
        seed=st.integers(0, 2**32 - 1),
        mode=st.sampled_from(["min", "max"]),
        num_samples=st.integers(1, max_samples),
        max_concurrent_trials=st.none() | st.integers(1, 5),
        values=st.sampled_from(sorted(VALUES)),
        failures=st.sampled_from([0.0, 0.05, 0.5]),
        length=st.sampled_from([1, 4, 30]),
        interrupted=st.booleans(),
        retries=st.integers(0, 2),
    )


def check_searcher(algorithm: Algorithm, chaos: Chaos, space: Mapping[str, Any]) -> None:
    """The search ends whatever happens, acts on nothing that is gone, and a replay of its log does the same again."""
    problem = Problem(space, "score", chaos.mode, num_samples=chaos.num_samples, seed=chaos.seed)
    knobs: Any = {
        "max_concurrent_trials": chaos.max_concurrent_trials,
        "failures": Failures(chaos.retries),
        "keep": Keep(2, "score"),
    }
    world = World(MultiJob(Watched(algorithm), problem, **knobs), chaos)
    world.run()
    replayed = MultiJob(algorithm, problem, **knobs)
    assert [replayed.handle(*events) for events, _ in world.log] == [effects for _, effects in world.log]


class Watched:
    """An algorithm whose searcher is told everything twice, and some of it late."""

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm

    def start(self, problem: Problem) -> Searcher:
        return WatchedSearcher(self._algorithm.start(problem))


class WatchedSearcher:
    def __init__(self, inner: Searcher) -> None:
        self._inner = inner
        self.suggested: list[Create] = []
        self.gone: set[TrialId] = set()

    @property
    def acts_on_feedback(self) -> bool:
        return self._inner.acts_on_feedback

    @property
    def finished(self) -> bool:
        return self._inner.finished

    def suggest(self, n: int) -> Sequence[Create]:
        assert not self._inner.suggest(0)
        creates = self._inner.suggest(n)
        assert len(creates) <= n
        self.suggested += creates
        trials = [create.trial for create in self.suggested]
        assert trials == [f"{number:05d}" for number in range(len(trials))]
        return creates

    def report(self, trial: TrialId, step: int, values: Mapping[str, float]) -> Sequence[Action]:
        actions = self._look_at(self._inner.report(trial, step, values))
        assert not self._inner.report(trial, step, values), "a repeated report changed something"
        assert not self._inner.report(trial, 1, values), "a late report changed something"
        return actions

    def ended(self, trial: TrialId, outcome: Outcome) -> Sequence[Action]:
        self.gone.add(trial)
        actions = self._look_at(self._inner.ended(trial, outcome))
        assert not self._inner.ended(trial, outcome), "a repeated end changed something"
        assert not self._inner.report(trial, 10**6, {"score": 1.0}), "a report of an ended trial changed something"
        return actions

    def capacity(self, devices: int, step_costs: Mapping[TrialId, float]) -> Sequence[Action]:
        return self._look_at(self._inner.capacity(devices, step_costs))

    def _look_at(self, actions: Sequence[Action]) -> Sequence[Action]:
        known = {create.trial for create in self.suggested}
        for action in actions:
            assert action.trial in known - self.gone, f"{action} for a trial that is unknown or gone"
            if isinstance(action, StopTrial):
                assert action.reason
                self.gone.add(action.trial)
        return actions


@dataclass(slots=True)
class FakeTrial:
    """A trial as it really is, of which the search hears later."""

    until: int | None
    length: int
    step: int = 0
    attempt: int = 1
    started: bool = False
    stop: StopTrial | None = None
    ended: bool = False

    @property
    def parked(self) -> bool:
        return self.until is not None and self.step >= self.until


class World:
    def __init__(self, search: MultiJob, chaos: Chaos) -> None:
        self._search = search
        self._chaos = chaos
        self._chance = random.Random(chaos.seed)
        self._trials: dict[TrialId, FakeTrial] = {}
        self._on_the_way: list[tuple[TrialId, TrialEvent]] = []
        self._told: list[TrialEvent] = []
        self.log: list[tuple[list[TrialEvent | TimeUp], list[Effect]]] = []

    def run(self) -> None:
        self._tell([])
        for _ in range(100_000):
            if self._search.done:
                break
            moved = self._move()
            if self._on_the_way and (not moved or self._chance.random() < 0.3):
                self._tell(self._batch())
            elif not moved:
                raise AssertionError(f"nothing can happen any more: {self._search.stuck or 'and it is not said'}")
        assert self._search.done
        assert not self._search.stuck
        assert all(record.state is TrialState.ENDED for record in self._search.trials.values())
        assert set(self._search.trials) == set(self._trials)

    def _tell(self, events: list[TrialEvent | TimeUp]) -> None:
        effects = self._search.handle(*events)
        self.log.append((events, effects))
        for effect in effects:
            self._carry_out(effect)
        limit = self._chaos.max_concurrent_trials
        busy = sum(r.state in (TrialState.WAITING, TrialState.RUNNING) for r in self._search.trials.values())
        assert limit is None or busy <= limit

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Create):
            assert effect.trial not in self._trials
            self._trials[effect.trial] = FakeTrial(effect.until, self._chance.randint(1, self._chaos.length))
            return
        if isinstance(effect, Retry):
            before = self._trials[effect.trial]
            assert before.ended
            assert effect.attempt == before.attempt + 1
            again = FakeTrial(effect.create.until, before.length, effect.step, effect.attempt)
            self._trials[effect.trial] = again
            return
        if isinstance(effect, TrialEnded):
            assert self._trials[effect.trial].ended
            return
        trial = self._trials[effect.trial]
        assert self._search.trials[effect.trial].state is not TrialState.ENDED
        match effect:
            case Promote(_, until):
                assert trial.stop is None
                assert trial.until is not None
                assert until is None or until > trial.until
                trial.until = until
            case StopTrial():
                assert trial.stop is None
                trial.stop = effect
            case Reweigh() | DropCheckpoint():
                pass

    def _can_move(self, trial: FakeTrial) -> bool:
        return not trial.ended and (not trial.started or trial.stop is not None or not trial.parked)

    def _move(self) -> bool:
        """One thing happens to one trial. Parked ones are lost now and then."""
        failing = self._chance.random() < self._chaos.failures
        able = [name for name, trial in self._trials.items() if not trial.ended and (self._can_move(trial) or failing)]
        if not able:
            return False
        name = self._chance.choice(able)
        self._on_the_way.append((name, self._next(name, self._trials[name], failing)))
        return True

    def _next(self, name: TrialId, trial: FakeTrial, failing: bool) -> TrialEvent:
        if trial.stop is not None:
            trial.ended = True
            return TrialEnded(name, trial.stop.outcome, trial.stop.reason, attempt=trial.attempt)
        if failing:
            trial.ended = True
            outcome = self._chance.choice([Outcome.FAILED, Outcome.LOST])
            return TrialEnded(name, outcome, "by chance", attempt=trial.attempt)
        if not trial.started:
            trial.started = True
            return TrialStarted(name, "node", 1, "path", trial.attempt)
        if trial.step == trial.length:
            trial.ended = True
            return TrialEnded(name, Outcome.COMPLETED, "it returned", attempt=trial.attempt)
        trial.step += 1
        value = self._chance.choice(VALUES[self._chaos.values])
        saved = f"{name}/{trial.step}" if self._chance.random() < 0.5 else None
        metrics = {"score": value, "note": "text"}
        return TrialReported(name, trial.step, metrics, float(trial.step), saved, trial.attempt)

    def _batch(self) -> list[TrialEvent | TimeUp]:
        """Messages of one trial keep their order; those of different trials do not. Old ones come again."""
        batch: list[TrialEvent | TimeUp] = []
        for _ in range(self._chance.randint(1, 6)):
            if self._on_the_way:
                batch.append(self._take_one())
            if self._told and self._chance.random() < 0.2:
                batch.append(self._chance.choice(self._told))
        if self._chance.random() < 0.1:
            batch.append(CapacityChanged(self._chance.randint(0, 8), dict.fromkeys(self._trials, 0.5)))
        if self._chaos.interrupted and self._chance.random() < 0.02:
            batch.append(TimeUp("interrupted"))
        return batch

    def _take_one(self) -> TrialEvent:
        trial, _ = self._chance.choice(self._on_the_way)
        oldest = next(index for index, (name, _) in enumerate(self._on_the_way) if name == trial)
        _, event = self._on_the_way.pop(oldest)
        self._told.append(event)
        return event
