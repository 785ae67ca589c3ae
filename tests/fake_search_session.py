"""A SearchSession without Ray: trials run in this process, step by step, in an order that a seed decides.

Here a trainable returns what it would report: any iterable of dicts.
"""

from __future__ import annotations

import functools
import itertools
import random
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

from gandiva_ray.core.model import Outcome, TrialId
from gandiva_ray.core.multi_job import Retry
from gandiva_ray.core.search import (
    Action,
    Create,
    Promote,
    StopTrial,
    TrialEnded,
    TrialEvent,
    TrialReported,
    TrialStarted,
)
from gandiva_ray.search_session import DeviceView
from gandiva_ray.trial.kinds import run_generator


@dataclass(slots=True)
class _Trial:
    create: Create
    until: int | None
    attempt: int = 1
    skip: int = 0
    reports: Iterator[Mapping[str, Any]] | None = None
    step: int = 0
    stop: StopTrial | None = None

    @property
    def parked(self) -> bool:
        return self.stop is None and self.until is not None and self.step >= self.until


class FakeSearchSession:
    """`before_poll(n)` is called before the n-th poll, from 1. With `deaf`, trials obey no stop: close ends them."""

    def __init__(
        self,
        trainable: bytes,
        path: Path,
        *,
        num_devices: int = 2,
        seed: int = 0,
        deaf: bool = False,
        before_poll: Callable[[int], None] = lambda poll: None,
    ) -> None:
        self.num_devices = num_devices
        self.submitted: list[Create] = []
        self.actions: list[Action] = []
        self.retried: list[Retry] = []
        self.timeouts: list[float] = []
        self.closed = 0
        self.left = 0
        self._train = _iterable(cloudpickle.loads(trainable))
        self._path = path
        self._random = random.Random(seed)
        self._deaf = deaf
        self._before_poll = before_poll
        self._trials: dict[TrialId, _Trial] = {}

    def submit(self, trials: Sequence[Create]) -> None:
        for create in trials:
            assert create.trial not in {known.trial for known in self.submitted}, f"{create.trial} came twice"
            cloudpickle.dumps(create.config)
            self.submitted.append(create)
            self._trials[create.trial] = _Trial(create, create.until)

    def retry(self, trials: Sequence[Retry]) -> None:
        for retry in trials:
            self.retried.append(retry)
            trial = _Trial(retry.create, retry.create.until, retry.attempt, skip=retry.step, step=retry.step)
            self._trials[retry.trial] = trial

    def act(self, actions: Sequence[Action]) -> None:
        self.actions += actions
        for action in actions:
            trial = self._trials.get(action.trial)
            if trial is not None and isinstance(action, Promote):
                trial.until = action.until
            if trial is not None and isinstance(action, StopTrial):
                trial.stop = action

    def poll(self, timeout: float) -> list[TrialEvent]:
        assert not self.closed, "polled after it was closed"
        assert 0.0 <= timeout <= 1.0
        self.timeouts.append(timeout)
        self._before_poll(len(self.timeouts))
        able = [trial for trial in self._trials.values() if not trial.parked and not (self._deaf and trial.stop)]
        self._random.shuffle(able)
        return [event for trial in able[: self.num_devices] for event in self._step(trial)]

    def devices(self) -> list[DeviceView]:
        running = tuple(self._trials)[: self.num_devices]
        return [DeviceView(f"fake {i}", running[i : i + 1], len(self._trials)) for i in range(self.num_devices)]

    def close(self) -> None:
        self.closed += 1
        self._trials.clear()

    def leave(self) -> None:
        self.left += 1

    def _step(self, trial: _Trial) -> Iterator[TrialEvent]:
        name = trial.create.trial
        if trial.stop is not None:
            yield self._ended(trial, trial.stop.outcome, trial.stop.reason)
            return
        if trial.reports is None:
            yield TrialStarted(name, "fake", 1, str(self._path / name), trial.attempt)
        try:
            if trial.reports is None:
                trial.reports = iter(self._train(dict(trial.create.config)))
                trial.reports = itertools.islice(trial.reports, trial.skip, None)
            metrics = next(trial.reports)
        except StopIteration:
            yield self._ended(trial, Outcome.COMPLETED, "it returned")
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            yield self._ended(trial, Outcome.FAILED, reason, traceback.format_exc())
        else:
            trial.step += 1
            seconds = (trial.step - trial.skip) / 2
            yield TrialReported(name, trial.step, metrics, seconds, metrics.get("checkpoint"), trial.attempt)

    def _ended(self, trial: _Trial, outcome: Outcome, reason: str, error: str = "") -> TrialEnded:
        name = trial.create.trial
        del self._trials[name]
        return TrialEnded(name, outcome, reason, error, trial.attempt)


def _iterable(trainable: Any) -> Any:
    """A generator as its user wrote it."""
    wrapped = isinstance(trainable, functools.partial) and trainable.func is run_generator
    return trainable.args[0] if wrapped else trainable
