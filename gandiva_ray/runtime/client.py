"""The driver's side: joins or starts Ray, finds or makes the cluster's scheduler, and opens searches on it."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from gandiva_ray.arguments import explain_unknown
from gandiva_ray.core.model import NodeId
from gandiva_ray.core.plan import Policy
from gandiva_ray.policies import Gandiva, make_policy
from gandiva_ray.runtime.actors import NAMESPACE, Actor, make_detached
from gandiva_ray.runtime.demand import find_demand
from gandiva_ray.runtime.joining import ask_scheduler, join_ray, leave_ray
from gandiva_ray.runtime.messages import Settings
from gandiva_ray.runtime.ray_session import RaySession
from gandiva_ray.runtime.scheduler_actor import SchedulerActor
from gandiva_ray.search_session import SearchSession, SearchSpec

# Longer than trials may take to reach a boundary once their search ends.
STOP_LIMIT = 15.0

_settings = Settings(Gandiva())


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
    join_ray(address)
    if _settings.reserve < 1 and not any(node.get("GPU", 0) >= 1 for node in _live_nodes()):
        raise ValueError("reserve is the part of each GPU to take, and no node of this Ray cluster has a GPU")
    _scheduler()


def shutdown() -> None:
    """Leave Ray. One that `init` started stops; on a cluster our actors go by themselves when nobody needs them."""
    leave_ray()


def cluster_status(address: str) -> dict[str, Any] | None:
    """What the scheduler of the Ray cluster at `address` says of itself; None where there is none.

    Raises ConnectionError where no Ray answers.
    """
    join_ray(address)
    try:
        scheduler: Actor = ray.get_actor("scheduler", NAMESPACE)
    except ValueError:
        return None
    status: dict[str, Any] = ask_scheduler(scheduler.status.remote())
    return status


def stop_search(multi_job: str, reason: str, address: str) -> None:
    """Have the driver of a multi-job end its search; returns when that is over.

    Raises RuntimeError where there is none of this name, or its driver does not obey.
    """
    join_ray(address)
    scheduler: Actor = ray.get_actor("scheduler", NAMESPACE)
    ask_scheduler(scheduler.stop.remote(multi_job, reason))
    deadline = time.monotonic() + STOP_LIMIT
    while multi_job in ask_scheduler(scheduler.status.remote())["multi_jobs"]:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the search {multi_job} was told to stop {STOP_LIMIT:g} seconds ago and still runs")
        time.sleep(0.1)


def open_search(spec: SearchSpec) -> SearchSession:
    """A new multi-job on the cluster.

    Raises ValueError where no node will ever have the resources that a trial asks for.
    """
    join_ray(None)
    demand = find_demand(spec.resources, _live_nodes(), _settings.devices, _settings.reserve)
    return RaySession(_scheduler(), f"{spec.name}-{secrets.token_hex(4)}", spec, demand)


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
