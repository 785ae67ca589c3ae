"""Turns given for real: the slicer's word is passed on to the trials, and its timer kept."""

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


class Turns:
    """Drives `core.TimeSlicer` on the loop's clock. `trial` finds a trial by its job."""

    def __init__(self, quantum: float | None, trial: Callable[[JobId], Trial]) -> None:
        self.inventory: Inventory = {}
        self._trial = trial
        self._tuner = QuantumTuner(quantum)
        self._slicer = slicer.TimeSlicer(self._tuner.quantum)
        self._timer: asyncio.TimerHandle | None = None
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
        self._tuner.turn_ended(trial.job, self._now(), trial.page.boundaries)
        self._tell(slicer.TurnEnded(self._now(), trial.job, ready))

    def remove(self, trial: Trial) -> None:
        """It takes no more turns, and what it held is free."""
        self._tuner.forget(trial.job)
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
                trial.request(SUSPEND)
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
        trial.where = Where.TURN
        trial.request(RUN)
        self._tuner.turn_begins(trial.job, self._now(), trial.page.boundaries)
        trial.say({"op": "resume"})

    def _now(self) -> float:
        return self._loop.time()
