"""What happened, in the past tense. `at` is the time on the scheduler's clock at which it learnt of it."""

from __future__ import annotations

from dataclasses import dataclass

from gandiva_ray.core.model import JobId, JobSpec, Node, NodeId, Outcome


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    at: float
    spec: JobSpec


@dataclass(frozen=True, slots=True)
class JobStarted:
    """Its process is up and waits for its first turn."""

    at: float
    job: JobId


@dataclass(frozen=True, slots=True)
class JobProgressed:
    """At most once a second, for each hundredth more that it got, and before it ends.

    `device_seconds` is what it got since the last one; `step` counts its reports so far.
    """

    at: float
    job: JobId
    device_seconds: float
    step: int
    private_bytes: int


@dataclass(frozen=True, slots=True)
class JobParked:
    """It reached its milestone and waits there."""

    at: float
    job: JobId
    step: int


@dataclass(frozen=True, slots=True)
class JobPromoted:
    """Its search gave it a later milestone; None lets it run to its end."""

    at: float
    job: JobId
    until: int | None


@dataclass(frozen=True, slots=True)
class WeightChanged:
    at: float
    job: JobId
    weight: float
    exclusive: bool


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Its search or its user wants it ended; `outcome` says as what."""

    at: float
    job: JobId
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True)
class JobEnded:
    """It returned (`COMPLETED`), or it obeyed a stop (the outcome that the stop named)."""

    at: float
    job: JobId
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True)
class JobFailed:
    """It raised, exited or was killed (`FAILED`), or its process vanished with its node, agent or driver (`LOST`)."""

    at: float
    job: JobId
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """A node came, or one that is known has more devices now (`node` lists them all)."""

    at: float
    node: Node


@dataclass(frozen=True, slots=True)
class NodeLost:
    at: float
    node: NodeId


@dataclass(frozen=True, slots=True)
class TimerFired:
    at: float


Event = (
    JobSubmitted
    | JobStarted
    | JobProgressed
    | JobParked
    | JobPromoted
    | WeightChanged
    | StopRequested
    | JobEnded
    | JobFailed
    | NodeJoined
    | NodeLost
    | TimerFired
)
