"""Runs whole programs of this project, each with a Ray and a home folder of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
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
    # Ray's own folder too, or the program would join a cluster that somebody started on this machine. Its path is
    # short, for sockets lie in there.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as ray_folder:
        environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        environment |= {"HOME": str(home), "RAY_TMPDIR": ray_folder, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
        return _run([sys.executable, *arguments], home, environment)


def _run(command: list[str], folder: Path, environment: Mapping[str, str]) -> Run:
    ended = threading.Event()
    below: dict[psutil.Process, str] = {}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
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
