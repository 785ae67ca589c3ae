"""What a policy wishes, and the orders that lead there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gandiva_ray.core.decisions import Assign, Decision, Launch, Stop
from gandiva_ray.core.model import Assignment, Device, Job, JobId, Status
from gandiva_ray.core.state import ClusterView


@dataclass(frozen=True, slots=True)
class Plan:
    """A wish, not a diff: a job that it does not name keeps what it has.

    It is to be thought over at the time `until`, if nothing happens first. `why` gives the reason of a change, or of a
    job's waiting, in words.
    """

    assignments: Mapping[JobId, Assignment]
    until: float = math.inf
    why: Mapping[JobId, str] = field(default_factory=dict)


class Policy(Protocol):
    """A frozen dataclass of its knobs and this one method: memory lives in the state, so that it can be replayed."""

    def plan(self, state: ClusterView) -> Plan:
        """The best use of the cluster as it is now. The same state gets the same plan."""


class InvalidPlan(ValueError):
    """A policy wishes what cannot be: the message names the job, the wish and the rule."""


def reconcile(state: ClusterView, plan: Plan) -> list[Decision]:
    """The orders between what the nodes were last told and what is wished.

    Devices are given up before they are given: first stops, then changes (those that only take away turns before
    the rest, exclusive ones last), then launches; each in order of submission. Raises InvalidPlan.
    """
    jobs = {job.id: job for job in state.unsettled}
    for job_id, wished in plan.assignments.items():
        jobs[job_id] = _checked(state, job_id, wished)
    _check_exclusive(state, plan.assignments)
    ranked: list[tuple[tuple[int, bool, bool], tuple[float, JobId], Decision]] = []
    for job in jobs.values():
        decision = _order(job, plan)
        if decision is not None:
            ranked.append((_rank(decision), job.order, decision))
    return [decision for _, _, decision in sorted(ranked, key=lambda entry: entry[:2])]


def _order(job: Job, plan: Plan) -> Decision | None:
    wished = plan.assignments.get(job.id, job.assignment)
    assert wished is not None
    if job.stop is not None:
        outcome, why = job.stop
        return Stop(job.id, job.home[0].node, outcome, why)
    if job.status is Status.QUEUED:
        return Launch(job.id, wished, job.until, plan.why.get(job.id, "devices were found"), job.spec.share)
    if wished != job.assignment:
        return Assign(job.id, wished, job.until, plan.why.get(job.id, "planned anew"))
    if job.until != job.ordered_until:
        return Assign(
            job.id, wished, job.until, f"promoted to {'its end' if job.until is None else f'step {job.until}'}"
        )
    return None


def _rank(decision: Decision) -> tuple[int, bool, bool]:
    if isinstance(decision, Stop):
        return 0, False, False
    given = decision.assignment
    return 1 if isinstance(decision, Assign) else 2, given.exclusive, given.weight > 0


def _checked(state: ClusterView, job_id: JobId, wished: Assignment) -> Job:
    """The job of that id, if it may be given this."""
    job = state.jobs.get(job_id)
    if job is None:
        raise InvalidPlan(f"job {job_id!r} is planned but was never submitted")
    if job.stopping or job.status is Status.ENDED:
        raise InvalidPlan(f"job {job_id!r} is {'stopping' if job.stopping else 'ended'} and takes no more orders")
    if len(wished.devices) != job.spec.num_devices:
        raise InvalidPlan(f"job {job_id!r} is a gang of {job.spec.num_devices}, planned on {_names(wished.devices)}")
    node = state.nodes.get(wished.node)
    if node is None or not set(wished.devices) <= set(node.devices):
        raise InvalidPlan(
            f"job {job_id!r} is planned on {_names(wished.devices)}, not all devices of one node there is"
        )
    if job.home and wished.node != job.home[0].node:
        raise InvalidPlan(f"job {job_id!r} lives on node {job.home[0].node!r} and cannot change to {wished.node!r}")
    if job.home and wished.devices != job.home and not node.rehomes:
        raise InvalidPlan(f"job {job_id!r} cannot leave its home {_names(job.home)}: node {node.id!r} does not re-home")
    return job


def _check_exclusive(state: ClusterView, wished: Mapping[JobId, Assignment]) -> None:
    """No device may be held by two exclusive jobs that are not packed together, once the plan is carried out."""
    holders: dict[Device, tuple[JobId, str | None]] = {}
    for device in dict.fromkeys(device for assignment in wished.values() for device in assignment.devices):
        for job in state.jobs_on(device):
            if job.id not in wished and job.assignment is not None and job.assignment.exclusive:
                holders[device] = job.id, job.assignment.pack
    for job_id, assignment in wished.items():
        for device in assignment.devices if assignment.exclusive else ():
            holder, pack = holders.setdefault(device, (job_id, assignment.pack))
            if holder != job_id and (pack is None or pack != assignment.pack):
                raise InvalidPlan(f"jobs {holder!r} and {job_id!r} are both exclusive on {_names([device])}")


def _names(devices: tuple[Device, ...] | list[Device]) -> str:
    return ", ".join(f"{device.node}:{device.index}" for device in devices)
