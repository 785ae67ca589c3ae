"""What an agent does to the processes of a trial, through /proc and signals. A process that is gone is no error."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

from gandiva_ray.trial.processes import descendants, freeze_descendants, send_signal


def pin(pid: int, cores: Iterable[int]) -> None:
    """Pin every thread of the process and of its descendants: sched_setaffinity moves one thread alone."""
    wanted = set(cores)
    for process in (pid, *descendants(pid)):
        tasks = Path(f"/proc/{process}/task")
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in os.listdir(tasks):
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(int(task), wanted)


def private_bytes(pid: int) -> int:
    """Memory that would come free if the process ended; 0 where it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def freeze(pid: int) -> list[int]:
    """Stop a process, and all below it, wherever it is; returns what was stopped, for `thaw`."""
    send_signal([pid], signal.SIGSTOP)  # first: it would go on making children
    return [pid, *freeze_descendants(pid)]


def end_softly(pid: int) -> None:
    """SIGTERM to the trial's process group, and SIGCONT so that a stopped one hears it."""
    _signal_group(pid, signal.SIGTERM)
    _signal_group(pid, signal.SIGCONT)


def end_at_once(pid: int) -> None:
    _signal_group(pid, signal.SIGKILL)


def _signal_group(pid: int, number: signal.Signals) -> None:
    """A trial leads a group of its own; it may be gone while what it started is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)
