"""The nodes of the cluster as the scheduler holds them: an agent each, and a placement group for every device."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from gandiva_ray.core.events import NodeJoined, NodeLost
from gandiva_ray.core.model import Device, MultiJobId, Node, NodeId
from gandiva_ray.runtime.actors import Actor, make_detached
from gandiva_ray.runtime.devices import Hardware, Host, deal_cores
from gandiva_ray.runtime.messages import NodeView, Order, Settings
from gandiva_ray.runtime.node_agent import NodeAgent
from gandiva_ray.runtime.tasks import Line, Tasks

# How long to wait for a part of one more GPU while parts of others are kept from whom they are left to, and how long to
# leave them alone before the next try.
PART_WAIT, PART_PERIOD = 5.0, 10.0


@dataclass(slots=True)
class _Held:
    """One node, and what of it is ours."""

    id: NodeId
    gpus: bool
    agent: Actor
    orders: Line[Order]
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    address: str = ""
    host: Host | None = None
    cores: tuple[int, ...] = ()
    groups: dict[int, PlacementGroup] = field(default_factory=dict)
    inventory: dict[Device, Hardware] = field(default_factory=dict)


class Nodes:
    """Finds nodes, takes their devices as they come free, and tells the scheduler of both through `on_change`."""

    def __init__(self, settings: Settings, on_change: Callable[[NodeJoined | NodeLost], None]) -> None:
        self._settings = settings
        self._on_change = on_change
        self._held: dict[NodeId, _Held] = {}
        self._tasks = Tasks()

    async def refresh(self) -> None:
        """Ask Ray which nodes there are."""
        alive = {node["NodeID"]: node["Resources"] for node in await asyncio.to_thread(ray.nodes) if node["Alive"]}
        for node in [n for n in self._held if n not in alive]:
            self._lose(node)
        any_gpu = any(resources.get("GPU", 0) >= 1 for resources in alive.values())
        for node, resources in alive.items():
            if node not in self._held and int(resources.get("GPU" if any_gpu else "CPU", 0)) >= 1:
                self._join(node, resources, any_gpu)

    def views(self) -> tuple[NodeView, ...]:
        """The nodes that have a device of ours."""
        return tuple(
            NodeView(
                held.id,
                held.agent,
                held.address,
                held.groups[min(d.index for d in held.inventory)],
                held.gpus,
                len(held.inventory),
            )
            for held in self._held.values()
            if held.inventory
        )

    @property
    def wait(self) -> str:
        """What of the cluster is not ours yet, for people."""
        wanted = sum(len(held.groups) for held in self._held.values())
        if not wanted:
            return "no node of the Ray cluster has a GPU or a CPU core"
        return f"all {wanted} that the Ray cluster has are used by other Ray work"

    def send(self, node: NodeId, orders: Sequence[Order]) -> None:
        if (held := self._held.get(node)) is not None:
            held.orders.send(orders)

    async def forget(self, multi_job: MultiJobId) -> None:
        for held in list(self._held.values()):
            with contextlib.suppress(ray.exceptions.RayError):
                await held.agent.forget.remote(multi_job)

    async def remove(self) -> None:
        """Give everything back to Ray."""
        self._tasks.cancel()
        for held in self._held.values():
            with contextlib.suppress(ray.exceptions.RayError):
                await held.agent.stop.remote()
            ray.kill(held.agent)
            self._free(held)
        self._held.clear()

    # --- one node

    def _join(self, node: NodeId, resources: Mapping[str, float], gpus: bool) -> None:
        agent = make_detached(
            NodeAgent,
            node,
            ray.get_runtime_context().current_actor,
            self._settings.quantum,
            name=f"agent-{node}",
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )

        async def deliver(orders: Sequence[Order]) -> None:
            with contextlib.suppress(ray.exceptions.RayActorError):
                await agent.carry_out.remote(orders)

        held = _Held(node, gpus, agent, Line(self._tasks, deliver))
        self._held[node] = held
        count = int(resources["GPU" if gpus else "CPU"])
        wanted = count if self._settings.devices is None else min(count, self._settings.devices)
        self._tasks.keep(self._take_all(held, wanted))
        self._tasks.keep(self._watch_over(held))

    async def _take_all(self, held: _Held, wanted: int) -> None:
        in_parts = held.gpus and self._settings.reserve < 1
        for index in range(0 if in_parts else wanted):
            held.groups[index] = _make_group(held, index, 1.0)
        try:
            held.address, held.host = await held.agent.start.remote()
        except ray.exceptions.RayError:
            return  # the node went; refresh() will see it
        if not held.gpus:
            taken = [core for other in self._held.values() if _same_host(other, held) for core in other.cores]
            held.cores = deal_cores(held.host, wanted, taken)
        if in_parts:
            self._tasks.keep(self._take_parts(held, wanted))
        for index, group in held.groups.items():
            self._tasks.keep(self._take(held, index, group))

    async def _take_parts(self, held: _Held, wanted: int) -> None:
        """Take a part of each GPU. Ray puts fractional groups where a GPU is in use already, so one that lands on a GPU
        of which a part is ours holds the rest of it until the others have theirs, or for as long as none comes free.
        """
        taken: dict[str, int] = {}
        numbers = itertools.count()
        with contextlib.suppress(ray.exceptions.RayError):  # the node went; refresh() will see it
            while len(taken) < wanted and self._held.get(held.id) is held:
                fillers: list[PlacementGroup] = []
                try:
                    while len(taken) < wanted:
                        group = _make_group(held, next(numbers), self._settings.reserve)
                        if not await _is_ready(group, PART_WAIT):
                            fillers.append(group)
                            break
                        gpu = await _gpu_in(group, self._settings.reserve)
                        if gpu in taken:
                            fillers.append(group)
                            continue
                        index = taken[gpu] = len(taken)
                        held.groups[index] = group
                        await self._have(held, index, Hardware(gpus=(gpu,)))
                finally:
                    for group in fillers:
                        remove_placement_group(group)
                await asyncio.sleep(PART_PERIOD if len(taken) < wanted else 0)

    async def _take(self, held: _Held, index: int, group: PlacementGroup) -> None:
        """Wait for a device, for as long as somebody else uses it."""
        with contextlib.suppress(ray.exceptions.RayError):  # the node went; refresh() will see it
            await group.ready()
            gpus = held.gpus
            hardware = Hardware(gpus=(await _gpu_in(group, 1.0),)) if gpus else Hardware(cores=(held.cores[index],))
            await self._have(held, index, hardware)

    async def _have(self, held: _Held, index: int, hardware: Hardware) -> None:
        """A device is ours."""
        async with held.lock:  # the agent knows a device before the scheduler gives it to a job
            inventory = {**held.inventory, Device(held.id, index): hardware}
            free_bytes = await held.agent.set_inventory.remote(inventory)
            held.inventory = inventory
        if held.gpus:
            free_bytes = int(free_bytes * self._settings.reserve)
        if self._held.get(held.id) is held:
            devices = tuple(sorted(held.inventory))
            self._on_change(NodeJoined(0.0, Node(held.id, devices, free_bytes, rehomes=not held.gpus)))

    async def _watch_over(self, held: _Held) -> None:
        """An agent's death takes its trials; the next refresh() makes a new agent if the node is still there."""
        with contextlib.suppress(ray.exceptions.RayError):
            await held.agent.live.remote()
        if self._held.get(held.id) is held:
            self._lose(held.id)

    def _lose(self, node: NodeId) -> None:
        held = self._held.pop(node)
        self._free(held)
        if held.inventory:
            self._on_change(NodeLost(0.0, node))

    def _free(self, held: _Held) -> None:
        """Or Ray would schedule them for ever."""
        for group in held.groups.values():
            remove_placement_group(group)


def _same_host(one: _Held, other: _Held) -> bool:
    return one.host is not None and other.host is not None and one.host.id == other.host.id


def _make_group(held: _Held, number: int, part: float) -> PlacementGroup:
    group: PlacementGroup = placement_group(
        [{"GPU" if held.gpus else "CPU": part}],
        name=f"gandiva-{held.id[:8]}-{number}",
        lifetime="detached",
        bundle_label_selector=[{"ray.io/node-id": held.id}],
    )
    return group


async def _is_ready(group: PlacementGroup, timeout: float) -> bool:
    return bool(await asyncio.to_thread(group.wait, timeout))


async def _gpu_in(group: PlacementGroup, part: float) -> str:
    """The id of the GPU behind a group, as Ray gives it to a task there."""

    @ray.remote(num_cpus=0, num_gpus=part, scheduling_strategy=PlacementGroupSchedulingStrategy(group))
    def gpu_id() -> str:
        (gpu,) = ray.get_gpu_ids()
        return str(gpu)

    return str(await gpu_id.remote())
