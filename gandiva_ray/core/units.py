"""What `TimeSlicer` knows of the jobs, units and devices of a node, and the arithmetic of fair shares."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from gandiva_ray.core.model import Assignment, Device, JobId

K = TypeVar("K", bound=Hashable)


@dataclass(eq=False, slots=True)
class Member:
    """A job at home on the node. `held` are the devices of its turn; `asked_at` is when it was asked to end it."""

    id: JobId
    order: int
    assignment: Assignment
    unit: Unit
    ready: bool = False
    turn: OpenTurn | None = None
    held: tuple[Device, ...] = ()
    asked_at: float | None = None
    time_of_turns: float = 0.0

    @property
    def wants(self) -> bool:
        return self.ready and self.assignment.weight > 0

    @property
    def here(self) -> bool:
        """It wants turns, and no turn at an earlier home keeps it from taking them here."""
        return self.wants and (self.turn is None or self.turn.unit is self.unit)


@dataclass(eq=False, slots=True)
class Unit:
    """Jobs that take their turns together, with the sum of their weights.

    `served` is its virtual time, for each device: seconds of turns over weight, at the weight `served_at`. `limit` is
    the device that limits its fluid share, `pace`. `owed` is, for a gang, that share of the time until `paced_at`, less
    its turns. `runnable` says whether it competes by weight, `due_since` since when it goes before those that do (a
    gang that is waited for).
    """

    key: tuple[object, ...]
    devices: tuple[Device, ...]
    served: dict[Device, float]
    limit: Device
    jobs: dict[JobId, Member] = field(default_factory=dict)
    turn: OpenTurn | None = None
    turn_ended_at: float = -math.inf
    order: int = 0
    weight: float = 0.0
    served_at: float = 0.0
    exclusive: bool = False
    runnable: bool = False
    pace: float = 0.0
    paced_at: float = 0.0
    owed: float = 0.0
    due_since: float | None = None
    is_gang: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_gang = len(self.devices) > 1

    @property
    def wished_weight(self) -> float:
        return sum(job.assignment.weight for job in self.jobs.values() if job.wants)

    @property
    def wants_exclusively(self) -> bool:
        return any(job.assignment.exclusive for job in self.jobs.values() if job.wants)

    def refresh(self) -> None:
        """Take over what changed in its members."""
        here = [job for job in self.jobs.values() if job.here]
        self.order = min(job.order for job in self.jobs.values())
        self.weight = sum(job.assignment.weight for job in here)
        self.exclusive = any(job.assignment.exclusive for job in here)
        if self.turn is not None and self.weight > 0:
            self.turn.weight = self.weight

    def reweigh(self, states: Mapping[Device, DeviceState]) -> None:
        """Be ahead of the clocks, or behind them, by as many seconds of turns at the new weight as it was at the old.

        So the clocks stand still. Virtual time itself is not what to keep: one turn at a weight of 0.01 would be made
        good at weight 1 by a hundred turns of the others.
        """
        if self.weight not in (0, self.served_at):
            for device in self.devices if self.served_at else ():
                clock = states[device].clock
                self.served[device] = clock + (self.served[device] - clock) * self.served_at / self.weight
            self.served_at = self.weight

    def withdraw(self, states: Mapping[Device, DeviceState]) -> None:
        """Compete no more. Where it was the last to, the clock stays at its virtual time."""
        self.runnable, self.due_since, self.pace = False, None, 0.0
        for device in self.devices:
            states[device].clock = self.served[device]

    def forget(self, most: float, least: float, states: Mapping[Device, DeviceState]) -> None:
        """Let it be owed at most `most` seconds of turns on any of its devices, and owe at most `least` of its pace."""
        self.owed = max(min(self.owed, most), -least)
        for device in self.devices:
            self.served[device] = max(self.served[device], states[device].clock - most / self.weight)


@dataclass(eq=False, slots=True)
class OpenTurn:
    """A unit's turn under way; `jobs` are those of its members that have not given the devices up.

    `began` is when its quantum began; `ends_at` is when to look whether somebody else should have the devices.
    """

    unit: Unit
    weight: float
    began: float
    charged_at: float
    jobs: dict[JobId, Member] = field(default_factory=dict)
    ends_at: float = math.inf

    @property
    def asked(self) -> bool:
        return all(job.asked_at is not None for job in self.jobs.values())

    def charge(self, now: float) -> None:
        time = now - self.charged_at
        self.charged_at = now
        self.unit.owed -= time
        for job in self.jobs.values():
            job.time_of_turns += time
        if self.unit.exclusive:
            return  # no neighbour is served less for it
        for device in self.unit.served:
            self.unit.served[device] += time / self.weight


@dataclass(eq=False, slots=True)
class DeviceState:
    """A device: the units at home there (ordered sets), the open turn, and the clock of virtual time."""

    units: dict[Unit, None] = field(default_factory=dict)
    gangs: dict[Unit, None] = field(default_factory=dict)
    turn: OpenTurn | None = None
    clock: float = 0.0
    contended: bool = False

    def set_clock(self, device: Device) -> None:
        """The mean virtual time, by weight, of the units that this device limits; it stands still where none runs."""
        runnable = [unit for unit in self.units if unit.runnable]
        self.contended = len(runnable) > 1
        if self.gangs:
            runnable = [unit for unit in runnable if unit.limit == device] or runnable
        if runnable:
            base = runnable[0].served[device]  # summing differences keeps equal times equal
            total = sum([unit.served_at for unit in runnable])
            self.clock = base + sum([unit.served_at * (unit.served[device] - base) for unit in runnable]) / total


def exclusive_first(units: Iterable[Unit]) -> list[Unit]:
    """Of exclusive units, those that get all their devices: the ones with a turn before others, then by arrival."""
    first: list[Unit] = []
    taken: set[Device] = set()
    for unit in sorted(units, key=lambda unit: (unit.turn is None or unit.turn.asked, unit.order)):
        if taken.isdisjoint(unit.devices):
            first.append(unit)
            taken.update(unit.devices)
    return first


def fluid_shares(wishes: Mapping[K, tuple[float, Iterable[Device]]]) -> dict[K, tuple[float, Device]]:
    """Weighted max-min shares of time, each with the device that limits it, for (weight > 0, devices of the gang).

    All shares over weights rise together until a device is full; those on it stop there, the others go on.
    """
    left = dict(wishes)
    room = {device: 1.0 for _, devices in wishes.values() for device in devices}
    shares: dict[K, tuple[float, Device]] = {}
    while left:
        load: dict[Device, float] = {}
        for weight, devices in left.values():
            for device in devices:
                load[device] = load.get(device, 0.0) + weight
        full = min(load, key=lambda device: (room[device] / load[device], device))
        level = max(room[full], 0.0) / load[full]
        for key in [key for key, (_, devices) in left.items() if full in devices]:
            weight, devices = left.pop(key)
            shares[key] = (weight * level, full)
            for device in devices:
                room[device] -= weight * level
    return shares
