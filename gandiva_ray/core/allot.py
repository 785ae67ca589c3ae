"""One decision of `TimeSlicer`: who gets the devices now, who is asked to give them up."""

from __future__ import annotations

import math
from collections.abc import Iterable

from gandiva_ray.core.model import Device
from gandiva_ray.core.units import DeviceState, Member, OpenTurn, Unit, exclusive_first, fluid_shares

OUTWEIGHS = 10  # times the weight of who has the turn: then a job that is served less does not wait for its quantum
CREDIT = 4  # longest turns that a gang may be owed where it could not run, before the rest is forgotten
_ROUNDING = 1e-6  # quanta of turns by which sums of virtual times may be off


class Allotment:
    """Decide on `devices`, a set closed under gangs. The decisions are in `suspends` and `resumes`.

    `longest_turn` is what a turn takes when it is contended: a quantum, and the wait for the boundary.
    """

    def __init__(
        self, states: dict[Device, DeviceState], devices: list[Device], now: float, quantum: float, longest_turn: float
    ) -> None:
        self._states = states
        self._devices = devices
        self._now = now
        self._quantum = quantum
        self._longest_turn = longest_turn
        self._claimed: set[Device] = set()
        self._reserved: set[Device] = set()
        self.suspends: list[Member] = []
        self.resumes: list[Member] = []

    def decide(self) -> None:
        for turn in self._turns(self._devices):
            turn.charge(self._now)
        units = list(dict.fromkeys(unit for device in self._devices for unit in self._states[device].units))
        first = exclusive_first(unit for unit in units if unit.exclusive and unit.weight > 0)
        line = self._line_up(units, {device for unit in first for device in unit.devices})
        self._end_misplaced(first)
        for unit in first:
            self._claim(unit, overrides=True)
        for unit in sorted(line, key=self._rank):
            if len(self._claimed) == len(self._devices):
                break
            if self._claimed.isdisjoint(unit.devices):
                self._claim(unit, overrides=False)
            if unit.due_since is not None:
                self._reserved.update(unit.devices)
        for turn in self._turns(self._devices):
            if not turn.asked:
                self._resume(turn)
            timed = turn.unit.runnable and not turn.asked and self._contended(turn.unit) and not self._over(turn)
            turn.ends_at = turn.began + self._quantum if timed else math.inf

    # --- who competes

    def _line_up(self, units: list[Unit], taken: set[Device]) -> list[Unit]:
        """The units that compete by weight. A newcomer starts at the clocks of its devices."""
        line, newcomers = [], []
        for unit in units:
            if unit.weight > 0 and (not taken or taken.isdisjoint(unit.devices)):
                line.append(unit)
                if not unit.runnable:
                    newcomers.append(unit)
            elif unit.runnable:
                unit.withdraw(self._states)
        self._set_clocks()
        for unit in newcomers:
            unit.runnable, unit.paced_at = True, self._now
            unit.reweigh(self._states)
            unit.forget(0.0, self._longest_turn, self._states)
        gangs = [unit for unit in line if unit.is_gang]
        if gangs:
            self._set_paces(line)
            for unit in gangs:
                unit.forget(CREDIT * self._longest_turn, self._longest_turn, self._states)
                if unit.turn is None and unit.owed >= self._quantum:
                    self._make_due(unit)
        if newcomers or gangs:
            self._set_clocks()
        return line

    def _set_clocks(self) -> None:
        for device in self._devices:
            self._states[device].set_clock(device)

    def _set_paces(self, line: list[Unit]) -> None:
        shares = fluid_shares({unit: (unit.weight, unit.devices) for unit in line})
        for unit, (share, limit) in shares.items():
            unit.owed += unit.pace * (self._now - unit.paced_at)
            unit.pace, unit.limit, unit.paced_at = share, limit, self._now

    def _make_due(self, unit: Unit) -> None:
        """Put a gang before all that compete, until it has its turn: two that wait can then not overtake each other."""
        if unit.due_since is None:
            unit.due_since = self._now

    def _rank(self, unit: Unit) -> tuple[float, bool, float, float, int]:
        """The least served first. Equals: whose last turn is longest ago, then in order of arrival."""
        since = math.inf if unit.due_since is None else unit.due_since
        ahead = unit.served[unit.limit] - self._states[unit.limit].clock
        eligible = ahead * unit.weight <= _ROUNDING * self._quantum
        deadline = ahead + self._longest_turn / unit.weight if eligible else ahead
        return (since, not eligible, deadline, self._now if unit.turn else unit.turn_ended_at, unit.order)

    # --- who gets what

    def _end_misplaced(self, first: list[Unit]) -> None:
        """Jobs whose turn has no place any more: moved, of weight 0, or in the way of an exclusive job."""
        for turn in self._turns(self._devices):
            stays = turn.unit.runnable or turn.unit in first
            self._suspend(job for job in turn.jobs.values() if not (stays and job.here))

    def _claim(self, unit: Unit, overrides: bool) -> None:
        """Let the unit have its devices, or make them wait for it; units that come after it must leave them alone."""
        if unit.turn is not None and unit.turn.asked:
            return
        if unit.turn is not None:
            self._claimed.update(unit.devices)
            if self._over(unit.turn) and self._contended(unit) and not self._is_guest(unit):
                unit.turn.began = self._now
            return
        holders = self._turns(unit.devices)
        if not all(overrides or self._gives_way(turn, unit) for turn in holders):
            if not unit.is_gang:
                self._claimed.update(unit.devices)
            return
        self._claimed.update(unit.devices)
        if not holders:
            self._start(unit)
            return
        for turn in holders:
            self._suspend(turn.jobs.values())
        if unit.is_gang and not overrides:
            self._make_due(unit)

    def _gives_way(self, turn: OpenTurn, unit: Unit) -> bool:
        """Whether a turn ends for a unit that is served less: when its quantum is over, at once for one much heavier.

        And at once for a gang. But a gang's turn lasts its quantum, or gangs that overlap would end each other's turns
        for ever.
        """
        at_once = unit.weight > OUTWEIGHS * turn.weight or (unit.is_gang and not turn.unit.is_gang)
        return turn.asked or self._over(turn) or at_once

    def _start(self, unit: Unit) -> None:
        began = self._now - self._quantum if self._is_guest(unit) else self._now
        turn = unit.turn = OpenTurn(unit, unit.weight, began, charged_at=self._now)
        unit.due_since = None
        for device in unit.devices:
            self._states[device].turn = turn
        self._resume(turn)

    def _is_guest(self, unit: Unit) -> bool:
        """A gang on devices that one before it waits for has no quantum there: it gives way at once."""
        return unit.is_gang and not self._reserved.isdisjoint(unit.devices)

    def _resume(self, turn: OpenTurn) -> None:
        """The members that can run and do not yet."""
        for job in turn.unit.jobs.values():
            if job.wants and job.turn is None:
                job.turn, job.held = turn, job.assignment.devices
                turn.jobs[job.id] = job
                self.resumes.append(job)

    def _suspend(self, jobs: Iterable[Member]) -> None:
        for job in jobs:
            if job.asked_at is None:
                job.asked_at = self._now
                self.suspends.append(job)

    def _over(self, turn: OpenTurn) -> bool:
        return self._now >= turn.began + self._quantum

    def _contended(self, unit: Unit) -> bool:
        return any(self._states[device].contended for device in unit.devices)

    def _turns(self, devices: Iterable[Device]) -> list[OpenTurn]:
        turns = (self._states[device].turn for device in devices)
        return list(dict.fromkeys(turn for turn in turns if turn is not None))
