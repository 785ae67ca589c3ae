"""The NodeAgent: one actor a node, which gives the turns there and carries the scheduler's orders out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import ray
from ray.util.placement_group import remove_placement_group

from gandiva_ray.core.events import Event
from gandiva_ray.core.model import MultiJobId, NodeId
from gandiva_ray.runtime.actors import Actor
from gandiva_ray.runtime.devices import find_nvml, gpu_free_bytes, this_host
from gandiva_ray.runtime.memory import node_memory
from gandiva_ray.runtime.messages import AgentView, Batch, Holding, Order
from gandiva_ray.runtime.tasks import Line, Taken, Tasks, crash_on_faults
from gandiva_ray.runtime.trial_host import TrialHost
from gandiva_ray.search_session import DeviceView

PROGRESS_PERIOD = 1.0


class NodeAgent:
    """An actor around a TrialHost. Facts go to the scheduler in the order in which they happened.

    It outlives a scheduler that Ray restarts, and remembers for it what of the node is theirs; once there will be no
    scheduler any more it gives everything back, itself last.
    """

    def __init__(self, node: NodeId, scheduler: Actor, quantum: float | None) -> None:
        self._node = node
        self._id = str(ray.get_runtime_context().get_actor_id())
        self._scheduler = scheduler
        self._quantum = quantum
        self._host: TrialHost | None = None
        self._address = ""
        self._holding = Holding()
        self._orders = Taken()
        self._tasks = Tasks()
        self._facts = Line(self._tasks, self._tell)
        self._nvml = find_nvml()

    async def start(self) -> AgentView:
        """Listen for processes, if it does not yet."""
        if self._host is None:
            crash_on_faults()
            self._host = TrialHost(self._node, self._facts.send, self._quantum, self._nvml)
            self._address = await self._host.start()
            self._tasks.keep(self._tell_progress())
            self._tasks.keep(self._outlive_no_scheduler())
        return AgentView(self._id, self._address, this_host(), self._holding, self._orders.count)

    async def hold(self, holding: Holding) -> int:
        """What of the node is ours now; returns the bytes that trials may fill."""
        self._holding = holding
        self._trials.set_inventory(holding.inventory)
        gpus = [gpu for hardware in holding.inventory.values() for gpu in hardware.gpus]
        free = gpu_free_bytes(self._nvml, gpus) if gpus else None
        return this_host().free_bytes if free is None else free

    async def carry_out(self, first: int, orders: Sequence[Order]) -> None:
        """The scheduler's orders since it met this agent, of which the first here has the number `first`."""
        for order in self._orders.news(first, orders):
            self._trials.carry_out(order.decision, order.payload)

    async def take(self, multi_job: MultiJobId, confirmed: int, timeout: float) -> tuple[Batch, list[DeviceView]]:
        """The driver's long poll: its trials' events, and what the devices do."""
        batch = await self._trials.take(multi_job, confirmed, timeout)
        return batch, self._trials.view()

    async def live(self) -> None:
        """Never returns: whoever waits learns of this agent's death at once."""
        await asyncio.Event().wait()

    async def forget(self, multi_job: MultiJobId) -> None:
        self._trials.forget(multi_job)

    async def stop(self) -> None:
        self._tasks.cancel()
        self._trials.stop()

    @property
    def _trials(self) -> TrialHost:
        assert self._host is not None, "start() comes first"
        return self._host

    async def _tell(self, first: int, facts: Sequence[Event]) -> None:
        with contextlib.suppress(ray.exceptions.RayActorError):
            await self._scheduler.tell.remote(self._node, self._id, first, facts)

    async def _tell_progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_PERIOD)
            self._trials.progress()
            self._trials.relieve(node_memory().used_part)

    async def _outlive_no_scheduler(self) -> None:
        """Ray asks a scheduler again that it restarts."""
        with contextlib.suppress(ray.exceptions.RayActorError):
            await self._scheduler.live.remote()
        self._trials.stop()
        for group in self._holding.groups.values():
            remove_placement_group(group)
        ray.kill(ray.get_runtime_context().current_actor)
