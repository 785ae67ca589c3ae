"""The NodeAgent: one actor a node, which gives the turns there and carries the scheduler's orders out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

import ray
from ray.actor import ActorHandle

from gandiva_ray.core.decisions import Decision
from gandiva_ray.core.events import Event
from gandiva_ray.core.model import JobId, MultiJobId, NodeId
from gandiva_ray.runtime.devices import Host, Inventory, find_nvml, gpu_free_bytes, this_host
from gandiva_ray.runtime.messages import Batch, Payload
from gandiva_ray.runtime.tasks import Tasks, crash_on_faults
from gandiva_ray.runtime.trial_host import TrialHost
from gandiva_ray.search_session import DeviceView

PROGRESS_PERIOD = 1.0


class NodeAgent:
    """Facts go to the scheduler in the order in which they happened, several in one call where they come in a burst."""

    def __init__(self, node: NodeId, scheduler: ActorHandle[object], quantum: float | None) -> None:
        self._node = node
        self._scheduler = scheduler
        self._quantum = quantum
        self._facts: list[Event] = []
        self._host: TrialHost | None = None
        self._tasks = Tasks()
        self._flushing = False
        self._nvml = find_nvml()

    async def start(self) -> tuple[str, Host]:
        """Listen for processes; returns the socket's address and what the machine has."""
        crash_on_faults()
        self._host = TrialHost(self._node, self._notify, self._quantum, self._nvml)
        address = await self._host.start()
        self._tasks.keep(self._tell_progress())
        return address, this_host()

    async def set_inventory(self, inventory: Inventory) -> int:
        """The devices that are ours; returns the bytes that trials may fill."""
        self._trials.set_inventory(inventory)
        gpus = [hardware.gpu for hardware in inventory.values() if hardware.gpu is not None]
        free = gpu_free_bytes(self._nvml, gpus) if gpus else None
        return this_host().free_bytes if free is None else free

    async def carry_out(self, decisions: Sequence[Decision], payloads: Mapping[JobId, Payload]) -> None:
        self._trials.carry_out(decisions, payloads)

    async def take(self, multi_job: MultiJobId, confirmed: int, timeout: float) -> tuple[Batch, list[DeviceView]]:
        """The driver's long poll: its trials' events, and what the devices do."""
        batch = await self._trials.take(multi_job, confirmed, timeout)
        return batch, self._trials.view()

    async def status(self) -> tuple[list[DeviceView], float]:
        """What the devices do, and the quantum in seconds."""
        return self._trials.view(), self._trials.quantum

    async def live(self) -> None:
        """Never returns: whoever waits learns of this agent's death at once."""
        await asyncio.Event().wait()

    async def forget(self, multi_job: MultiJobId) -> None:
        self._trials.forget(multi_job)

    async def stop(self) -> None:
        self._tasks.cancel()
        await self._trials.stop()

    @property
    def _trials(self) -> TrialHost:
        assert self._host is not None, "start() comes first"
        return self._host

    def _notify(self, facts: Sequence[Event]) -> None:
        self._facts += facts
        if not self._flushing:
            self._flushing = True
            self._tasks.keep(self._flush())

    async def _flush(self) -> None:
        """One call at a time, so that facts stay in order; what comes meanwhile goes with the next."""
        try:
            while self._facts:
                facts, self._facts = self._facts, []
                with contextlib.suppress(ray.exceptions.RayActorError):
                    await self._scheduler.tell.remote(facts)  # type: ignore[attr-defined]
        finally:
            self._flushing = False

    async def _tell_progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_PERIOD)
            self._trials.progress()
