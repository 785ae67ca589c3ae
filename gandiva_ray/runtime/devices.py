"""The devices of a node: CPU cores dealt to it, or GPUs as Ray numbers them, and what NVML says of those.

All of NVML is reached through `Nvml`, so that a fake of two GPUs stands in for it in the tests.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gandiva_ray.core.model import Device
from gandiva_ray.runtime.memory import node_memory

# A CUDA context takes about this much of a GPU, and NVML does not tell a process's memory in every container.
CUDA_CONTEXT_BYTES = 512 * 1024**2


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a device, or a gang of them, is: CPU cores to pin to, or ids of GPUs for CUDA_VISIBLE_DEVICES."""

    cores: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """For people: "cpu 3", "gpu 0"."""
        return f"gpu {','.join(self.gpus)}" if self.gpus else f"cpu {','.join(map(str, self.cores))}"


@dataclass(frozen=True, slots=True)
class Host:
    """What an agent finds on its machine. `id` tells whether two Ray nodes share one."""

    id: str
    cores: tuple[int, ...]
    free_bytes: int


def this_host() -> Host:
    boot = Path("/proc/sys/kernel/random/boot_id")
    identity = boot.read_text().strip() if boot.exists() else ""
    return Host(
        id=f"{socket.gethostname()}-{identity}",
        cores=tuple(sorted(os.sched_getaffinity(0))),
        free_bytes=node_memory().free_bytes,
    )


def deal_cores(host: Host, wanted: int, taken: Iterable[int]) -> tuple[int, ...]:
    """Cores for `wanted` CPU devices of one more Ray node on a host, apart from those `taken` by its other nodes.

    Where the nodes of a host claim more cores than it has, the rest are dealt a second time, the least taken first.
    """
    times = {core: 0 for core in host.cores}
    for core in taken:
        times[core] = times.get(core, 0) + 1
    dealt: list[int] = []
    for _ in range(wanted):
        core = min(host.cores, key=lambda c: (times[c], c))
        times[core] += 1
        dealt.append(core)
    return tuple(dealt)


class Nvml(Protocol):
    """The narrow seam to the NVIDIA driver. `gpu` is an index or a UUID, as CUDA_VISIBLE_DEVICES takes it."""

    def free_bytes(self, gpu: str) -> int: ...

    def process_bytes(self, gpu: str) -> Mapping[int, int]:
        """Memory by process id; empty where the driver does not tell."""


class DriverNvml:
    """NVML through pynvml. Raises pynvml.NVMLError where there is no driver."""

    def __init__(self) -> None:
        import pynvml

        self._nvml = pynvml
        pynvml.nvmlInit()

    def free_bytes(self, gpu: str) -> int:
        return int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle(gpu)).free)

    def process_bytes(self, gpu: str) -> Mapping[int, int]:
        processes = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle(gpu))
        return {p.pid: int(p.usedGpuMemory) for p in processes if p.usedGpuMemory is not None}

    def _handle(self, gpu: str) -> Any:
        if gpu.isdigit():
            return self._nvml.nvmlDeviceGetHandleByIndex(int(gpu))
        return self._nvml.nvmlDeviceGetHandleByUUID(gpu)


def find_nvml() -> Nvml | None:
    """NVML where a driver answers, else None: GPUs that Ray only counts, as in tests, have none."""
    import pynvml

    try:
        return DriverNvml()
    except pynvml.NVMLError:
        return None


def gpu_free_bytes(nvml: Nvml | None, gpus: Sequence[str]) -> int | None:
    """Free memory of the GPUs together; None where nothing tells."""
    return sum(nvml.free_bytes(gpu) for gpu in gpus) if nvml is not None else None


def gpu_process_bytes(nvml: Nvml | None, gpus: Sequence[str], pid: int) -> int:
    """What a process holds of its GPUs: at least a CUDA context on each."""
    used = sum(nvml.process_bytes(gpu).get(pid, 0) for gpu in gpus) if nvml is not None else 0
    return max(used, CUDA_CONTEXT_BYTES * len(gpus))


Inventory = Mapping[Device, Hardware]
