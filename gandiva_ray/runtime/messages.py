"""What driver, scheduler and agents hand each other beside the core's own events and decisions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ray.util.placement_group import PlacementGroup

from gandiva_ray.core.decisions import Decision
from gandiva_ray.core.events import Event
from gandiva_ray.core.model import JobId, MultiJobId, NodeId, TrialId
from gandiva_ray.core.plan import Policy
from gandiva_ray.core.search import TrialEvent
from gandiva_ray.runtime.actors import Actor
from gandiva_ray.runtime.devices import Host, Inventory


@dataclass(frozen=True, slots=True)
class Settings:
    """What one cluster's scheduler runs with. `devices` is the largest number of devices a node; None takes all.
    `reserve` is the part that it takes of each GPU.

    `quantum` is the longest turn in seconds; None: the larger of one mini-batch and 100 times the cost of a switch.
    `journal` is a file on the head node; None leaves it to the scheduler.
    """

    policy: Policy
    quantum: float | None = None
    devices: int | None = None
    journal: str | None = None
    reserve: float = 1.0


@dataclass(frozen=True, slots=True)
class Payload:
    """What a launch needs and no decision depends on. `config` is pickled, `path` the trial's folder.

    `threads` is how many torch and OpenMP may use.
    `checkpoint`, made with the report `step`, is what an attempt after the first goes on from, if there is one.
    """

    multi_job: MultiJobId
    trial: TrialId
    config: bytes
    path: str
    seed: int
    attempt: int = 1
    step: int = 0
    checkpoint: str | None = None
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Order:
    """A decision on its way to its node; a Launch has its payload with it."""

    decision: Decision
    payload: Payload | None


@dataclass(frozen=True, slots=True)
class Updates:
    """News from a driver, applied at once and planned for once. The scheduler stamps the events' time.

    `number` counts a search's updates from 1 on: one that Ray delivers twice is applied once.
    """

    number: int
    events: tuple[Event, ...]
    payloads: Mapping[JobId, Payload] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Batch:
    """Trial events that wait for a driver, in order; asking for more than `last` confirms them."""

    last: int
    events: tuple[TrialEvent, ...]


# How long news wait for company, as a poll costs its driver a millisecond: those that somebody waits for, and others.
_URGENT, _PATIENT = 0.005, 0.02


class Outbox:
    """Trial events on their way to one driver, kept until it confirms them; `confirmed` events went before these."""

    def __init__(self, confirmed: int = 0, events: Sequence[TrialEvent] = ()) -> None:
        self._events = list(events)
        self._confirmed = confirmed
        self._arrived = asyncio.Event()
        self._hurried = asyncio.Event()

    @property
    def content(self) -> tuple[int, tuple[TrialEvent, ...]]:
        """What another Outbox is made of that goes on as this one."""
        return self._confirmed, tuple(self._events)

    def put(self, event: TrialEvent, *, urgent: bool = True) -> None:
        """`urgent` where somebody waits for what the driver will say."""
        self._events.append(event)
        self._arrived.set()
        if urgent:
            self._hurried.set()

    async def take(self, confirmed: int, timeout: float) -> Batch:
        """What comes after the number `confirmed`: soon if there is something, else when there is, or at `timeout`.

        What comes waits a little for company, so that a burst, or a steady flow, costs few calls.
        """
        del self._events[: max(0, confirmed - self._confirmed)]
        self._confirmed = max(self._confirmed, confirmed)
        if not self._events:
            self._arrived.clear()
            self._hurried.clear()
            await _wait(self._arrived, timeout)
        if self._events:
            await _wait(self._hurried, _PATIENT)
        if self._hurried.is_set():
            await asyncio.sleep(_URGENT)
            self._hurried.clear()
        return Batch(self._confirmed + len(self._events), tuple(self._events))


async def _wait(event: asyncio.Event, timeout: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), timeout)


@dataclass(frozen=True, slots=True)
class Holding:
    """What of a node is ours: the CPU cores dealt to it, and the devices with the placement group of each, by index."""

    cores: tuple[int, ...] = ()
    groups: Mapping[int, PlacementGroup] = field(default_factory=dict)
    inventory: Inventory = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentView:
    """For the scheduler: what an agent is, and what it remembers for a scheduler that died.

    `id` is the agent's own: one that is made anew has another. `address` is its socket for templates and trials.
    """

    id: str
    address: str
    host: Host
    holding: Holding
    orders_taken: int


@dataclass(frozen=True, slots=True)
class NodeView:
    """For drivers: a node with devices of ours, its agent, and the group in which a trial actor is to be made."""

    node: NodeId
    agent: Actor
    address: str
    group: PlacementGroup
    gpus: bool
    num_devices: int
