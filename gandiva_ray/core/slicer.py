"""Whose turn it is on the devices of one node (Gandiva 3.1, suspend-resume).

Each turn goes to the **least served**. What a job has had is its *virtual time*: seconds of turns over weight. The
clock of a device is the weighted mean of the virtual times there. Of the jobs whose virtual time is not past the
clock, the least served is the one whose next turn would be due first at its weight (earliest eligible virtual
deadline first: Stoica and Abdel-Wahab, 1995). With equal weights that is the job with the least time of turns. With
unequal ones, least time over weight would not do: ten light jobs would each have a turn before a job ten times as
heavy had its second. Where a weight changes, what a job is owed in seconds stays as it is, and so does the clock.

The bound: jobs of one device each that stay runnable, with weights w that sum to W on their device, a quantum q and
mini-batches of at most m <= q, have at every moment had at most (q + m)(1 - w/W) more than w/W of the device's time,
and at most q + m less. The first is exact for any m. The second is the theorem for m = 0 and, for others, what a long
random search did not break; a wait for a boundary that is suddenly many quanta long breaks it (to 1.5 times at ten
quanta).

A gang has a virtual time for each of its devices, and is ranked on the one that limits its fluid share (`rates`). It
is also owed that share: once a whole quantum is owed, it goes before all that compete, in order, until it has its
turn. Beside single jobs a gang is never more than 2(q + m) behind its weight's part of its busiest device. What it
could not use is forgotten but for `CREDIT` turns, so that nobody starves when gangs or their neighbours come and go.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gandiva_ray.core.allot import Allotment
from gandiva_ray.core.model import Assignment, Device, JobId
from gandiva_ray.core.units import DeviceState, Member, OpenTurn, Unit, exclusive_first, fluid_shares


@dataclass(frozen=True, slots=True)
class JobPlaced:
    """A job has a new home, or one that is at home here has other devices, weight, exclusiveness or pack."""

    at: float
    job: JobId
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class JobReady:
    """Its process is up, or it was promoted: it can use turns."""

    at: float
    job: JobId


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """It gave its devices up at a boundary: asked to or not. `ready` is False where it parked."""

    at: float
    job: JobId
    ready: bool


@dataclass(frozen=True, slots=True)
class JobRemoved:
    """It ended or was stopped: whatever it had is free."""

    at: float
    job: JobId


@dataclass(frozen=True, slots=True)
class QuantumChanged:
    at: float
    quantum: float


@dataclass(frozen=True, slots=True)
class TimerFired:
    at: float


NodeEvent = JobPlaced | JobReady | TurnEnded | JobRemoved | QuantumChanged | TimerFired


@dataclass(frozen=True, slots=True)
class Resume:
    job: JobId
    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class Suspend:
    """Give the devices up at the next boundary. They are the job's until TurnEnded says so."""

    job: JobId


Turn = Resume | Suspend


