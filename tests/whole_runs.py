"""Runs whole programs of this project, each with a Ray and a home folder of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
GONE_WITHIN = 30.0


@dataclass(frozen=True, slots=True)
class Run:
    """`left` are the processes below the program that outlived it by `GONE_WITHIN` seconds; `seen`, all there were."""

    code: int
    out: str
    err: str
    seen: frozenset[str]
    left: frozenset[str]


def run_python(*arguments: str, home: Path) -> Run:
    """Run `python *arguments` to its end. Nothing is written to the user's own home."""
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment |= {"HOME": str(home), "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    command = [sys.executable, *arguments]
    program = subprocess.Popen(
        command, cwd=home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    ended = threading.Event()
    below: dict[psutil.Process, str] = {}
    watcher = threading.Thread(target=_watch, args=(psutil.Process(program.pid), below, ended))
    watcher.start()
    try:
        out, err = program.communicate(timeout=120)
    finally:
        program.kill()
        ended.set()
        watcher.join()
    _, alive = psutil.wait_procs(list(below), timeout=GONE_WITHIN)
    left = frozenset(below[process] for process in alive if not _is_zombie(process))
    return Run(program.returncode, out, err, frozenset(below.values()), left)


def _watch(root: psutil.Process, below: dict[psutil.Process, str], ended: threading.Event) -> None:
    while not ended.wait(0.25):
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in root.children(recursive=True):
                with contextlib.suppress(psutil.Error, IndexError):
                    below[process] = process.cmdline()[0].rpartition("/")[2]


def _is_zombie(process: psutil.Process) -> bool:
    """Ended, and its new parent has not yet noticed."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
