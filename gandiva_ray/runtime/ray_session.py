"""A search's line to the cluster: what the driver hands to the scheduler, and hears from it and from the agents."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import cloudpickle
import ray

from gandiva_ray.core.events import Event, JobPromoted, JobSubmitted, StopRequested, WeightChanged
from gandiva_ray.core.model import JobId, JobSpec, NodeId, TrialId
from gandiva_ray.core.multi_job import Retry
from gandiva_ray.core.search import (
    Action,
    CapacityChanged,
    Create,
    Promote,
    Reweigh,
    StopTrial,
    TrialEvent,
    TrialReported,
)
from gandiva_ray.runtime.actors import Actor
from gandiva_ray.runtime.demand import Demand
from gandiva_ray.runtime.joining import ask_scheduler, kill_own_ray
from gandiva_ray.runtime.messages import NodeView, Payload, Updates
from gandiva_ray.runtime.own_actors import OwnActor, own_actor
from gandiva_ray.search_session import DeviceView, SearchSpec

LONG_POLL = 1.0
# Step costs are for searchers that plan by them; they change slowly.
COSTS_PERIOD = 5.0
# A search that is cut while its zygote still imports, or an agent does not answer, shall not wait for that.
CLOSE_LIMIT = 0.6


class RaySession:
    """One search's line to the cluster. Not for several threads."""

    def __init__(self, scheduler: Actor, multi_job: str, spec: SearchSpec, demand: Demand) -> None:
        self._scheduler = scheduler
        self._multi_job = multi_job
        self._trainable = ray.put(spec.trainable)
        self._path = spec.path.absolute()
        self._seed = spec.seed
        self._demand = demand
        self._start_method = spec.start_method
        self._nodes: dict[NodeId, NodeView] = {}
        self._opened: dict[NodeId, tuple[OwnActor, ray.ObjectRef[Any]]] = {}
        self._devices: dict[NodeId, list[DeviceView]] = {}
        self._polls: dict[ray.ObjectRef[Any], NodeId | None] = {}
        self._trial_actors: dict[ray.ObjectRef[Any], NodeId] = {}  # by what is ready when one dies
        self._attempts: dict[TrialId, int] = {}
        self._costs: dict[TrialId, float] = {}
        self._costs_told = time.monotonic()
        self._num_updates = 0
        self._closed = False
        ask_scheduler(scheduler.open.remote(multi_job, f"process {os.getpid()} on {socket.gethostname()}"))
        # At once, so that templates warm up while the first configurations are drawn.
        self._unread = list(self._hear_scheduler(scheduler.watch.remote(multi_job, 0, 0.0)))

    @property
    def num_devices(self) -> int:
        """As many trials as can run at the same moment."""
        return sum(self._demand.at_once(view.num_devices) for view in self._nodes.values())

    def submit(self, trials: Sequence[Create]) -> None:
        """Hand the trials to the scheduler, to be planned for together."""
        self._submit([Retry(trial, attempt=1, step=0, checkpoint=None, reason="") for trial in trials])

    def retry(self, trials: Sequence[Retry]) -> None:
        self._submit(trials)

    def _submit(self, attempts: Sequence[Retry]) -> None:
        events: list[Event] = []
        payloads: dict[JobId, Payload] = {}
        for attempt in attempts:
            trial = attempt.create
            self._attempts[trial.trial] = attempt.attempt
            job = self._job(trial.trial)
            gang, share = self._demand.num_devices, self._demand.share
            spec = JobSpec(job, self._multi_job, gang, trial.weight, trial.exclusive, trial.until, share)
            events.append(JobSubmitted(0.0, spec))
            payloads[job] = Payload(
                self._multi_job,
                trial.trial,
                cloudpickle.dumps(dict(trial.config)),
                str(self._path / trial.trial),
                self._seed,
                attempt.attempt,
                attempt.step,
                attempt.checkpoint,
                self._demand.threads,
            )
        self._update(events, payloads)

    def act(self, actions: Sequence[Action]) -> None:
        """Hand a searcher's actions to the scheduler, to be planned for together."""
        self._update([self._event(action) for action in actions], payloads={})

    def poll(self, timeout: float) -> list[TrialEvent]:
        """What happened since the last call; waits up to `timeout` seconds for something.

        Raises RuntimeError where the cluster's scheduler is gone or has given this search up.
        """
        ready, _ = ray.wait(list(self._polls), num_returns=1, timeout=timeout)
        if ready:  # others may have come meanwhile
            ready, _ = ray.wait(list(self._polls), num_returns=len(self._polls), timeout=0)
        events: list[TrialEvent]
        events, self._unread = self._unread, []
        for ref in ready:
            node = self._polls.pop(ref)
            events += self._hear_scheduler(ref) if node is None else self._hear_agent(node, ref)
        self._revive()
        return [*events, *self._capacity(events)]

    def devices(self) -> list[DeviceView]:
        """What the devices of the cluster were doing a moment ago."""
        if len(self._devices) == 1:
            return [view for views in self._devices.values() for view in views]
        return [
            replace(view, name=f"{node[:6]} {view.name}") for node, views in self._devices.items() for view in views
        ]

    def close(self) -> None:
        """End what is left of the search and wait until it is gone."""
        if self._closed:
            return
        self._closed = True
        deadline = time.monotonic() + CLOSE_LIMIT
        closing = self._scheduler.close.remote(self._multi_job)
        for own, opened in self._opened.values():
            own.searches.discard(self._multi_job)
            try:
                ray.get(opened, timeout=_until(deadline))  # or Ray might close it before it opens it
                ray.get(own.actor.close.remote(self._multi_job), timeout=_until(deadline))
            except ray.exceptions.RayError:  # it is gone, or busy with importing; the next search makes a new one
                own.kill_if_idle()
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(closing, timeout=_until(deadline))

    def leave(self) -> None:
        """This process ends at once, and a Ray that it started with it."""
        kill_own_ray()

    # --- polls

    def _poll_agent(self, node: NodeId, confirmed: int) -> None:
        self._polls[self._nodes[node].agent.take.remote(self._multi_job, confirmed, LONG_POLL)] = node

    def _hear_scheduler(self, ref: ray.ObjectRef[Any]) -> Sequence[TrialEvent]:
        answer = ask_scheduler(ref)
        if answer is None:
            raise RuntimeError(
                f"the cluster's scheduler has closed the search {self._multi_job}: its driver was silent"
            )
        batch, nodes = answer
        before, self._nodes = self._nodes, {view.node: view for view in nodes}
        for node, view in before.items():
            if node not in self._nodes or self._nodes[node].address != view.address:  # lost, or its agent was
                self._devices.pop(node, None)
                del self._opened[node]
        for view in nodes:
            if view.node not in self._opened:
                self._attach(view)
                self._poll_agent(view.node, 0)
        self._polls[self._scheduler.watch.remote(self._multi_job, batch.last, LONG_POLL)] = None
        num_before = sum(self._demand.at_once(view.num_devices) for view in before.values())
        changed = [CapacityChanged(self.num_devices, {})] if num_before != self.num_devices else []
        return [*batch.events, *changed]

    def _hear_agent(self, node: NodeId, ref: ray.ObjectRef[Any]) -> Sequence[TrialEvent]:
        try:
            batch, self._devices[node] = ray.get(ref)
        except ray.exceptions.RayActorError:
            return []  # the scheduler will say which trials were lost with it
        except ray.exceptions.RayTaskError as error:
            raise RuntimeError(f"the agent of node {node[:6]} refused: {error.cause}") from None
        if node in self._nodes:
            self._poll_agent(node, batch.last)
        events: Sequence[TrialEvent] = batch.events
        return events

    def _attach(self, view: NodeView) -> None:
        """Open the search in the driver's trial actor on the node."""
        own = own_actor(view)
        own.searches.add(self._multi_job)
        opened = own.actor.open.remote(self._multi_job, view.address, self._trainable, self._start_method)
        self._opened[view.node] = own, opened
        self._trial_actors[own.actor.live.remote(self._multi_job)] = view.node
        self._scheduler.attach.remote(self._multi_job, own.actor)

    def _revive(self) -> None:
        """Open the search in a new trial actor where one died."""
        if not self._trial_actors:
            return
        dead, _ = ray.wait(list(self._trial_actors), num_returns=len(self._trial_actors), timeout=0)
        for ref in dead:
            view = self._nodes.get(self._trial_actors.pop(ref))
            if view is not None and not self._opened[view.node][0].lives:
                self._attach(view)

    # --- updates

    def _update(self, events: Sequence[Event], payloads: Mapping[JobId, Payload]) -> None:
        """Waits for the answer: Ray may run two calls to the scheduler in another order than they were made in."""
        if events:
            self._num_updates += 1
            ask_scheduler(
                self._scheduler.update.remote(self._multi_job, Updates(self._num_updates, tuple(events), payloads))
            )

    def _event(self, action: Action) -> Event:
        job = self._job(action.trial)
        match action:
            case Promote():
                return JobPromoted(0.0, job, action.until)
            case Reweigh():
                return WeightChanged(0.0, job, action.weight, action.exclusive)
            case StopTrial():
                return StopRequested(0.0, job, action.outcome, action.reason)

    def _capacity(self, events: Sequence[TrialEvent]) -> Sequence[TrialEvent]:
        for event in events:
            if isinstance(event, TrialReported):
                self._costs[event.trial] = event.device_seconds / event.step
        now = time.monotonic()
        if not self._costs or now - self._costs_told < COSTS_PERIOD:
            return []
        costs, self._costs, self._costs_told = self._costs, {}, now
        return [CapacityChanged(self.num_devices, costs)]

    def _job(self, trial: TrialId) -> JobId:
        """Each attempt is a job of its own."""
        attempt = self._attempts[trial]
        return f"{self._multi_job}/{trial}" if attempt == 1 else f"{self._multi_job}/{trial}/{attempt}"


def _until(deadline: float) -> float:
    return max(0.1, deadline - time.monotonic())
