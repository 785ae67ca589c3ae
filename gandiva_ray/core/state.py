"""All that the scheduler knows of nodes and jobs. `ClusterState.apply` is the only writer; a policy sees a view."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from gandiva_ray.core.decisions import Assign, Decision, Launch, Stop
from gandiva_ray.core.events import (
    Event,
    JobEnded,
    JobFailed,
    JobParked,
    JobProgressed,
    JobPromoted,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    StopRequested,
    TimerFired,
    WeightChanged,
)
from gandiva_ray.core.model import (
    Device,
    Job,
    JobId,
    JobSpec,
    Kind,
    MultiJobId,
    Node,
    NodeId,
    Outcome,
    Status,
    check_weight,
)

Fact = Event | Decision
JobFact = (
    JobStarted
    | JobProgressed
    | JobParked
    | JobPromoted
    | WeightChanged
    | StopRequested
    | JobEnded
    | JobFailed
    | Launch
    | Assign
    | Stop
)

# Every legal move of a job. What a STOPPING or ENDED job still hears crossed the stop on the wire and is absorbed;
# after the end even another end, because a lost node and a late process may both speak. A job that is told two
# milestones in a row may park twice before the first is heard.
TRANSITIONS: Mapping[tuple[Status, type[JobFact]], Status] = {
    (Status.QUEUED, JobPromoted): Status.QUEUED,
    (Status.QUEUED, WeightChanged): Status.QUEUED,
    (Status.QUEUED, StopRequested): Status.ENDED,
    (Status.QUEUED, JobFailed): Status.ENDED,
    (Status.QUEUED, Launch): Status.LAUNCHING,
    #
    (Status.LAUNCHING, JobStarted): Status.RUNNING,
    (Status.LAUNCHING, JobProgressed): Status.LAUNCHING,
    (Status.LAUNCHING, JobPromoted): Status.LAUNCHING,
    (Status.LAUNCHING, WeightChanged): Status.LAUNCHING,
    (Status.LAUNCHING, StopRequested): Status.LAUNCHING,
    (Status.LAUNCHING, JobEnded): Status.ENDED,
    (Status.LAUNCHING, JobFailed): Status.ENDED,
    (Status.LAUNCHING, Assign): Status.LAUNCHING,
    (Status.LAUNCHING, Stop): Status.STOPPING,
    #
    (Status.RUNNING, JobProgressed): Status.RUNNING,
    (Status.RUNNING, JobParked): Status.PARKED,
    (Status.RUNNING, JobPromoted): Status.RUNNING,
    (Status.RUNNING, WeightChanged): Status.RUNNING,
    (Status.RUNNING, StopRequested): Status.RUNNING,
    (Status.RUNNING, JobEnded): Status.ENDED,
    (Status.RUNNING, JobFailed): Status.ENDED,
    (Status.RUNNING, Assign): Status.RUNNING,
    (Status.RUNNING, Stop): Status.STOPPING,
    #
    (Status.PARKED, JobProgressed): Status.PARKED,
    (Status.PARKED, JobParked): Status.PARKED,
    (Status.PARKED, JobPromoted): Status.RUNNING,
    (Status.PARKED, WeightChanged): Status.PARKED,
    (Status.PARKED, StopRequested): Status.PARKED,
    (Status.PARKED, JobEnded): Status.ENDED,
    (Status.PARKED, JobFailed): Status.ENDED,
    (Status.PARKED, Assign): Status.PARKED,
    (Status.PARKED, Stop): Status.STOPPING,
    #
    (Status.STOPPING, JobStarted): Status.STOPPING,
    (Status.STOPPING, JobProgressed): Status.STOPPING,
    (Status.STOPPING, JobParked): Status.STOPPING,
    (Status.STOPPING, JobPromoted): Status.STOPPING,
    (Status.STOPPING, WeightChanged): Status.STOPPING,
    (Status.STOPPING, StopRequested): Status.STOPPING,
    (Status.STOPPING, JobEnded): Status.ENDED,
    (Status.STOPPING, JobFailed): Status.ENDED,
    #
    (Status.ENDED, JobStarted): Status.ENDED,
    (Status.ENDED, JobProgressed): Status.ENDED,
    (Status.ENDED, JobParked): Status.ENDED,
    (Status.ENDED, JobPromoted): Status.ENDED,
    (Status.ENDED, WeightChanged): Status.ENDED,
    (Status.ENDED, StopRequested): Status.ENDED,
    (Status.ENDED, JobEnded): Status.ENDED,
    (Status.ENDED, JobFailed): Status.ENDED,
}


class IllegalFact(ValueError):
    """Something was reported or ordered that cannot have happened to this job or node."""


class ClusterView:
    """The cluster as policies see it: nothing here changes it. Jobs and nodes are frozen."""

    def __init__(self) -> None:
        self._now = 0.0
        self._nodes: dict[NodeId, Node] = {}
        self._jobs: dict[JobId, Job] = {}
        self._ended: list[JobId] = []
        self._forgotten: set[JobId] = set()
        self._queues: dict[Kind, list[Job]] = {}
        self._placed: dict[JobId, Job] = {}
        self._at: dict[NodeId, dict[JobId, Job]] = {}
        self._on: dict[Device, dict[JobId, Job]] = {}
        self._unsettled: dict[JobId, Job] = {}
        self._measured: dict[MultiJobId | None, tuple[int, int]] = {}

    @property
    def now(self) -> float:
        """The latest time of any event."""
        return self._now

    @property
    def nodes(self) -> Mapping[NodeId, Node]:
        """In the order in which they joined."""
        return MappingProxyType(self._nodes)

    @property
    def jobs(self) -> Mapping[JobId, Job]:
        """All that have not ended, and those that ended and are not forgotten yet."""
        return MappingProxyType(self._jobs)

    @property
    def queued(self) -> tuple[Job, ...]:
        """In order of submission, then of id."""
        return tuple(heapq.merge(*self._queues.values(), key=_order))

    @property
    def queues(self) -> Mapping[Kind, Sequence[Job]]:
        """The queued jobs of each kind that there is, in the same order. Looking at the first of each costs little."""
        return MappingProxyType(self._queues)

    @property
    def placed(self) -> tuple[Job, ...]:
        """The jobs that are resident on some node, in order of their launch."""
        return tuple(self._placed.values())

    def jobs_at(self, node: NodeId) -> tuple[Job, ...]:
        """The placed jobs whose home is on this node. Raises KeyError for a node that is not there."""
        return tuple(self._at[node].values())

    def jobs_on(self, device: Device) -> tuple[Job, ...]:
        """The placed jobs whose home holds this device. Raises KeyError for a device that is not there."""
        return tuple(self._on[device].values())

    @property
    def unsettled(self) -> tuple[Job, ...]:
        """The placed jobs whose stop or new milestone has not been ordered yet."""
        return tuple(self._unsettled.values())

    def mean_private_bytes(self, multi_job: MultiJobId) -> float | None:
        """The mean size of the multi-job's measured jobs, ended ones too; else of all; None where none is known."""
        total, count = self._measured.get(multi_job) or self._measured.get(None) or (0, 0)
        return total / count if count else None


