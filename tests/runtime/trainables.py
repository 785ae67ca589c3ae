"""Training functions for the runtime's tests, imported by name in the trials, as a user's own module would be."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import gandiva_ray as tune

Config = Mapping[str, Any]


def count(config: Config) -> None:
    """Report the time spent and the count, every few milliseconds, `steps` times."""
    for step in range(1, config.get("steps", 10**9) + 1):
        burn(config.get("seconds", 0.005))
        tune.report({"value": float(step), "x": config.get("x", 0.0)})


def burn(seconds: float) -> None:
    """Keep the core busy for so much CPU time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def tell_where(config: Config) -> None:
    """Report what the trial can see of its devices."""
    tune.report(
        {
            "value": 1.0,
            "cores": sorted(os.sched_getaffinity(0)),
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "node": os.environ["RAY_RAYLET_PID"],
            "pid": os.getpid(),
        }
    )


def fail_at_two(config: Config) -> None:
    tune.report({"value": 1.0})
    if config["x"] > 0.5:
        raise ArithmeticError("the second step is too hard")
    tune.report({"value": 2.0})


def never_at_a_boundary(config: Config) -> None:
    tune.report({"value": 1.0})
    time.sleep(1000)


def hang(config: Config) -> None:
    """Report, then never come to a boundary, in the way that `how` names, until the file `file` is there."""
    tune.report({"value": 1.0})
    if config["how"] == "pause":
        ctypes.CDLL(None).pause()
    if config["how"] == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if config["how"] == "child":
        subprocess.run([sys.executable, "-c", "import os; os.setpgid(0, 0)\nwhile True: pass"], check=True)
    while not os.path.exists(config.get("file", "")):
        pass
    for step in range(2, 10**9):
        tune.report({"value": float(step)})


def sleep_and_count(config: Config) -> None:
    for step in range(1, 10**9):
        time.sleep(config["seconds"])
        tune.report({"value": float(step)})


def print_a_lot(config: Config) -> None:
    """Report; after the first time print so many `lines`, and save so many `checkpoint_bytes`."""
    for step in range(1, 10**9):
        time.sleep(0.005)
        size = config.get("checkpoint_bytes", 0)
        saved = tune.Checkpoint.from_dict({"bytes": bytes(size)}) if size and step == 2 else None
        tune.report({"value": float(step)}, checkpoint=saved)
        for _ in range(config["lines"]):
            print("all the news " * 10)


def hold(config: Config) -> None:
    """Keep some memory, and report."""
    ballast = os.urandom(2**20) * config["megabytes"]
    while ballast:
        time.sleep(0.01)
        tune.report({"value": 1.0})


def grow(config: Config) -> None:
    """Take `megabytes` more with every report."""
    ballast = []
    for step in range(1, 10**9):
        ballast.append(os.urandom(2**20) * config["megabytes"])
        time.sleep(0.02)
        tune.report({"value": float(step)})


class StartsAThread:
    """A training function that cannot be forked: unpickling it starts a thread."""

    def __call__(self, config: Config) -> None:
        count(config)

    def __setstate__(self, state: object) -> None:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()

    def __getstate__(self) -> object:
        return {"has": "state"}


STARTS_A_THREAD = StartsAThread()


def die_now_and_then(config: Config) -> None:
    """Count to 12, with a checkpoint at each even step; killed after steps 3, 7 and 9, in different ways."""
    checkpoint = tune.get_checkpoint()
    state = checkpoint.to_dict() if checkpoint else {"step": 0, "attempts": 0}
    attempts = state["attempts"] + 1
    for step in range(state["step"] + 1, 13):
        burn(0.005)
        saved = tune.Checkpoint.from_dict({"step": step, "attempts": attempts}) if step % 2 == 0 else None
        tune.report({"value": float(step)}, checkpoint=saved)
        if (attempts, step) == (1, 3):
            raise ArithmeticError("the third step is too hard")
        if (attempts, step) == (2, 7):
            os._exit(3)
        if (attempts, step) == (3, 9):
            os.kill(os.getpid(), 9)


def tell_neighbours(config: Config) -> None:
    """Say in files how many trials are in a turn at the same moment, and report the most that were seen."""
    folder, most = config["folder"], 0
    for _ in range(config.get("steps", 60)):
        own = os.path.join(folder, str(os.getpid()))
        with open(own, "w"):
            burn(0.02)
        most = max(most, len(os.listdir(folder)))
        os.unlink(own)
        tune.report({"value": float(most), "threads": os.environ["OMP_NUM_THREADS"]})


def end_somehow(config: Config) -> None:
    """Report 5 steps, then do what `how` names; 35 more where that did not end it."""
    print("at work", flush=True)
    for step in range(1, 6):
        tune.report({"value": float(step)})
    match config["how"]:
        case "exit 0":
            os._exit(0)
        case "SystemExit":
            for step in range(6, 41):
                tune.report({"value": float(step)})
            raise SystemExit(0)
        case "SystemExit 3":
            raise SystemExit(3)
        case "a thread":
            thread = threading.Thread(target=lambda: 1 / 0)
            thread.start()
            thread.join()
        case "closed files":
            os.closerange(0, 1024)
        case "no folder":
            shutil.rmtree(os.getcwd())
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
    for step in range(6, 41):
        tune.report({"value": float(step)})


def go_on_for_ever(config: Config) -> None:
    """In a way that does not end at a boundary, except by `catch`, which does not let itself be stopped there."""
    if config["how"] != "catch":
        hang(config)
    while True:
        try:
            tune.report({"value": 1.0})
        except BaseException:
            time.sleep(0.1)


class LoadsForEver:
    """A training function that takes more than anybody waits for to unpickle."""

    def __call__(self, config: Config) -> None:
        count(config)

    def __setstate__(self, state: object) -> None:
        time.sleep(1000)

    def __getstate__(self) -> object:
        return {"has": "state"}


LOADS_FOR_EVER = LoadsForEver()
