"""The nouns: devices, nodes, jobs and what becomes of them. Times are seconds on the clock of the driver."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field

JobId = str
NodeId = str
MultiJobId = str
TrialId = str
Kind = tuple[MultiJobId, int, float, bool, bool]
"""What a queued job asks for: multi-job, gang size, share, exclusive, any weight. A policy treats equals alike."""


@dataclass(frozen=True, slots=True, order=True)
class Device:
    """One GPU or, on a machine without GPUs, one CPU core."""

    node: NodeId
    index: int


@dataclass(frozen=True, slots=True)
class Node:
    """A machine and the devices on it that are ours.

    `free_bytes` is the memory that trials may fill, measured before there are any; `rehomes` says whether a job may
    change its device within the node for nothing (CPU devices: it is pinned to another core).
    """

    id: NodeId
    devices: tuple[Device, ...]
    free_bytes: int
    rehomes: bool

    def __post_init__(self) -> None:
        if len(set(self.devices)) != len(self.devices) or any(device.node != self.id for device in self.devices):
            raise ValueError(f"the devices of node {self.id!r} must be distinct and its own, got {self.devices!r}")


class Outcome(enum.Enum):
    """How a job, and so its trial, ended."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    LOST = "lost"
    CUT = "cut"
    NEVER_STARTED = "never started"


class Status(enum.Enum):
    """Where a job is in its life. Whose turn it is on a device is the node's business and no status."""

    QUEUED = "queued"
    LAUNCHING = "launching"
    RUNNING = "running"
    PARKED = "parked"
    STOPPING = "stopping"
    ENDED = "ended"


def check_weight(weight: float, of: str) -> None:
    """Raises ValueError where `weight` is no weight; `of` names whose it is."""
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"the weight of {of} must be a finite number of at least 0, got {weight!r}")


@dataclass(frozen=True, slots=True)
class Assignment:
    """A job's home: its gang of devices (all on one node for live jobs), and how it shares their time.

    `weight` 0 keeps the home and takes no turns. An exclusive job is never time-sliced: no other job takes turns on its
    devices while it is there. Jobs of one node with the same `pack` and the same devices run at the same moment.
    """

    devices: tuple[Device, ...]
    weight: float = 1.0
    exclusive: bool = False
    pack: str | None = None

    def __post_init__(self) -> None:
        if not self.devices or len(set(self.devices)) != len(self.devices):
            raise ValueError(f"an assignment needs distinct devices, got {self.devices!r}")
        check_weight(self.weight, "an assignment")

    @property
    def node(self) -> NodeId:
        return self.devices[0].node


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What is asked for when a job is submitted. `until` is its first milestone: the step at which it parks.

    `share` is the part of its one device that it asks for, in (0, 1]: jobs whose shares sum to at most 1 may run there
    at the same moment.
    """

    id: JobId
    multi_job: MultiJobId
    num_devices: int = 1
    weight: float = 1.0
    exclusive: bool = False
    until: int | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.num_devices < 1:
            raise ValueError(f"job {self.id!r} must ask for at least 1 device, got {self.num_devices!r}")
        if not 0 < self.share <= 1 or (self.share < 1 < self.num_devices):
            raise ValueError(
                f"job {self.id!r} must ask for whole devices, or a share of one in (0, 1], "
                f"got a share of {self.share!r} of {self.num_devices}"
            )
        check_weight(self.weight, f"job {self.id!r}")


@dataclass(frozen=True, slots=True)
class Job:
    """What is known of a job. Written by `ClusterState.apply` alone.

    `weight`, `exclusive` and `until` are what is wished for now; `assignment` and `ordered_until` are what the node was
    last told. `device_seconds` is the attained service (Tiresias 3.1); `private_bytes` is 0 until measured.
    """

    spec: JobSpec
    status: Status
    weight: float
    exclusive: bool
    until: int | None
    submitted_at: float
    assignment: Assignment | None = None
    ordered_until: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    step: int = 0
    device_seconds: float = 0.0
    private_bytes: int = 0
    stop: tuple[Outcome, str] | None = field(default=None)
    outcome: Outcome | None = None
    reason: str = ""

    @property
    def id(self) -> JobId:
        return self.spec.id

    @property
    def order(self) -> tuple[float, JobId]:
        """What sorts jobs by their submission."""
        return self.submitted_at, self.spec.id

    @property
    def kind(self) -> Kind:
        """What it asks for, as long as it is queued."""
        return self.spec.multi_job, self.spec.num_devices, self.spec.share, self.exclusive, self.weight > 0

    @property
    def home(self) -> tuple[Device, ...]:
        """The devices where its state lives; none before its launch and after its end."""
        return self.assignment.devices if self.assignment is not None and self.placed else ()

    @property
    def placed(self) -> bool:
        """Whether it is resident on a node: launched and not yet ended."""
        return self.status in (Status.LAUNCHING, Status.RUNNING, Status.PARKED, Status.STOPPING)

    @property
    def stopping(self) -> bool:
        """Whether it is about to end: a stop is asked for or ordered, and no other order counts any more."""
        return self.stop is not None or self.status is Status.STOPPING

    @property
    def wants_turns(self) -> bool:
        """Whether it would run if it were given its devices now."""
        return self.status in (Status.LAUNCHING, Status.RUNNING) and self.stop is None and self.weight > 0