class ClusterState(ClusterView):
    """The cluster, and the one door by which it changes."""

    def apply(self, fact: Fact) -> None:
        """Take note of an event, or of a decision that has just been ordered.

        Raises IllegalFact, and changes nothing but the time, where the fact is impossible: news of an unknown job, one
        id twice, a missing entry in the table of moves.
        """
        if not isinstance(fact, (Launch, Assign, Stop)):
            self._now = max(self._now, fact.at)
        match fact:
            case JobSubmitted():
                self._submit(fact.spec)
            case NodeJoined():
                self._join(fact.node)
            case NodeLost():
                self._lose(fact.node)
            case TimerFired():
                pass
            case _ if fact.job in self._forgotten:
                _move(fact, Status.ENDED)  # late news, or impossible
            case _:
                self._put(_changed(self._known(fact), fact, self._now))

    def forget_ended(self) -> None:
        """Keep nothing of the jobs that have ended but that there were such ids: who cares has seen how they ended.

        News of them is absorbed, or raises, as if they were known.
        """
        for job in self._ended:
            del self._jobs[job]
        self._forgotten.update(self._ended)
        self._ended.clear()

    def _known(self, fact: JobFact) -> Job:
        if fact.job not in self._jobs:
            raise IllegalFact(f"{type(fact).__name__} names job {fact.job!r}, which was never submitted")
        return self._jobs[fact.job]

    def _submit(self, spec: JobSpec) -> None:
        if spec.id in self._jobs or spec.id in self._forgotten:
            raise IllegalFact(f"job {spec.id!r} was submitted twice; an id is used once")
        self._put(Job(spec, Status.QUEUED, spec.weight, spec.exclusive, spec.until, submitted_at=self._now))

    def _join(self, node: Node) -> None:
        gone = set(self._nodes[node.id].devices) - set(node.devices) if node.id in self._nodes else set()
        orphans = sorted({job for device in gone for job in self._on[device]})
        if orphans:
            raise IllegalFact(
                f"node {node.id!r} cannot join again without the home of {', '.join(orphans)}; lose it first"
            )
        self._nodes[node.id] = node
        self._at.setdefault(node.id, {})
        for device in gone:
            del self._on[device]
        for device in node.devices:
            self._on.setdefault(device, {})

    def _lose(self, node_id: NodeId) -> None:
        # An agent and its node may both be missed, so a second loss is no news.
        if node_id not in self._nodes:
            return
        for job in self.jobs_at(node_id):
            self._put(_lost(job, node_id, self._now))
        del self._at[node_id]
        for device in self._nodes.pop(node_id).devices:
            del self._on[device]

    def _put(self, job: Job) -> None:
        """Replace a job, and all the indexes with it."""
        before = self._jobs.get(job.id)
        self._jobs[job.id] = job
        if before is not None and before.status is Status.QUEUED:
            self._leave_queue(before)
        if job.status is Status.QUEUED:
            bisect.insort(self._queues.setdefault(job.kind, []), job, key=_order)
        if job.status is Status.ENDED and before is not job:
            self._ended.append(job.id)
        self._put_home(job, before.home if before is not None else ())
        self._put_measured(job, before.private_bytes if before is not None else 0)
        settled = job.stop is None and job.until == job.ordered_until
        if job.home and job.status is not Status.STOPPING and not settled:
            self._unsettled[job.id] = job
        else:
            self._unsettled.pop(job.id, None)

    def _leave_queue(self, job: Job) -> None:
        queue = self._queues[job.kind]
        del queue[bisect.bisect_left(queue, job.order, key=_order)]
        if not queue:
            del self._queues[job.kind]

    def _put_home(self, job: Job, before: tuple[Device, ...]) -> None:
        home = job.home
        left: Iterable[dict[JobId, Job]] = [self._on[device] for device in before if device not in home]
        if before and not home:
            left = [*left, self._placed, self._at[before[0].node]]
        for index in left:
            del index[job.id]
        entered = [self._on[device] for device in home]
        if home:
            entered += [self._placed, self._at[home[0].node]]
        for index in entered:
            index[job.id] = job

    def _put_measured(self, job: Job, before: int) -> None:
        if job.private_bytes == before:
            return
        for key in (job.spec.multi_job, None):
            total, count = self._measured.get(key, (0, 0))
            self._measured[key] = total + job.private_bytes - before, count + (before == 0)


