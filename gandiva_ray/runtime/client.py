"""The driver's side: joins or starts Ray, finds or makes the cluster's scheduler, and opens searches on it."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import cloudpickle
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from gandiva_ray.arguments import explain_unknown
from gandiva_ray.core.events import Event, JobPromoted, JobSubmitted, StopRequested, WeightChanged
from gandiva_ray.core.model import JobId, JobSpec, NodeId, TrialId
from gandiva_ray.core.multi_job import Retry
from gandiva_ray.core.plan import Policy
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
from gandiva_ray.policies import Gandiva, make_policy
from gandiva_ray.runtime.actors import NAMESPACE, Actor, make_actor, make_detached
from gandiva_ray.runtime.demand import Demand, find_demand
from gandiva_ray.runtime.joining import answer_of, join_ray
from gandiva_ray.runtime.messages import NodeView, Payload, Settings, Updates
from gandiva_ray.runtime.scheduler_actor import SchedulerActor
from gandiva_ray.runtime.trial_actor import TrialActor
from gandiva_ray.search_session import DeviceView, SearchSpec
from gandiva_ray.trial.processes import descendants, send_signal
from gandiva_ray.trial.protocol import Environment

LONG_POLL = 1.0
# Step costs are for searchers that plan by them; they change slowly.
COSTS_PERIOD = 5.0
# A search that is cut while its zygote still imports, or an agent does not answer, shall not wait for that.
CLOSE_LIMIT = 0.6
# Longer than trials may take to reach a boundary once their search ends.
STOP_LIMIT = 15.0

_settings = Settings(Gandiva())
_joined_ray = False


@explain_unknown()
def init(
    address: str | None = None,
    *,
    policy: str | Policy = "gandiva",
    quantum: float | str = "auto",
    devices: int | str = "auto",
    journal: str | os.PathLike[str] | None = None,
    reserve: float = 1.0,
) -> None:
    """Join the Ray cluster at `address` ("auto", or RAY_ADDRESS where it is set), or start one on this machine.

    `policy` is a name or an instance; `quantum` the longest turn in seconds, "auto" fits it to the measured cost of a
    switch; `devices` the largest number of devices to take of a node, "auto" takes all; `journal` the file on the head
    node for the cluster's events and decisions (default: a new one under ~/.gandiva_ray); `reserve` the part to take of
    each GPU, the rest of which is left to other Ray work.

    Called with its defaults by the first search where the user does not. Raises ValueError for an argument that does
    not fit, RuntimeError where the cluster's scheduler is busy under other settings, ConnectionError where no Ray
    answers at `address`.
    """
    global _settings
    _settings = Settings(
        make_policy(policy),
        _positive("quantum", quantum),
        _whole("devices", devices),
        os.fspath(journal) if journal is not None else None,
        _part("reserve", reserve),
    )
    _join_ray(address)
    if _settings.reserve < 1 and not any(node.get("GPU", 0) >= 1 for node in _live_nodes()):
        raise ValueError("reserve is the part of each GPU to take, and no node of this Ray cluster has a GPU")
    _scheduler()


def shutdown() -> None:
    """Leave Ray. One that `init` started stops; on a cluster our actors go by themselves when nobody needs them."""
    global _joined_ray
    if _joined_ray and ray.is_initialized():
        ray.shutdown()
    _joined_ray = False


def cluster_status(address: str) -> dict[str, Any] | None:
    """What the scheduler of the Ray cluster at `address` says of itself; None where there is none.

    Raises ConnectionError where no Ray answers.
    """
    _join_ray(address)
    try:
        scheduler: Actor = ray.get_actor("scheduler", NAMESPACE)
    except ValueError:
        return None
    status: dict[str, Any] = _ask(scheduler.status.remote())
    return status


def stop_search(multi_job: str, reason: str, address: str) -> None:
    """Have the driver of a multi-job end its search; returns when that is over.

    Raises RuntimeError where there is none of this name, or its driver does not obey.
    """
    _join_ray(address)
    scheduler: Actor = ray.get_actor("scheduler", NAMESPACE)
    _ask(scheduler.stop.remote(multi_job, reason))
    deadline = time.monotonic() + STOP_LIMIT
    while multi_job in _ask(scheduler.status.remote())["multi_jobs"]:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the search {multi_job} was told to stop {STOP_LIMIT:g} seconds ago and still runs")
        time.sleep(0.1)


def open_search(spec: SearchSpec) -> SearchSession:
    """A new multi-job on the cluster.

    Raises ValueError where no node will ever have the resources that a trial asks for.
    """
    if not ray.is_initialized():
        _join_ray(None)
    demand = find_demand(spec.resources, _live_nodes(), _settings.devices, _settings.reserve)
    return SearchSession(_scheduler(), f"{spec.name}-{secrets.token_hex(4)}", spec, demand)


class SearchSession:
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
        self._opened: dict[NodeId, tuple[_Own, ray.ObjectRef[Any]]] = {}
        self._devices: dict[NodeId, list[DeviceView]] = {}
        self._polls: dict[ray.ObjectRef[Any], NodeId | None] = {}
        self._trial_actors: dict[ray.ObjectRef[Any], NodeId] = {}  # by what is ready when one dies
        self._attempts: dict[TrialId, int] = {}
        self._costs: dict[TrialId, float] = {}
        self._costs_told = time.monotonic()
        self._num_updates = 0
        self._closed = False
        _ask(scheduler.open.remote(multi_job, f"process {os.getpid()} on {socket.gethostname()}"))
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
        """This process ends at once; a Ray that `init` started would take seconds to say goodbye."""
        node: Any = ray._private.worker._global_node
        if _joined_ray and node is not None:
            own = [part.process.pid for kind in node.all_processes.values() for part in kind]
            below = [pid for part in own for pid in descendants(part)]  # they would miss it only after a while
            send_signal([*own, *below], signal.SIGKILL)

    # --- polls

    def _poll_agent(self, node: NodeId, confirmed: int) -> None:
        self._polls[self._nodes[node].agent.take.remote(self._multi_job, confirmed, LONG_POLL)] = node

    def _hear_scheduler(self, ref: ray.ObjectRef[Any]) -> Sequence[TrialEvent]:
        batch, nodes = _ask(ref)
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
        own = _trial_actor(view)
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
            if view is not None and not _lives(self._opened[view.node][0].actor):
                self._attach(view)

    # --- updates

    def _update(self, events: Sequence[Event], payloads: Mapping[JobId, Payload]) -> None:
        """Waits for the answer: Ray may run two calls to the scheduler in another order than they were made in."""
        if events:
            self._num_updates += 1
            _ask(self._scheduler.update.remote(self._multi_job, Updates(self._num_updates, tuple(events), payloads)))

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


@dataclass(frozen=True, slots=True)
class _Own:
    """A trial actor of this driver. `address` is that of the agent with which it came, and goes.

    `searches` are those that are open there: threads of a driver may each run one.
    """

    actor: Actor
    address: str
    environment: Environment
    searches: set[str] = field(default_factory=set)

    def kill_if_idle(self) -> None:
        if not self.searches:
            ray.kill(self.actor)


_own: dict[NodeId, _Own] = {}


def _trial_actor(view: NodeView) -> _Own:
    """This driver's on the node, made if there is none, or none that still fits, from an earlier search.

    It is inside the group of one of the node's devices: the node is ours as long as that is.
    """
    environment = Environment(_sys_path(), os.getcwd())
    own = _own.get(view.node)
    if own is not None and own.address == view.address:
        if own.environment == environment and _lives(own.actor):
            return own
        own.kill_if_idle()
    actor = make_actor(
        TrialActor,
        environment,
        num_cpus=0,
        num_gpus=0.001 if view.gpus else 0,
        scheduling_strategy=PlacementGroupSchedulingStrategy(view.group, placement_group_capture_child_tasks=True),
    )
    _own[view.node] = own = _Own(actor, view.address, environment)
    return own


def _until(deadline: float) -> float:
    return max(0.1, deadline - time.monotonic())


def _lives(actor: Actor) -> bool:
    try:
        return bool(ray.get(actor.lives.remote()))
    except ray.exceptions.RayActorError:
        return False


def _ask(answer: ray.ObjectRef[Any]) -> Any:
    """The scheduler's answer. Raises RuntimeError where it is gone or refuses."""
    return answer_of("the cluster's scheduler", answer)


