"""The memory that this machine, or the container around us, has and uses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

CGROUP = Path("/sys/fs/cgroup")
# (limit, usage, statistics, the statistic that can be dropped when memory is needed) of version 2 and 1.
_LAYOUTS = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)


@dataclass(frozen=True, slots=True)
class Memory:
    total_bytes: int
    free_bytes: int

    @property
    def used_part(self) -> float:
        """From 0 to 1."""
        return 1.0 - self.free_bytes / self.total_bytes


def node_memory(cgroup: Path = CGROUP) -> Memory:
    """The machine's, or that of the container where it is tighter."""
    machine = psutil.virtual_memory()
    whole = Memory(machine.total, machine.available)
    container = _container_memory(cgroup)
    return whole if container is None or container.total_bytes >= whole.total_bytes else container


def _container_memory(cgroup: Path) -> Memory | None:
    """None where there is no limit, or none that can be read."""
    for limit, usage, statistics, droppable in _LAYOUTS:
        try:
            total = int((cgroup / limit).read_text())
            lines = dict(line.split() for line in (cgroup / statistics).read_text().splitlines())
            used = int((cgroup / usage).read_text()) - int(lines[droppable])
        except (OSError, ValueError, KeyError):  # "max" is no limit
            continue
        return Memory(total, max(0, total - used))
    return None
