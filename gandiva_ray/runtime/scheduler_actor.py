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
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from gandiva_ray.core.events import Event, StopRequested, TimerFired
from gandiva_ray.core.model import MultiJobId, NodeId, Outcome
from gandiva_ray.core.scheduler import Scheduler
from gandiva_ray.core.search import Noticed, SearchStarved, SearchStopped
from gandiva_ray.journal import Journal, Note
from gandiva_ray.runtime.actors import Actor
from gandiva_ray.runtime.messages import Batch, NodeView, Settings, Updates
from gandiva_ray.runtime.multi_jobs import MultiJob, MultiJobs, at_stake
from gandiva_ray.runtime.nodes import Nodes
from gandiva_ray.runtime.recovery import Will, recall
from gandiva_ray.runtime.tasks import Tasks, crash_on_faults

NODE_PERIOD = 1.0
# A driver polls at least once a second. One whose trial actors are gone and that is silent for so long has died.
DRIVER_SILENCE = 4.0
IDLE_PERIOD = 10.0
# How long the trials of a search that is closed may still take to obey; its driver has given them time already.
CLOSE_LIMIT = 0.3
# A scheduler that was restarted waits so much longer for the drivers to come back.
DRIVER_RETURN = 15.0
# One that died so often within so many seconds is not to be restarted: it would die of the same again.
MOST_DEATHS, DEATHS_PERIOD = 5, 60.0
# Longer than it takes to learn a trial's size, or a driver to answer a rung.
STARVED_AFTER = 5.0

_FACTS = "facts"  # the kind of note that counts the facts of each agent
_RESTARTED = "The cluster's scheduler died and was restarted: it goes on from its journal; trials went on meanwhile"


