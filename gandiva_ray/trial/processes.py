"""Processes and what hangs below them, as Linux tells. A process whose parent dies must not stay behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterable
from typing import NoReturn

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
KILLED = (signal.SIGKILL, signal.SIGTERM)  # by somebody else, and not for what the process did
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> None:
    """Be killed when the thread that started this process ends; exit at once if `parent` is gone already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, whatever group or session it is in."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def children(pid: int) -> list[int]:
    """The children that any thread of a process started or adopted; none for a process that is gone."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with (
                contextlib.suppress(FileNotFoundError, ProcessLookupError),
                open(f"/proc/{pid}/task/{task}/children") as file,
            ):
                found += map(int, file.read().split())
    return found


def descendants(pid: int) -> list[int]:
    """Children, their children, and so on; parents come first."""
    found = children(pid)
    for child in found:
        found += children(child)
    return found


def send_signal(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal processes, of which some may be gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def freeze_descendants(pid: int) -> list[int]:
    """Stop everything below a process; returns what was stopped, for `thaw`."""
    frozen: list[int] = []
    while new := [below for below in descendants(pid) if below not in frozen]:
        send_signal(new, signal.SIGSTOP)
        frozen += new
    return frozen


def thaw(pids: Iterable[int]) -> None:
    send_signal(pids, signal.SIGCONT)


def leave(code: int) -> NoReturn:
    """End this process with what it wrote, but without the exit handlers that it may have from its template."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the training function may have closed it or put something else there
            stream.flush()
    os._exit(code)
