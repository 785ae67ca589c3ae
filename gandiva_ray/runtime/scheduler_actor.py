"""The SchedulerActor: one a Ray cluster. It drives `core.Scheduler`, keeps its journal, and holds devices and agents.

Everything it makes is detached and in the namespace `gandiva`; when no driver has been there for a while it removes all
of it, itself last.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sqlite3
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray

from gandiva_ray.core.decisions import Decision, Launch
from gandiva_ray.core.events import (
    Event,
    JobEnded,
    JobFailed,
    JobSubmitted,
    NodeLost,
    StopRequested,
    TimerFired,
)
from gandiva_ray.core.model import JobId, MultiJobId, NodeId, Outcome, Status
from gandiva_ray.core.scheduler import Scheduler
from gandiva_ray.core.search import Noticed, SearchStarved, SearchStopped, TrialEnded
from gandiva_ray.journal import Journal
from gandiva_ray.runtime.actors import Actor
from gandiva_ray.runtime.messages import Batch, NodeView, Order, Outbox, Payload, Settings, Updates
from gandiva_ray.runtime.nodes import Nodes
from gandiva_ray.runtime.tasks import Tasks, crash_on_faults

NODE_PERIOD = 1.0
# A driver polls at least once a second. One whose trial actors are gone and that is silent for so long has died.
DRIVER_SILENCE = 4.0
IDLE_PERIOD = 10.0
# How long the trials of a search that is closed may still take to obey; its driver has given them time already.
CLOSE_LIMIT = 0.3
# Longer than it takes to learn a trial's size, or a driver to answer a rung.
STARVED_AFTER = 5.0


@dataclass(slots=True)
class _MultiJob:
    driver: str
    outbox: Outbox = field(default_factory=Outbox)
    open_jobs: set[JobId] = field(default_factory=set)
    trial_actors: set[NodeId] = field(default_factory=set)
    heard_at: float = 0.0
    all_ended: asyncio.Event = field(default_factory=asyncio.Event)
    closing: bool = False


class SchedulerActor:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._journal_path = Path()
        self._journal: Journal | None = None
        self._journal_fault = ""
        self._payloads: dict[JobId, Payload] = {}
        self._multi_jobs: dict[MultiJobId, _MultiJob] = {}
        self._idle_since = time.monotonic()
        self._still_since = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = Tasks()
        self._life = asyncio.Lock()  # nobody is welcomed while everything is being taken down or looked after
        self._nodes: Nodes | None = None
        self._core = Scheduler(settings.policy)

    # --- drivers

    async def configure(self, settings: Settings) -> tuple[Settings, bool]:
        """What it runs with, and whether that is what was asked for: an idle one changes, a busy one does not."""
        async with self._life:
            if self._nodes is None:
                try:
                    self._start()
                except OSError as error:
                    self._tasks.keep(_leave_soon())
                    raise OSError(f"the cluster's journal cannot be written: {error}; use init(journal=...)") from None
            self._idle_since = time.monotonic()
            if settings.journal is None:
                settings = replace(settings, journal=self._settings.journal)
            if settings != self._settings and not self._multi_jobs:
                await self._change(settings)
            return self._settings, settings == self._settings

    async def open(self, multi_job: MultiJobId, driver: str) -> None:
        """`driver` says, for people, where the driver runs."""
        self._multi_jobs[multi_job] = _MultiJob(driver, heard_at=time.monotonic())
        if self._journal_fault:
            self._multi_jobs[multi_job].outbox.put(Noticed(self._journal_fault))

    async def stop(self, multi_job: MultiJobId, reason: str) -> None:
        """Have the driver end its search."""
        if multi_job not in self._multi_jobs:
            raise ValueError(f"the search {multi_job} is over")
        self._multi_jobs[multi_job].outbox.put(SearchStopped(reason))

    async def attach(self, multi_job: MultiJobId, node: NodeId, trial_actor: Actor) -> None:
        """The driver's trial actor on a node: while one lives, the driver does."""
        self._multi_jobs[multi_job].trial_actors.add(node)
        self._tasks.keep(self._watch_over(multi_job, node, trial_actor))

    async def update(self, multi_job: MultiJobId, updates: Updates) -> None:
        if multi_job not in self._multi_jobs:
            raise KeyError(f"the multi-job {multi_job} is not open; its driver was thought dead, or it was closed")
        self._payloads.update(updates.payloads)
        self._handle(*updates.events)

    async def watch(self, multi_job: MultiJobId, confirmed: int, timeout: float) -> tuple[Batch, tuple[NodeView, ...]]:
        """The driver's long poll: ends that no agent tells it, and the nodes there are."""
        entry = self._multi_jobs[multi_job]
        entry.heard_at = time.monotonic()
        batch = await entry.outbox.take(confirmed, timeout)
        entry.heard_at = time.monotonic()
        return batch, self._world.views()

    async def close(self, multi_job: MultiJobId) -> None:
        """End what is left of a multi-job and forget it. Returns when it is gone."""
        entry = self._multi_jobs.get(multi_job)
        if entry is None:
            return
        entry.closing = True
        self._stop_all(entry, Outcome.STOPPED, "its search was closed")
        if entry.open_jobs:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(entry.all_ended.wait(), CLOSE_LIMIT)
        await self._world.forget(multi_job)
        self._multi_jobs.pop(multi_job, None)
        self._idle_since = time.monotonic()

    async def status(self) -> dict[str, object]:
        """For people and tests: settings, where the journal is, the nodes, multi-jobs with their unfinished jobs."""
        return {
            "settings": self._settings,
            "journal": str(self._journal_path),
            "nodes": self._world.views(),
            "multi_jobs": {name: len(entry.open_jobs) for name, entry in self._multi_jobs.items()},
            "drivers": {name: entry.driver for name, entry in self._multi_jobs.items()},
        }

    # --- agents

    async def tell(self, facts: Sequence[Event]) -> None:
        self._handle(*facts)

    # --- the loop: events in, decisions out

    def _handle(self, *events: Event) -> None:
        now = time.time()
        stamped = [replace(event, at=now) for event in events]
        before = {job for event in stamped for job in self._at_stake(event)}
        decisions = self._core.handle(*stamped)
        self._record(now, stamped, decisions)
        self._book(stamped, before)
        self._dispatch(decisions)
        self._arm(now)

    def _record(self, at: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
        """Trials matter more than the journal: one that cannot be written is given up, and that is said."""
        assert self._journal is not None
        if self._journal_fault:
            return
        try:
            self._journal.append(at, events, decisions)
        except sqlite3.Error as error:
            self._journal_fault = (
                f"The cluster's journal {self._journal_path} ends here: it cannot be written ({error})"
            )
            for entry in self._multi_jobs.values():
                entry.outbox.put(Noticed(self._journal_fault))

    def _dispatch(self, decisions: Iterable[Decision]) -> None:
        by_node: dict[NodeId, list[Order]] = {}
        for decision in decisions:
            payload = self._payloads[decision.job] if isinstance(decision, Launch) else None
            by_node.setdefault(decision.node, []).append(Order(decision, payload))
        for node, orders in by_node.items():
            self._world.send(node, orders)

    def _at_stake(self, event: Event) -> Iterable[JobId]:
        """Jobs that the event may end."""
        if isinstance(event, NodeLost):
            state = self._core.state
            return [job.id for job in state.jobs_at(event.node)] if event.node in state.nodes else []
        return [event.job] if isinstance(event, StopRequested | JobEnded | JobFailed) else []

    def _book(self, events: Iterable[Event], at_stake: Iterable[JobId]) -> None:
        """Keep count of unfinished jobs; tell the driver of ends that its agents cannot."""
        for event in events:
            if isinstance(event, JobSubmitted):
                submitted_to = self._multi_jobs[event.spec.multi_job]
                submitted_to.open_jobs.add(event.spec.id)
                submitted_to.all_ended.clear()
        told = {event.job for event in events if isinstance(event, JobEnded | JobFailed)}
        for job_id in at_stake:
            job = self._core.state.jobs[job_id]
            entry = self._multi_jobs.get(job.spec.multi_job)
            if job.status is not Status.ENDED or entry is None or job_id not in entry.open_jobs:
                continue
            entry.open_jobs.discard(job_id)
            payload = self._payloads.pop(job_id)
            if job_id not in told:
                assert job.outcome is not None
                entry.outbox.put(TrialEnded(payload.trial, job.outcome, job.reason, attempt=payload.attempt))
            if not entry.open_jobs:
                entry.all_ended.set()

    def _arm(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._core.wake_at != float("inf"):
            delay = max(0.0, self._core.wake_at - now)
            self._timer = asyncio.get_running_loop().call_later(delay, self._handle, TimerFired(0.0))

    # --- life

    def _start(self) -> None:
        crash_on_faults()
        self._open_journal()
        self._nodes = Nodes(self._settings, self._handle)
        self._tasks.keep(self._look_after())

    async def _change(self, settings: Settings) -> None:
        """Begin anew with other settings; nobody's job is here."""
        await self._world.remove()
        assert self._journal is not None
        self._journal.close()
        self._settings = settings
        self._core = Scheduler(settings.policy)
        self._open_journal()
        self._nodes = Nodes(settings, self._handle)

    def _open_journal(self) -> None:
        """A file that nobody has written: with a count behind its name where that is taken."""
        default = f"~/.gandiva_ray/journal-{time.strftime('%Y%m%d-%H%M%S')}.sqlite"
        asked = Path(self._settings.journal or default).expanduser()
        self._journal_path, count = asked, 1
        while self._journal_path.exists():
            count += 1
            self._journal_path = asked.with_stem(f"{asked.stem}-{count}")
        self._journal_path.parent.mkdir(parents=True, exist_ok=True)
        policy: Any = self._core.policy
        self._journal_fault = ""
        header = {"policy": type(policy).__name__, "knobs": dataclasses.asdict(policy), "ray": ray.__version__}
        self._journal = Journal.create(self._journal_path, header)

    async def _look_after(self) -> None:
        """Once a second: nodes that came and went, drivers that died, and whether anybody still needs this."""
        while True:
            async with self._life:
                await self._world.refresh()
                now = time.monotonic()
                self._look_for_dead_drivers(now)
                self._look_for_starved(now)
                if self._multi_jobs:
                    self._idle_since = now
                elif now - self._idle_since > IDLE_PERIOD:
                    await self._leave()
            await asyncio.sleep(NODE_PERIOD)

    def _look_for_dead_drivers(self, now: float) -> None:
        for multi_job, entry in self._multi_jobs.items():
            if not entry.trial_actors and not entry.closing and now - entry.heard_at > DRIVER_SILENCE:
                self._stop_all(entry, Outcome.LOST, "its driver died")
                self._tasks.keep(self.close(multi_job))

    def _look_for_starved(self, now: float) -> None:
        """Say why, where jobs have waited for a while and nothing runs.

        Parked jobs may wait for queued ones of their search, and those for the memory that the parked fill: then a
        search cannot go on. Where nothing is placed at all, devices may yet come.
        """
        state = self._core.state
        if not state.queues or any(job.wants_turns or job.stopping for job in state.placed):
            self._still_since = now
        elif now - self._still_since > STARVED_AFTER:
            for multi_job, job in {job.spec.multi_job: job for job in reversed(state.queued)}.items():
                why = self._core.plan.why.get(job.id, "behind others") if self._world.views() else self._world.wait
                news = SearchStarved(why) if state.placed else Noticed(f"Trials wait for devices: {why}")
                self._multi_jobs[multi_job].outbox.put(news)
            self._still_since = now

    async def _leave(self) -> None:
        await self._world.remove()
        assert self._journal is not None
        self._journal.close()
        ray.kill(ray.get_runtime_context().current_actor)

    async def _watch_over(self, multi_job: MultiJobId, node: NodeId, trial_actor: Actor) -> None:
        with contextlib.suppress(ray.exceptions.RayError):
            await trial_actor.live.remote(multi_job)
        if (entry := self._multi_jobs.get(multi_job)) is not None:
            entry.trial_actors.discard(node)

    def _stop_all(self, entry: _MultiJob, outcome: Outcome, reason: str) -> None:
        self._handle(*(StopRequested(0.0, job, outcome, reason) for job in sorted(entry.open_jobs)))

    @property
    def _world(self) -> Nodes:
        assert self._nodes is not None, "configure() comes first"
        return self._nodes


async def _leave_soon() -> None:
    """Once the answer has gone out."""
    await asyncio.sleep(0.1)
    ray.kill(ray.get_runtime_context().current_actor)
