"""The multi-jobs that drivers have open at the scheduler, and the notes from which its successor has them again."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gandiva_ray.core.decisions import Decision, Launch
from gandiva_ray.core.events import Event, JobEnded, JobFailed, JobSubmitted, NodeLost, StopRequested
from gandiva_ray.core.model import JobId, MultiJobId, NodeId, Status
from gandiva_ray.core.search import TrialEnded, TrialEvent
from gandiva_ray.core.state import ClusterView
from gandiva_ray.journal import Journal, Note
from gandiva_ray.runtime.messages import Order, Outbox, Payload

_DRIVER, _OUTBOX, _PAYLOAD = "driver", "outbox", "payload"


@dataclass(slots=True)
class MultiJob:
    """`jobs` are those that have not ended; `updates` counts the driver's updates that were applied, and
    `trial_actors` those of its trial actors that live.
    """

    id: MultiJobId
    driver: str
    outbox: Outbox = field(default_factory=Outbox)
    jobs: dict[JobId, Payload] = field(default_factory=dict)
    updates: int = 0
    trial_actors: int = 0
    heard_at: float = field(default_factory=time.monotonic)
    all_ended: asyncio.Event = field(default_factory=asyncio.Event)
    closing: bool = False


class MultiJobs:
    """What changes here is to be written down with the events that changed it: `take_notes`."""

    def __init__(self) -> None:
        self._open: dict[MultiJobId, MultiJob] = {}
        self._notes: dict[tuple[str, str], Note] = {}

    @classmethod
    def noted_in(cls, journal: Journal) -> MultiJobs:
        """Those that were open when the journal's writer died."""
        multi_jobs = cls()
        outboxes = journal.notes(_OUTBOX)
        for name, content in journal.notes(_DRIVER).items():
            driver, updates = pickle.loads(content)
            outbox = Outbox(*pickle.loads(outboxes[name])) if name in outboxes else Outbox()
            multi_jobs._open[name] = MultiJob(name, driver, outbox, updates=updates)
        for job, content in journal.notes(_PAYLOAD).items():
            payload: Payload = pickle.loads(content)
            multi_jobs._open[payload.multi_job].jobs[job] = payload
        return multi_jobs

    def take_notes(self) -> Sequence[Note]:
        """What is to be written down since the last time."""
        notes, self._notes = self._notes, {}
        return tuple(notes.values())

    def __iter__(self) -> Iterator[MultiJob]:
        return iter(tuple(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)

    def get(self, multi_job: MultiJobId) -> MultiJob | None:
        return self._open.get(multi_job)

    def __getitem__(self, multi_job: MultiJobId) -> MultiJob:
        """Raises KeyError, in words."""
        if multi_job not in self._open:
            raise KeyError(f"the multi-job {multi_job} is not open; its driver was thought dead, or it was closed")
        return self._open[multi_job]

    def open(self, multi_job: MultiJobId, driver: str) -> MultiJob:
        """Or the one that is open already, where a driver asks again that got no answer."""
        entry = self._open.setdefault(multi_job, MultiJob(multi_job, driver))
        self._note_driver(entry)
        return entry

    def close(self, multi_job: MultiJobId) -> None:
        entry = self._open.pop(multi_job, None)
        if entry is not None:
            self._note(_DRIVER, multi_job, None)
            self._note(_OUTBOX, multi_job, None)
            for job in entry.jobs:
                self._note(_PAYLOAD, job, None)

    def update(self, multi_job: MultiJobId, number: int, payloads: Mapping[JobId, Payload]) -> bool:
        """Whether this update is new. Its events are to be handled next."""
        entry = self[multi_job]
        if number <= entry.updates:
            return False
        entry.updates = number
        self._note_driver(entry)
        for job, payload in payloads.items():
            entry.jobs[job] = payload
            self._note(_PAYLOAD, job, pickle.dumps(payload))
        return True

    def tell(self, entry: MultiJob, *events: TrialEvent) -> None:
        for event in events:
            entry.outbox.put(event)
        self._note(_OUTBOX, entry.id, pickle.dumps(entry.outbox.content))

    def orders(self, decisions: Iterable[Decision]) -> Mapping[NodeId, Sequence[Order]]:
        """What each node is to be told. A launch has its payload with it, unless its job is over by now."""
        by_node: dict[NodeId, list[Order]] = {}
        for decision in decisions:
            payload = self._payload(decision.job) if isinstance(decision, Launch) else None
            by_node.setdefault(decision.node, []).append(Order(decision, payload))
        return by_node

    def book(self, events: Iterable[Event], at_stake: Iterable[JobId], state: ClusterView) -> None:
        """Keep count of unfinished jobs; tell the drivers of ends that their agents cannot."""
        for event in events:
            if isinstance(event, JobSubmitted):
                self[event.spec.multi_job].all_ended.clear()
        told = {event.job for event in events if isinstance(event, JobEnded | JobFailed)}
        ends: dict[MultiJobId, list[TrialEvent]] = {}
        for job_id in at_stake:
            job = state.jobs[job_id]
            entry = self._open.get(job.spec.multi_job)
            if job.status is not Status.ENDED or entry is None or job_id not in entry.jobs:
                continue
            payload = entry.jobs.pop(job_id)
            self._note(_PAYLOAD, job_id, None)
            if job_id not in told:
                assert job.outcome is not None
                ended = TrialEnded(payload.trial, job.outcome, job.reason, attempt=payload.attempt)
                ends.setdefault(entry.id, []).append(ended)
            if not entry.jobs:
                entry.all_ended.set()
        for multi_job, news in ends.items():
            self.tell(self._open[multi_job], *news)

    def _payload(self, job: JobId) -> Payload | None:
        return next((entry.jobs[job] for entry in self._open.values() if job in entry.jobs), None)

    def _note_driver(self, entry: MultiJob) -> None:
        self._note(_DRIVER, entry.id, pickle.dumps((entry.driver, entry.updates)))

    def _note(self, kind: str, name: str, content: bytes | None) -> None:
        self._notes[kind, name] = Note(kind, name, content)


def at_stake(event: Event, state: ClusterView) -> Iterable[JobId]:
    """Jobs that the event, which is about to be handled, may end."""
    if isinstance(event, NodeLost):
        return [job.id for job in state.jobs_at(event.node)] if event.node in state.nodes else []
    return [event.job] if isinstance(event, StopRequested | JobEnded | JobFailed) else []
