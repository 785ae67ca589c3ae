"""Turns given for real: the slicer's word is passed on to the trials, and its timer kept.

A trial that does not come to a boundary has its turns taken from it by force: its processes are stopped, wherever they
are, and go on at its next turn. The slicer sees turns that end, and does not know how.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping

from gandiva_ray.core import slicer
from gandiva_ray.core.model import Device, JobId
from gandiva_ray.runtime import processes
from gandiva_ray.runtime.devices import Hardware, Inventory
from gandiva_ray.runtime.quantum import QuantumTuner
from gandiva_ray.runtime.trials import Trial, Where
from gandiva_ray.trial.protocol import RUN, SUSPEND

# A trial that was asked to suspend has so many seconds for it, or quanta, or times what it has taken before, whichever
# is longest: one that merely has long mini-batches, or an evaluation between two of them, is left alone.
PATIENCE, QUANTA, TIMES_BEFORE = 10.0, 10.0, 2.0
# What a process had said before it was stopped is heard after this.
SETTLING = 0.02


class Turns:
    """Drives `core.TimeSlicer` on the loop's clock. `trial` finds a trial by its job.

    `on_force` is told of a trial whose turn was taken by force, and after how many seconds.
    """

    def __init__(
        self, quantum: float | None, trial: Callable[[JobId], Trial], on_force: Callable[[Trial, float], None]
    ) -> None:
        self.inventory: Inventory = {}
        self._trial = trial
        self._on_force = on_force
        self._tuner = QuantumTuner(quantum)
        self._slicer = slicer.TimeSlicer(self._tuner.quantum)
        self._timer: asyncio.TimerHandle | None = None
        self._overdue: dict[JobId, tuple[float, asyncio.TimerHandle]] = {}  # since when each is asked to suspend
        self._loop = asyncio.get_running_loop()

    def place(self, trial: Trial, *, ready: bool) -> None:
        """It has a home, or another one or another weight; `ready` if from now on it can use turns."""
        facts: list[slicer.NodeEvent] = [slicer.JobPlaced(self._now(), trial.job, trial.assignment)]
        if ready:
            facts.append(slicer.JobReady(self._now(), trial.job))
        self._tell(*facts)

    def ready(self, trial: Trial) -> None:
        """It can use turns."""
        self._tell(slicer.JobReady(self._now(), trial.job))

    def began(self, trial: Trial) -> None:
        """It says that its turn began."""
        self._tuner.turn_began(trial.job, self._now())

    def ended(self, trial: Trial, *, ready: bool) -> None:
        """It gave its devices up at a boundary; `ready` if it can use more turns."""
        assert trial.page is not None
        if (asked_at := self._forget_overdue(trial)) is not None:
            trial.longest_wait = max(trial.longest_wait, self._now() - asked_at)
        trial.thaw(waits=True)
        self._tuner.turn_ended(trial.job, self._now(), trial.page.boundaries)
        self._tell(slicer.TurnEnded(self._now(), trial.job, ready))

    def remove(self, trial: Trial) -> None:
        """It takes no more turns, and what it held is free."""
        self._tuner.forget(trial.job)
        self._forget_overdue(trial)
        self._tell(slicer.JobRemoved(self._now(), trial.job))

    def tune(self) -> None:
        """Fit the quantum to what turns have cost."""
        if self._tuner.tune():
            self._tell(slicer.QuantumChanged(self._now(), self._tuner.quantum))

    def device_seconds(self, trial: Trial) -> float:
        """Its attained service so far (Tiresias 3.1)."""
        return self._slicer.time_of_turns(trial.job, self._now()) * len(trial.assignment.devices) * trial.share

    def running(self) -> Mapping[JobId, tuple[Device, ...]]:
        return self._slicer.running()

    def hardware(self, devices: tuple[Device, ...]) -> Hardware:
        """What a gang of devices is."""
        parts = [self.inventory[device] for device in devices]
        return Hardware(
            cores=tuple(sorted({core for part in parts for core in part.cores})),
            gpus=tuple(gpu for part in parts for gpu in part.gpus),
        )

    def _tell(self, *facts: slicer.NodeEvent) -> None:
        for turn in self._slicer.handle(*facts):
            trial = self._trial(turn.job)
            if isinstance(turn, slicer.Resume):
                self._resume(trial, turn.devices)
            else:
                self._suspend(trial)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._slicer.wake_at != math.inf:
            self._timer = self._loop.call_at(self._slicer.wake_at, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._tell(slicer.TimerFired(self._now()))

    def _resume(self, trial: Trial, devices: tuple[Device, ...]) -> None:
        assert trial.page is not None
        cores = self.hardware(devices).cores
        if cores != trial.pinned:
            processes.pin(trial.pid, cores)
            trial.pinned = cores
        if trial.parked:  # it came to its milestone after its turn was taken by force
            self._loop.call_soon(self._decline, trial)
            return
        frozen, trial.where = trial.where is Where.FROZEN, Where.TURN
        trial.request(RUN)
        if frozen:
            trial.thaw()
            return
        self._tuner.turn_begins(trial.job, self._now(), trial.page.boundaries)
        trial.say({"op": "resume"})

    def _decline(self, trial: Trial) -> None:
        self._tell(slicer.TurnEnded(self._now(), trial.job, ready=False))

    # --- by force

    def _suspend(self, trial: Trial) -> None:
        assert trial.page is not None
        trial.request(SUSPEND)
        limit = max(PATIENCE, QUANTA * self._tuner.quantum, TIMES_BEFORE * trial.longest_wait)
        if trial.forced_at == trial.page.boundaries:
            limit = 0.0  # it has not come to one since
        now = self._now()
        self._overdue[trial.job] = now, self._loop.call_later(limit, self._freeze, trial, now)

    def _forget_overdue(self, trial: Trial) -> float | None:
        """Since when it was asked to suspend, if it was."""
        asked_at, timer = self._overdue.pop(trial.job, (None, None))
        if timer is not None:
            timer.cancel()
        return asked_at

    def _freeze(self, trial: Trial, asked_at: float) -> None:
        if trial.stop is None:  # or it is ended by force, if need be
            trial.frozen = processes.freeze(trial.pid)
            # The loop takes in what has arrived by the end of one round, and acts on it in the next.
            self._loop.call_later(SETTLING, self._loop.call_soon, self._take, trial, asked_at)

    def _take(self, trial: Trial, asked_at: float) -> None:
        """Unless it turned out that it had just come to a boundary."""
        if not trial.frozen or trial.where is not Where.TURN:
            return
        assert trial.page is not None
        self._forget_overdue(trial)
        self._tuner.forget(trial.job)
        waited = self._now() - asked_at
        trial.where, trial.forced_at = Where.FROZEN, trial.page.boundaries
        trial.longest_wait = max(trial.longest_wait, waited)
        self._on_force(trial, waited)
        self._tell(slicer.TurnEnded(self._now(), trial.job, ready=True))

    def _now(self) -> float:
        return self._loop.time()
