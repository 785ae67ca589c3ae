"""The nodes of the cluster as the scheduler holds them: an agent each, and a placement group for every device."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray._raylet import PlacementGroupID
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from gandiva_ray.core.events import Event, NodeJoined, NodeLost
from gandiva_ray.core.model import Device, MultiJobId, Node, NodeId
from gandiva_ray.runtime.actors import NAMESPACE, Actor, make_detached
from gandiva_ray.runtime.devices import Hardware, Host, deal_cores
from gandiva_ray.runtime.messages import AgentView, Holding, NodeView, Order, Settings
from gandiva_ray.runtime.node_agent import NodeAgent
from gandiva_ray.runtime.tasks import Line, Taken, Tasks

GROUPS = "gandiva-"  # what the names of our placement groups begin with

# How long to wait for a part of one more GPU while parts of others are kept from whom they are left to, and how long to
# leave them alone before the next try.
PART_WAIT, PART_PERIOD = 5.0, 10.0
# An agent that does not answer a scheduler that was restarted within this time is taken for lost.
AGENT_LIMIT = 10.0


@dataclass(slots=True)
class _Held:
    """One node, and what of it is ours. `agent_id` is empty until the agent has answered."""

    id: NodeId
    gpus: bool
    agent: Actor
    orders: Line[Order]
    agent_id: str = ""
    address: str = ""
    host: Host | None = None
    facts: Taken = field(default_factory=Taken)
    cores: tuple[int, ...] = ()
    groups: dict[int, PlacementGroup] = field(default_factory=dict)
    inventory: dict[Device, Hardware] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def meet(self, view: AgentView) -> None:
        self.agent_id, self.address, self.host = view.id, view.address, view.host

    def holding(self, inventory: Mapping[Device, Hardware]) -> Holding:
        """These devices and their groups; those that are still waited for are not ours yet."""
        groups = {device.index: self.groups[device.index] for device in inventory}
        return Holding(self.cores, groups, inventory)


class Nodes:
    """Finds nodes, takes their devices as they come free, and tells the scheduler of both through `on_change`."""

    def __init__(self, settings: Settings, on_change: Callable[[NodeJoined | NodeLost], None]) -> None:
        self._settings = settings
        self._on_change = on_change
        self._held: dict[NodeId, _Held] = {}
        self._tasks = Tasks()

    async def find_again(
        self, known: Collection[Node], ordered: Mapping[NodeId, Sequence[Order]], facts: Mapping[str, int]
    ) -> None:
        """Take up what a scheduler that died has left.

        `known` are the nodes that it had, `ordered` all that it told them, `facts` how many facts it had of each agent.
        """
        alive = await _alive()
        met = await asyncio.gather(*(_meet(node) for node in alive))
        for node, (agent, view) in zip(alive, met, strict=True):
            if view is None:
                continue
            inventory = dict(view.holding.inventory)
            gpus = any(hardware.gpus for hardware in inventory.values()) if inventory else _any_gpu(alive)
            held = self._hold(node, agent, gpus, delivered=view.orders_taken)
            held.meet(view)
            held.facts = Taken(facts.get(view.id, 0))
            held.cores, held.groups, held.inventory = view.holding.cores, dict(view.holding.groups), inventory
            held.orders.send(ordered.get(node, ())[view.orders_taken :])
        await _remove_groups(keep=[group for held in self._held.values() for group in held.groups.values()])
        devices = {node.id: node.devices for node in known}
        for node in devices:
            if node not in self._held:
                self._on_change(NodeLost(0.0, node))
        for held in list(self._held.values()):
            if held.inventory and tuple(sorted(held.inventory)) != devices.get(held.id):
                self._tasks.keep(self._have(held, held.inventory))
            self._tasks.keep(self._take_all(held, alive[held.id]))

    async def remove_left(self) -> None:
        """What an earlier scheduler of this Ray cluster may have left, where it and its agents were killed for good."""
        await _remove_groups(keep=())

    async def refresh(self) -> None:
        """Ask Ray which nodes there are."""
        alive = await _alive()
        for node in [n for n in self._held if n not in alive]:
            self._lose(node)
        any_gpu = _any_gpu(alive)
        for node, resources in alive.items():
            if node not in self._held and int(resources.get("GPU" if any_gpu else "CPU", 0)) >= 1:
                held = self._hold(node, self._make_agent(node), any_gpu)
                self._tasks.keep(self._take_all(held, resources))

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

    def take(self, node: NodeId, agent: str, first: int, facts: Sequence[Event]) -> tuple[Sequence[Event], int]:
        """What of an agent's facts is new, and how many it has told by now. One that was given up is not heard."""
        held = self._held.get(node)
        if held is None or held.agent_id != agent:
            return (), 0
        return held.facts.news(first, facts), held.facts.count

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

    def _make_agent(self, node: NodeId) -> Actor:
        return make_detached(
            NodeAgent,
            node,
            ray.get_runtime_context().current_actor,
            self._settings.quantum,
            name=_agent_name(node),
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )

    def _hold(self, node: NodeId, agent: Actor, gpus: bool, delivered: int = 0) -> _Held:
        """`delivered` counts the orders that the agent has had."""

        async def deliver(first: int, orders: Sequence[Order]) -> None:
            with contextlib.suppress(ray.exceptions.RayActorError):
                await agent.carry_out.remote(first, orders)

        held = self._held[node] = _Held(node, gpus, agent, Line(self._tasks, deliver, delivered=delivered))
        self._tasks.keep(self._watch_over(held))
        return held

    async def _take_all(self, held: _Held, resources: Mapping[str, float]) -> None:
        """Take of a node what the settings say and is not ours yet."""
        count = int(resources["GPU" if held.gpus else "CPU"])
        wanted = count if self._settings.devices is None else min(count, self._settings.devices)
        in_parts = held.gpus and self._settings.reserve < 1
        new = {} if in_parts else {i: _make_group(held, 1.0) for i in range(wanted) if i not in held.groups}
        held.groups |= new
        try:
            if not held.agent_id:
                held.meet(await held.agent.start.remote())
        except ray.exceptions.RayError:
            return  # the node went; refresh() will see it
        if not held.gpus and not held.cores:
            assert held.host is not None
            taken = [core for other in self._held.values() if _same_host(other, held) for core in other.cores]
            held.cores = deal_cores(held.host, wanted, taken)
        if in_parts:
            self._tasks.keep(self._take_parts(held, wanted))
        for index, group in new.items():
            self._tasks.keep(self._take(held, index, group))

    async def _take_parts(self, held: _Held, wanted: int) -> None:
        """Take a part of each GPU. Ray puts fractional groups where a GPU is in use already, so one that lands on a GPU
        of which a part is ours holds the rest of it until the others have theirs, or for as long as none comes free.
        """
        taken = {gpu: device.index for device, hardware in held.inventory.items() for gpu in hardware.gpus}
        with contextlib.suppress(ray.exceptions.RayError):  # the node went; refresh() will see it
            while len(taken) < wanted and self._held.get(held.id) is held:
                fillers: list[PlacementGroup] = []
                try:
                    while len(taken) < wanted:
                        group = _make_group(held, self._settings.reserve)
                        if not await _is_ready(group, PART_WAIT):
                            fillers.append(group)
                            break
                        gpu = await _gpu_in(group, self._settings.reserve)
                        if gpu in taken:
                            fillers.append(group)
                            continue
                        index = taken[gpu] = len(taken)
                        held.groups[index] = group
                        await self._have(held, {Device(held.id, index): Hardware(gpus=(gpu,))})
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
            await self._have(held, {Device(held.id, index): hardware})

    async def _have(self, held: _Held, devices: Mapping[Device, Hardware]) -> None:
        """These devices are ours. Raises RayError where the agent is gone."""
        async with held.lock:  # the agent knows a device before the scheduler gives it to a job
            inventory = {**held.inventory, **devices}
            free_bytes = await held.agent.hold.remote(held.holding(inventory))
            held.inventory = inventory
        if held.gpus:
            free_bytes = int(free_bytes * self._settings.reserve)
        if self._held.get(held.id) is held:
            known = tuple(sorted(held.inventory))
            self._on_change(NodeJoined(0.0, Node(held.id, known, free_bytes, rehomes=not held.gpus)))

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