def _join_ray(address: str | None) -> None:
    global _joined_ray
    if not ray.is_initialized():
        join_ray(address)
        _joined_ray = True


def _scheduler() -> Actor:
    """The cluster's scheduler, made if there is none, under the settings of `init`."""
    for _ in range(20):
        actor = make_detached(
            SchedulerActor,
            _settings,
            name="scheduler",
            max_restarts=-1,
            max_task_retries=-1,
            max_concurrency=10**5,  # some calls last as long as a node, or a search on it
            scheduling_strategy=NodeAffinitySchedulingStrategy(_head_node(), soft=False),
        )
        try:
            running, same = ray.get(actor.configure.remote(_settings))
        except ray.exceptions.RayActorError:  # one that was just leaving
            time.sleep(0.2)
            continue
        except ray.exceptions.RayTaskError as error:
            raise RuntimeError(f"the cluster's scheduler does not start: {error.cause}") from None
        if not same:
            raise RuntimeError(
                f"this cluster's scheduler is busy under {running}, not {_settings}: wait until its searches are over, "
                "or call gandiva_ray.init() with its settings"
            )
        return actor
    raise RuntimeError("the cluster's scheduler does not start; see Ray's logs under /tmp/ray/session_latest/logs")


def _live_nodes() -> list[Mapping[str, float]]:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node["Resources"] for node in nodes if node["Alive"]]


def _head_node() -> NodeId:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    for node in nodes:
        if node["Alive"] and "node:__internal_head__" in node["Resources"]:
            return str(node["NodeID"])
    raise RuntimeError("the Ray cluster has no live head node")


def _sys_path() -> tuple[str, ...]:
    return tuple(os.path.abspath(entry or ".") for entry in sys.path)


def _positive(name: str, value: float | str) -> float | None:
    if value == "auto":
        return None
    if not isinstance(value, int | float) or not value > 0:
        raise ValueError(f'{name} is "auto" or a number above 0, got {value!r}')
    return float(value)


def _part(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError(f"{name} is a number above 0 and at most 1, got {value!r}")
    return float(value)


def _whole(name: str, value: int | str) -> int | None:
    if value == "auto":
        return None
    if not isinstance(value, int) or value < 1:
        raise ValueError(f'{name} is "auto" or a whole number from 1, got {value!r}')
    return value