class TimeSlicer:
    """Feed it what happens on the node; carry out the turns that it returns, in their order.

    Jobs of the same `pack` and devices are one **unit**: they take their turns together, with the sum of the weights of
    those that are ready. Any other job is a unit of its own. Work per event grows with the jobs at home on the event's
    devices and on those that gangs tie to them.
    """

    def __init__(self, quantum: float) -> None:
        self._quantum = _checked(quantum)
        self._now = -math.inf
        self._delay = 0.0  # how long acknowledgements take: the longest of late
        self._arrivals = 0
        self._jobs: dict[JobId, Member] = {}
        self._units: dict[tuple[object, ...], Unit] = {}
        self._states: dict[Device, DeviceState] = {}

    # --- what is known

    @property
    def wake_at(self) -> float:
        """When to send TimerFired if nothing else happens first; inf when there is nothing to time."""
        return min((turn.ends_at for turn in self._open_turns()), default=math.inf)

    def running(self) -> Mapping[JobId, tuple[Device, ...]]:
        """Who has which devices now, whether it was asked to give them up or not."""
        return {job.id: job.held for turn in self._open_turns() for job in turn.jobs.values()}

    def time_of_turns(self, job: JobId, now: float) -> float:
        """Seconds of turns that the job has received, the running one included."""
        member = self._member(job, "time of turns asked")
        return member.time_of_turns + (now - member.turn.charged_at if member.turn else 0.0)

    def rates(self) -> dict[JobId, float]:
        """The part of all time that each ready job will spend in turns, in the long run and in fluid form.

        Weighted max-min fairness: all virtual times rise together until a device is full. Switches and waits for
        boundaries cost nothing here, and gangs that overlap in a ring (01, 12, 20) may get less in turns.
        """
        wishes = {unit: unit.wished_weight for unit in self._units.values() if unit.wished_weight > 0}
        first = exclusive_first(unit for unit in wishes if unit.wants_exclusively)
        taken = {device for unit in first for device in unit.devices}
        fluid = fluid_shares({u: (weight, u.devices) for u, weight in wishes.items() if taken.isdisjoint(u.devices)})
        shares = {unit: share for unit, (share, _) in fluid.items()} | dict.fromkeys(first, 1.0)
        return {job.id: shares.get(job.unit, 0.0) if job.wants else 0.0 for job in self._jobs.values() if job.ready}

    # --- what happens

    def handle(self, *events: NodeEvent) -> list[Turn]:
        """The turns that follow from these events, those to end first. Raises ValueError on an impossible event."""
        touched: set[Device] = set()
        for event in events:
            if event.at < self._now:
                raise ValueError(f"{event!r} is older than what was handled before it, at {self._now!r}")
            self._now = event.at
            touched |= self._apply(event)
        longest_turn = self._quantum + self._delay
        decided = Allotment(self._states, self._linked(touched), self._now, self._quantum, longest_turn)
        decided.decide()
        return [*(Suspend(job.id) for job in decided.suspends), *(Resume(job.id, job.held) for job in decided.resumes)]

    def _apply(self, event: NodeEvent) -> set[Device]:
        """Take the event in; return the devices that it touches."""
        match event:
            case JobPlaced():
                return self._place(event)
            case JobReady():
                member = self._member(event.job, "ready")
                return self._change(member, ready=True)
            case TurnEnded():
                return self._end_turn(event)
            case JobRemoved():
                member = self._member(event.job, "removed")
                touched = self._give_up(member) | self._leave(member)
                del self._jobs[event.job]
                return touched
            case QuantumChanged():
                self._quantum = _checked(event.quantum)
                return set(self._states)
            case TimerFired():
                due = (turn for turn in self._open_turns() if turn.ends_at <= event.at)
                return {device for turn in due for device in turn.unit.devices}

    def _member(self, job: JobId, what: str) -> Member:
        try:
            return self._jobs[job]
        except KeyError:
            raise ValueError(f"job {job!r}: {what}, but it has no home here; send JobPlaced first") from None

    def _place(self, event: JobPlaced) -> set[Device]:
        assignment = event.assignment
        devices = tuple(sorted(assignment.devices))
        key = (devices, assignment.pack) if assignment.pack is not None else (devices, None, event.job)
        member = self._jobs.get(event.job)
        if member is not None and member.unit.key == key:
            return self._change(member, assignment=assignment)
        if member is None:
            touched: set[Device] = set()
            unit = self._units.get(key) or self._new_unit(key, devices)
            self._arrivals += 1
            member = self._jobs[event.job] = Member(event.job, self._arrivals, assignment, unit)
        else:
            before, ahead = member.unit, self._ahead(member.unit)
            touched = self._leave(member)
            unit = self._units.get(key) or self._new_unit(key, devices)
            if not unit.jobs:
                self._take_along(unit, before, ahead, member.assignment.weight)
        member.unit = unit
        unit.jobs[event.job] = member
        return touched | self._change(member, assignment=assignment)

    def _ahead(self, unit: Unit) -> float:
        """How much further its virtual time is than the clock of the device that limits it."""
        self._charge(unit.devices)
        self._states[unit.limit].set_clock(unit.limit)
        return unit.served[unit.limit] - self._states[unit.limit].clock

    def _take_along(self, unit: Unit, before: Unit, ahead: float, weight: float) -> None:
        """What a job of that weight has had in the unit `before` counts in a unit of its own, also on other devices."""
        unit.served_at = weight if before.jobs and weight > 0 else before.served_at
        for device in unit.devices:
            unit.served[device] = before.served.get(device, self._states[device].clock + ahead)

    def _new_unit(self, key: tuple[object, ...], devices: tuple[Device, ...]) -> Unit:
        unit = Unit(key, devices, dict.fromkeys(devices, -math.inf), limit=devices[0])
        self._units[key] = unit
        for device in devices:
            state = self._states.setdefault(device, DeviceState())
            state.units[unit] = None
            if unit.is_gang:
                state.gangs[unit] = None
        return unit

    def _change(
        self, member: Member, *, ready: bool | None = None, assignment: Assignment | None = None
    ) -> set[Device]:
        """Change a job where it is, after charging its unit's turn as it was."""
        self._charge(member.unit.devices)
        if ready is not None:
            member.ready = ready
        if assignment is not None:
            member.assignment = assignment
        self._refresh(member.unit)
        return set(member.unit.devices)

    def _refresh(self, unit: Unit) -> None:
        """Take over what changed in the unit's members, after charging its turn as it was."""
        unit.refresh()
        if unit.runnable:
            for device in unit.devices:
                self._states[device].set_clock(device)
            unit.reweigh(self._states)

    def _leave(self, member: Member) -> set[Device]:
        """Take the job out of its unit, and the unit away when it was the last."""
        unit = member.unit
        self._charge(unit.devices)
        del unit.jobs[member.id]
        if unit.jobs:
            self._refresh(unit)
            return set(unit.devices)
        if unit.runnable:
            unit.withdraw(self._states)
        del self._units[unit.key]
        for device in unit.devices:
            self._states[device].units.pop(unit)
            self._states[device].gangs.pop(unit, None)
        return set(unit.devices)

    def _end_turn(self, event: TurnEnded) -> set[Device]:
        member = self._jobs.get(event.job)
        if member is None:
            return set()  # it ended while it was asked to suspend
        if member.turn is None:
            raise ValueError(f"job {event.job!r}: its turn ended, but it has none")
        if member.asked_at is not None:
            self._delay = max(event.at - member.asked_at, 0.9 * self._delay)
        return self._give_up(member) | self._change(member, ready=event.ready)

    def _give_up(self, member: Member) -> set[Device]:
        """The job's turn is over; the devices are free when it was the last of its unit."""
        turn = member.turn
        if turn is None:
            return set()
        turn.charge(self._now)
        member.turn = member.asked_at = None
        member.held = ()
        del turn.jobs[member.id]
        if not turn.jobs:
            turn.unit.turn = None
            turn.unit.turn_ended_at = self._now
            for device in turn.unit.devices:
                self._states[device].turn = None
        return set(turn.unit.devices)

    def _open_turns(self) -> list[OpenTurn]:
        return list(dict.fromkeys(state.turn for state in self._states.values() if state.turn is not None))

    def _charge(self, devices: Iterable[Device]) -> None:
        for device in devices:
            turn = self._states[device].turn
            if turn is not None:
                turn.charge(self._now)

    def _linked(self, devices: set[Device]) -> list[Device]:
        """These devices and all that gangs tie to them."""
        found, new = set(devices), list(devices)
        while new:
            for unit in self._states[new.pop()].gangs:
                new += set(unit.devices) - found
                found.update(unit.devices)
        return sorted(found)


def _checked(quantum: float) -> float:
    if not quantum > 0:
        raise ValueError(f"a quantum is more than 0 seconds, got {quantum!r}")
    return quantum
