"""What the processes of a search hold: read from outside, while it runs."""

from __future__ import annotations

import os
from collections.abc import Mapping

import psutil

from gandiva_ray.runtime import processes

_ACTORS = {"agent": "ray::NodeAgent", "scheduler": "ray::SchedulerActor"}


def our_processes() -> dict[str, int]:
    """Process ids of this driver, and of the agent and the scheduler on the Ray that it started, by name.

    Raises LookupError where an actor is not there.
    """
    titles = {process.pid: _title(process) for process in psutil.Process().children(recursive=True)}
    found = {"driver": os.getpid()}
    for name, title in _ACTORS.items():
        pids = [pid for pid, has in titles.items() if has.startswith(title)]
        if len(pids) != 1:
            raise LookupError(f"{len(pids)} processes of this driver's Ray are called {title}, not 1")
        found[name] = pids[0]
    return found


def private_bytes(pids: Mapping[str, int]) -> dict[str, int]:
    """What each process shares with no other, by name."""
    return {name: processes.private_bytes(pid) for name, pid in pids.items()}


def _title(process: psutil.Process) -> str:
    try:
        return process.cmdline()[0]
    except (psutil.Error, IndexError):  # it ended meanwhile
        return ""
