"""Experiments as a person starts them: what they print, and that nothing is left of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil


def run(tmp_path: Path, *arguments: str) -> str:
    """Standard output of `python -m experiments ...`; nothing else may be printed, and no process may remain."""
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment |= {"HOME": str(tmp_path), "GANDIVA_RAY_TEST_RUN": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert err == ""
    deadline = time.monotonic() + 30
    while left := of_run(tmp_path):
        assert time.monotonic() < deadline, f"still there: {[p.cmdline()[:4] for p in left]}"
        time.sleep(0.2)
    return out


def of_run(tmp_path: Path) -> list[psutil.Process]:
    """Every process that inherited the run's mark: Ray's own, ours, and the trials."""
    found = []
    for process in psutil.process_iter():
        try:
            marked = process.environ().get("GANDIVA_RAY_TEST_RUN") == str(tmp_path)
            if marked and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_the_demo_prints_its_own_lines_alone_and_leaves_nothing(tmp_path: Path) -> None:
    out = run(tmp_path, "demo", "--samples", "4")
    lines = out.splitlines()
    assert lines[0].startswith("train_")
    assert any(line.startswith("4 configurations in ") for line in lines)
    assert not [line for line in lines if "raylet" in line or "INFO" in line or "WARNING" in line]


def test_many_trials_all_report_and_complete_and_leave_nothing(tmp_path: Path) -> None:
    out = run(tmp_path, "many_trials", "--trials", "8", "--steps", "3", "--devices", "2", "--quantum", "0.1")
    assert "8 of 8 completed, 24 of 24 reports arrived" in out
    assert "private memory of all trials: " in out