class SchedulerActor:
    """Ray restarts it where it dies and makes the calls again that it has not answered; its successor goes on from the
    journal. Nothing is promised to a driver or an agent, and nothing ordered, that was not written down before.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._journal_path = Path()
        self._journal: Journal | None = None
        self._journal_fault = ""
        self._multi_jobs = MultiJobs()
        self._idle_since = time.monotonic()
        self._still_since = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = Tasks()
        self._life = asyncio.Lock()  # nobody is welcomed while everything is being taken down or looked after
        self._nodes: Nodes | None = None
        self._core = Scheduler(settings.policy)
        self._recovered = asyncio.Event()
        crash_on_faults()
        if ray.get_runtime_context().was_current_actor_reconstructed:
            self._tasks.keep(self._recover())
        else:
            self._recovered.set()

    # --- drivers

    async def configure(self, settings: Settings) -> tuple[Settings, bool]:
        """What it runs with, and whether that is what was asked for: an idle one changes, a busy one does not."""
        await self._recovered.wait()
        async with self._life:
            if self._nodes is None:
                try:
                    await self._start()
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
        await self._recovered.wait()
        entry = self._multi_jobs.open(multi_job, driver)
        if self._journal_fault:
            self._multi_jobs.tell(entry, Noticed(self._journal_fault))
        self._write_notes()

    async def stop(self, multi_job: MultiJobId, reason: str) -> None:
        """Have the driver end its search."""
        await self._recovered.wait()
        entry = self._multi_jobs.get(multi_job)
        if entry is None:
            raise ValueError(f"the search {multi_job} is over")
        self._multi_jobs.tell(entry, SearchStopped(reason))
        self._write_notes()

    async def attach(self, multi_job: MultiJobId, trial_actor: Actor) -> None:
        """A trial actor of the driver's: while one lives, the driver does. Returns when it is gone; so Ray makes this
        call again if the scheduler is restarted meanwhile.
        """
        await self._recovered.wait()
        entry = self._multi_jobs.get(multi_job)
        if entry is None:
            return
        entry.trial_actors += 1
        with contextlib.suppress(ray.exceptions.RayError):
            await trial_actor.live.remote(multi_job)
        entry.trial_actors -= 1

    async def update(self, multi_job: MultiJobId, updates: Updates) -> None:
        await self._recovered.wait()
        if self._multi_jobs.update(multi_job, updates.number, updates.payloads):
            self._handle(*updates.events)

    async def watch(
        self, multi_job: MultiJobId, confirmed: int, timeout: float
    ) -> tuple[Batch, tuple[NodeView, ...]] | None:
        """The driver's long poll: ends that no agent tells it, and the nodes there are; None where it is closed.

        That is no error, for nobody hears the last poll of a search, and Ray would print what it raises.
        """
        await self._recovered.wait()
        entry = self._multi_jobs.get(multi_job)
        if entry is None:
            return None
        entry.heard_at = time.monotonic()
        batch = await entry.outbox.take(confirmed, timeout)
        entry.heard_at = time.monotonic()
        return batch, self._world.views()

    async def close(self, multi_job: MultiJobId) -> None:
        """End what is left of a multi-job and forget it. Returns when it is gone."""
        await self._recovered.wait()
        entry = self._multi_jobs.get(multi_job)
        if entry is None:
            return
        entry.closing = True
        self._stop_all(entry, Outcome.STOPPED, "its search was closed")
        if entry.jobs:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(entry.all_ended.wait(), CLOSE_LIMIT)
        await self._world.forget(multi_job)
        self._multi_jobs.close(multi_job)
        self._write_notes()
        self._idle_since = time.monotonic()

    async def status(self) -> dict[str, object]:
        """For people and tests: settings, where the journal is, the nodes, multi-jobs with their unfinished jobs."""
        await self._recovered.wait()
        return {
            "settings": self._settings,
            "journal": str(self._journal_path),
            "nodes": self._world.views(),
            "multi_jobs": {entry.id: len(entry.jobs) for entry in self._multi_jobs},
            "drivers": {entry.id: entry.driver for entry in self._multi_jobs},
        }

    # --- agents

    async def tell(self, node: NodeId, agent: str, first: int, facts: Sequence[Event]) -> None:
        """The facts of an agent since it was made, of which the first here has the number `first`."""
        await self._recovered.wait()
        news, count = self._world.take(node, agent, first, facts)
        if news:
            self._handle(*news, notes=[Note(_FACTS, agent, str(count).encode())])

    async def live(self) -> None:
        """Never returns: whoever waits learns that there will be no scheduler any more."""
        await asyncio.Event().wait()

    # --- the loop: events in, decisions out

    def _handle(self, *events: Event, notes: Sequence[Note] = ()) -> None:
        now = time.time()
        stamped = [replace(event, at=now) for event in events]
        before = {job for event in stamped for job in at_stake(event, self._core.state)}
        decisions = self._core.handle(*stamped)
        orders = self._multi_jobs.orders(decisions)
        self._multi_jobs.book(stamped, before, self._core.state)
        notes = [*notes, *self._multi_jobs.take_notes()]
        self._write(lambda journal: journal.append(now, stamped, decisions, notes))
        for node, for_node in orders.items():
            self._world.send(node, for_node)
        self._arm(now)

    def _write_notes(self) -> None:
        notes = self._multi_jobs.take_notes()
        self._write(lambda journal: journal.note(*notes))

    def _write(self, entry: Callable[[Journal], None]) -> None:
        """Trials matter more than the journal: one that cannot be written is given up, and that is said."""
        assert self._journal is not None
        if self._journal_fault:
            return
        try:
            entry(self._journal)
        except sqlite3.Error as error:
            Will.revoke()
            self._journal_fault = (
                f"The cluster's journal {self._journal_path} ends here: it cannot be written ({error})"
            )
            for multi_job in self._multi_jobs:
                self._multi_jobs.tell(multi_job, Noticed(self._journal_fault))

    def _arm(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._core.wake_at != float("inf"):
            delay = max(0.0, self._core.wake_at - now)
            self._timer = asyncio.get_running_loop().call_later(delay, self._handle, TimerFired(0.0))

    # --- life

    async def _start(self) -> None:
        self._open_journal()
        self._nodes = Nodes(self._settings, self._handle)
        await self._nodes.remove_left()
        self._tasks.keep(self._look_after())

    async def _recover(self) -> None:
        """Go on where an earlier life was killed, unless it left nothing to go on from, or dies of doing so."""
        now = time.time()
        will = Will.read()
        deaths = [at for at in will.deaths if now - at < DEATHS_PERIOD] if will is not None else []
        if will is None or len(deaths) >= MOST_DEATHS:
            _end_for_good()
            return
        replace(will, deaths=(*deaths, now)).make()
        self._settings, self._journal_path = will.settings, will.journal
        self._core = Scheduler(will.settings.policy)
        self._journal = Journal.go_on(will.journal)
        ordered = recall(self._journal, self._core)
        self._multi_jobs = MultiJobs.noted_in(self._journal)
        orders = {node: self._multi_jobs.orders(decisions)[node] for node, decisions in ordered.items()}
        facts = {agent: int(count) for agent, count in self._journal.notes(_FACTS).items()}
        self._nodes = Nodes(self._settings, self._handle)
        await self._nodes.find_again(tuple(self._core.state.nodes.values()), orders, facts)
        for entry in self._multi_jobs:
            entry.heard_at += DRIVER_RETURN
            self._multi_jobs.tell(entry, Noticed(_RESTARTED))
        self._handle(TimerFired(0.0))
        self._recovered.set()
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
        Will(self._settings, self._journal_path.absolute()).make()

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
        for entry in self._multi_jobs:
            if not entry.trial_actors and not entry.closing and now - entry.heard_at > DRIVER_SILENCE:
                self._stop_all(entry, Outcome.LOST, "its driver died")
                self._tasks.keep(self.close(entry.id))

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
                self._multi_jobs.tell(self._multi_jobs[multi_job], news)
            self._write_notes()
            self._still_since = now

    async def _leave(self) -> None:
        await self._world.remove()
        assert self._journal is not None
        self._journal.close()
        _end_for_good()

    def _stop_all(self, entry: MultiJob, outcome: Outcome, reason: str) -> None:
        self._handle(*(StopRequested(0.0, job, outcome, reason) for job in sorted(entry.jobs)))

    @property
    def _world(self) -> Nodes:
        assert self._nodes is not None, "configure() comes first"
        return self._nodes


async def _leave_soon() -> None:
    """Once the answer has gone out."""
    await asyncio.sleep(0.1)
    _end_for_good()


def _end_for_good() -> None:
    """Ray does not restart it after this."""
    Will.revoke()
    ray.kill(ray.get_runtime_context().current_actor)
