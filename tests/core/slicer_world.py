"""A node that carries out the turns of a TimeSlicer in virtual time, and checks what must hold at every moment."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Mapping

from gandiva_ray.core.model import Assignment, Device, JobId
from gandiva_ray.core.slicer import (
    JobPlaced,
    JobReady,
    JobRemoved,
    NodeEvent,
    QuantumChanged,
    Resume,
    Suspend,
    TimerFired,
    TimeSlicer,
    Turn,
    TurnEnded,
)

DEVICES = tuple(Device("node", index) for index in range(4))


def home(*indices: int, weight: float = 1.0, exclusive: bool = False, pack: str | None = None) -> Assignment:
    return Assignment(tuple(DEVICES[index] for index in indices), weight, exclusive, pack)


def _place(assignment: Assignment) -> tuple[tuple[Device, ...], str | None]:
    """Whoever changes this gives up its turn; the order of the devices does not matter."""
    return tuple(sorted(assignment.devices)), assignment.pack


class World:
    """`delay(job)` is how long it takes the job to reach its boundary; `watch(world)` is called before each event."""

    def __init__(
        self,
        quantum: float = 1.0,
        delay: Callable[[JobId], float] = lambda job: 0.0,
        watch: Callable[[World], None] = lambda world: None,
    ) -> None:
        self.slicer = TimeSlicer(quantum)
        self.now = 0.0
        self.turns: list[tuple[float, Turn]] = []
        self.homes: dict[JobId, Assignment] = {}
        self.ready: set[JobId] = set()
        self.busy: dict[JobId, tuple[Device, ...]] = {}
        self.asked: set[JobId] = set()
        self._delay = delay
        self._watch = watch
        self._acknowledgements: list[tuple[float, int, JobId]] = []
        self._count = itertools.count()

    def start(self, homes: Mapping[JobId, Assignment]) -> list[Turn]:
        """Place these jobs and make them ready, all in one call."""
        return self.send(
            *(event for job, a in homes.items() for event in (JobPlaced(self.now, job, a), JobReady(self.now, job)))
        )

    def send(self, *events: NodeEvent) -> list[Turn]:
        self._watch(self)
        before = dict(self.homes)
        for event in events:
            self._note(event)
        turns = self.slicer.handle(*events)
        for turn in turns:
            self._carry_out(turn, before)
        self._check()
        assert self.slicer.wake_at > self.now or not any(isinstance(event, TimerFired) for event in events)
        return turns

    def run(self, until: float) -> None:
        """Let timers fire and jobs acknowledge until then."""
        while True:
            acknowledged = self._acknowledgements[0][0] if self._acknowledgements else math.inf
            at = min(acknowledged, self.slicer.wake_at)
            if at > until:
                break
            self.now = at
            if acknowledged == at:
                job = heapq.heappop(self._acknowledgements)[2]
                if job in self.asked:
                    self.send(TurnEnded(at, job, ready=job in self.ready))
            else:
                self.send(TimerFired(at))
        self.now = until

    def received(self, job: JobId) -> float:
        return self.slicer.time_of_turns(job, self.now)

    def log(self) -> list[str]:
        """The turns so far: "1 +a" for a resumed job, "2 -a" for one asked to suspend."""
        return [f"{at:g} {'+' if isinstance(turn, Resume) else '-'}{turn.job}" for at, turn in self.turns]

    # --- what the world knows by itself

    def _note(self, event: NodeEvent) -> None:
        match event:
            case JobPlaced():
                self.homes[event.job] = event.assignment
            case JobReady():
                self.ready.add(event.job)
            case TurnEnded():
                self._free(event.job)
                if not event.ready:
                    self.ready.discard(event.job)
            case JobRemoved():
                self._free(event.job)
                self.ready.discard(event.job)
                del self.homes[event.job]
            case QuantumChanged() | TimerFired():
                pass

    def _free(self, job: JobId) -> None:
        self.busy.pop(job, None)
        self.asked.discard(job)

    def _carry_out(self, turn: Turn, before: Mapping[JobId, Assignment]) -> None:
        self.turns.append((self.now, turn))
        if isinstance(turn, Resume):
            assert turn.job in self.ready - self.busy.keys(), turn
            assert self.homes[turn.job].weight > 0, turn
            assert turn.devices == self.homes[turn.job].devices, turn
            for other, devices in self.busy.items():
                if not set(devices).isdisjoint(turn.devices):
                    assert self.homes[turn.job].pack is not None, turn
                    assert (self.homes[other].pack, devices) == (self.homes[turn.job].pack, turn.devices), turn
            self.busy[turn.job] = turn.devices
        else:
            assert isinstance(turn, Suspend)
            assert turn.job in self.busy.keys() - self.asked, turn
            at_home = self.homes[turn.job]
            if at_home.exclusive and at_home.weight > 0:
                assert _place(at_home) != _place(before[turn.job]), f"{turn} of an exclusive job"
            self.asked.add(turn.job)
            entry = (self.now + self._delay(turn.job), next(self._count), turn.job)
            heapq.heappush(self._acknowledgements, entry)

    def _check(self) -> None:
        assert self.slicer.running() == self.busy
        assert self.slicer.wake_at >= self.now
        held = {device for devices in self.busy.values() for device in devices}
        waited_for = self._waited_for(held)
        for job in self.runnable():
            idle = held.isdisjoint(self.homes[job].devices)
            assert not idle or not waited_for.isdisjoint(self.homes[job].devices), f"{job} could run"

    def _waited_for(self, held: set[Device]) -> set[Device]:
        """Devices of gangs that wait for a job to reach its boundary."""
        asked = {device for job in self.asked for device in self.busy[job]}
        waiting = (self.homes[job] for job in self.ready - self.busy.keys() if self.homes[job].weight > 0)
        gangs = (set(home.devices) for home in waiting if len(home.devices) > 1)
        return {device for gang in gangs if gang & asked and gang & held <= asked for device in gang}

    def runnable(self) -> Iterable[JobId]:
        """Jobs that wait for a turn and that no exclusive job keeps from it."""
        taken = {
            device
            for job in self.ready
            if self.homes[job].exclusive and self.homes[job].weight
            for device in self.homes[job].devices
        }
        for job in sorted(self.ready - self.busy.keys()):
            at_home = self.homes[job]
            if at_home.weight > 0 and not at_home.exclusive and taken.isdisjoint(at_home.devices):
                yield job