def _agent_name(node: NodeId) -> str:
    """Of this scheduler's agent there, so that those of an earlier one are not taken for its own."""
    return f"agent-{ray.get_runtime_context().get_actor_id()}-{node}"


async def _meet(node: NodeId) -> tuple[Actor, AgentView | None]:
    """The agent that is there already, if it answers."""
    try:
        agent: Actor = ray.get_actor(_agent_name(node), NAMESPACE)
    except ValueError:
        return None, None
    try:
        view: AgentView = await asyncio.wait_for(agent.start.remote(), AGENT_LIMIT)
    except (ray.exceptions.RayError, TimeoutError):
        ray.kill(agent)
        return None, None
    return agent, view


async def _remove_groups(keep: Collection[PlacementGroup]) -> None:
    """All of ours on this Ray cluster but these. Ray finds those of a driver that has left by no name any more."""
    kept = {group.id.hex() for group in keep}
    table: dict[str, dict[str, Any]] = await asyncio.to_thread(placement_group_table)
    for group in table.values():
        identity = group["placement_group_id"]
        if group["name"].startswith(GROUPS) and group["state"] != "REMOVED" and identity not in kept:
            remove_placement_group(PlacementGroup(PlacementGroupID(bytes.fromhex(identity))))


async def _alive() -> dict[NodeId, Mapping[str, float]]:
    """The nodes that Ray has, with their resources."""
    return {node["NodeID"]: node["Resources"] for node in await asyncio.to_thread(ray.nodes) if node["Alive"]}


def _any_gpu(alive: Mapping[NodeId, Mapping[str, float]]) -> bool:
    return any(resources.get("GPU", 0) >= 1 for resources in alive.values())


def _make_group(held: _Held, part: float) -> PlacementGroup:
    group: PlacementGroup = placement_group(
        [{"GPU" if held.gpus else "CPU": part}],
        name=f"{GROUPS}{held.id[:8]}-{secrets.token_hex(4)}",
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
