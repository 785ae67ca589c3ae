"""What to do, in the imperative, each with its reason. All of them are safe to repeat: the last word counts."""

from __future__ import annotations

from dataclasses import dataclass

from gandiva_ray.core.model import Assignment, JobId, NodeId, Outcome


@dataclass(frozen=True, slots=True)
class Launch:
    """Start the job's process on the node of its devices; it takes turns there until the step `until`.

    `share` is the part of its device that it was submitted with.
    """

    job: JobId
    assignment: Assignment
    until: int | None
    why: str
    share: float = 1.0

    @property
    def node(self) -> NodeId:
        return self.assignment.node


@dataclass(frozen=True, slots=True)
class Assign:
    """Change the home, weight or milestone of a job that has been launched, within its node."""

    job: JobId
    assignment: Assignment
    until: int | None
    why: str

    @property
    def node(self) -> NodeId:
        return self.assignment.node


@dataclass(frozen=True, slots=True)
class Stop:
    """End the job at its next boundary. `node` is where its home is."""

    job: JobId
    node: NodeId
    outcome: Outcome
    why: str


Decision = Launch | Assign | Stop