def _order(job: Job) -> tuple[float, JobId]:
    return job.order


def _move(fact: JobFact, status: Status) -> Status:
    """What the table says of a job in that status."""
    after = TRANSITIONS.get((status, type(fact)))
    if after is None:
        raise IllegalFact(f"{type(fact).__name__} cannot happen to job {fact.job!r} while it is {status.value}")
    return after


def _next_status(job: Job, fact: JobFact) -> Status:
    status = _move(fact, job.status)
    # A promotion crossed it on the wire: the milestone where it parked is not its milestone any more.
    if isinstance(fact, JobParked) and (job.until is None or fact.step < job.until):
        return job.status
    # It has passed this milestone already, so there is nothing for it to run.
    if isinstance(fact, JobPromoted) and fact.until is not None and fact.until <= job.step:
        return job.status
    return status


def _changed(job: Job, fact: JobFact, now: float) -> Job:
    """The job after the fact."""
    status = _next_status(job, fact)
    absorbs = job.status in (Status.STOPPING, Status.ENDED) and status is job.status
    if absorbs and not (job.status is Status.STOPPING and isinstance(fact, JobProgressed)):
        return job
    match fact:
        case JobStarted():
            return replace(job, status=status, started_at=now)
        case JobProgressed():
            return replace(
                job,
                status=status,
                device_seconds=job.device_seconds + fact.device_seconds,
                step=max(job.step, fact.step),
                private_bytes=fact.private_bytes or job.private_bytes,
            )
        case JobParked():
            return replace(job, status=status, step=max(job.step, fact.step))
        case JobPromoted():
            return replace(job, status=status, until=fact.until)
        case WeightChanged():
            check_weight(fact.weight, f"job {job.id!r}")
            return replace(job, status=status, weight=fact.weight, exclusive=fact.exclusive)
        case StopRequested():
            if status is Status.ENDED:
                return _ended(job, Outcome.NEVER_STARTED, fact.reason, now)
            return replace(job, status=status, stop=job.stop or (fact.outcome, fact.reason))
        case JobEnded() | JobFailed():
            return _ended(job, fact.outcome, fact.reason, now)
        case Launch() | Assign():
            return replace(job, status=status, assignment=fact.assignment, ordered_until=fact.until)
        case Stop():
            return replace(job, status=status)


def _ended(job: Job, outcome: Outcome, reason: str, now: float) -> Job:
    return replace(job, status=Status.ENDED, ended_at=now, outcome=outcome, reason=reason)


def _lost(job: Job, node: NodeId, now: float) -> Job:
    """What becomes of a job whose node is lost. One that was to be stopped has got its wish."""
    outcome, reason = job.stop or (Outcome.LOST, f"node {node!r} was lost")
    return _ended(job, outcome, reason, now)
