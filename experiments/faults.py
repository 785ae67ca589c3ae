"""Random faults, one a search: each search must end whole, no report must be lost, and nothing left behind.

Every round is a short search of six trials with checkpoints on a Ray of two nodes that outlives all of them. What the
round does follows from its number. Checked after each: every trial has an end with a reason; the log has the reports
of each trial once, in order, without a gap, and none that the trial did not make, and of one that went to its end all
of them; no process, placement group, multi-job or actor is left but those that wait for the next search.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import psutil
import ray
from ray.cluster_utils import Cluster
from ray.util import placement_group_table

import gandiva_ray as tune
from experiments import _faulted
from gandiva_ray.core.model import Outcome
from gandiva_ray.run_log import FILE_NAME, read_log
from gandiva_ray.runtime.actors import NAMESPACE

UNDISTURBED = "none"
# What is over must be gone within this, and what was lost must be there again.
PATIENCE = 60.0
WARM_UP = 3
Processes = list[psutil.Process]


class World:
    """A Ray of two nodes with a device each, and what of ours runs there."""

    def __init__(self) -> None:
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        self._second = self.cluster.add_node(num_cpus=1)
        os.environ["RAY_ADDRESS"] = self.cluster.address
        tune.init()

    def close(self) -> None:
        tune.shutdown()
        self.cluster.shutdown()  # type: ignore[no-untyped-call]

    def workers(self, of: str) -> Processes:
        """Ray's worker processes of an actor class, on both nodes."""
        raylets = [_raylet(node).pid for node in (self.cluster.head_node, self._second)]
        return [p for raylet in raylets for p in _children(raylet) if _name(p).startswith(f"ray::{of}")]

    def zygotes(self) -> Processes:
        return [p for worker in self.workers("TrialActor") for p in _children(worker.pid)]

    def templates(self) -> Processes:
        return [p for zygote in self.zygotes() for p in _children(zygote.pid)]

    def trials(self) -> Processes:
        return [p for template in self.templates() for p in _children(template.pid)]

    def kill_node(self) -> None:
        """The second one: all that runs there ends at once, as on a machine that goes away."""
        raylet = psutil.Process(_raylet(self._second).pid)
        for process in (raylet, *raylet.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def mend(self) -> None:
        """Add a node for one that was killed, once Ray has noticed that."""
        if _raylet(self._second).poll() is not None:
            self.cluster.remove_node(self._second, allow_graceful=False)
            _wait(lambda: sum(node["Alive"] for node in ray.nodes()) == 1)  # type: ignore[no-untyped-call]
            self._second = self.cluster.add_node(num_cpus=1)
            tune.init()  # our scheduler may have left meanwhile, with nothing to do

    def devices(self) -> int:
        return sum(view.num_devices for view in self._status()["nodes"])

    def left(self) -> list[str]:
        """What a search that is over has left behind."""
        left = [f"process {p.pid} ({_name(p)})" for p in self.templates()]  # the trials are below them
        left += [f"multi-job {name}" for name in self._status()["multi_jobs"]]
        known: Any = placement_group_table()
        groups = [f"{group['name']} {group['state']}" for group in known.values() if group["state"] != "REMOVED"]
        if len(groups) != 2:
            left.append(f"placement groups {groups}")
        for kind, most in {"SchedulerActor": 1, "NodeAgent": 2, "TrialActor": 2}.items():
            if (found := len(self.workers(kind))) > most:
                left.append(f"{found} actors {kind}")
        return left

    def _status(self) -> dict[str, Any]:
        try:
            scheduler: Any = ray.get_actor("scheduler", NAMESPACE)
            status: dict[str, Any] = ray.get(scheduler.status.remote())
        except (ValueError, ray.exceptions.RayActorError):
            return {"nodes": (), "multi_jobs": {"of a scheduler that is gone": 0}}
        return status


def _raylet(node: Any) -> subprocess.Popen[bytes]:
    raylet: subprocess.Popen[bytes] = node.all_processes["raylet"][0].process
    return raylet


def _children(pid: int) -> Processes:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).children()
    return []


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return process.name()
    return ""


# --- faults: each says whether it could strike

Strike = Callable[[World, Random], bool]


def _kill(victims: Callable[[World], Processes]) -> Strike:
    def strike(world: World, random: Random) -> bool:
        found = victims(world)
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            random.choice(found).kill()
            return True
        return False

    return strike


def _hold_a_trial(world: World, random: Random) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess, IndexError):
        trial = random.choice(world.trials())
        trial.suspend()
        time.sleep(1.0)
        trial.resume()
        return True
    return False


def _kill_node(world: World, random: Random) -> bool:
    world.kill_node()
    return True


def _press_ctrl_c(world: World, random: Random) -> bool:
    os.kill(os.getpid(), signal.SIGINT)
    return True


FAULTS: dict[str, Strike] = {
    UNDISTURBED: lambda world, random: True,
    "kill -9 of a trial": _kill(World.trials),
    "kill -9 of a template": _kill(World.templates),
    "kill -9 of a zygote": _kill(World.zygotes),
    "kill -9 of a trial actor": _kill(lambda world: world.workers("TrialActor")),
    "kill -9 of an agent": _kill(lambda world: world.workers("NodeAgent")),
    "kill -9 of the scheduler": _kill(lambda world: world.workers("SchedulerActor")),
    "kill -9 of a node": _kill_node,
    "a trial stopped for a second": _hold_a_trial,
    "Ctrl-C, then restored": _press_ctrl_c,
    "kill -9 of the driver, then restored": lambda world, random: True,  # see _search_in_a_driver
}
OF_THE_DRIVER = "kill -9 of the driver, then restored"
# After these a zygote has to import torch first, which the round that follows shall not be charged with.
COLD = ("kill -9 of a zygote", "kill -9 of a trial actor", "kill -9 of an agent", "kill -9 of a node")


# --- one round


@dataclass(slots=True)
class Round:
    """What came of a search: `seconds` until all had ended, `wrong` is what must not be."""

    number: int
    fault: str
    struck: bool = False
    seconds: float = 0.0
    retries: int = 0
    lost: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def run_round(world: World, number: int, fault: str, typical: float, storage: Path) -> Round:
    """Run the search of this number with the fault at a moment within the `typical` seconds of a search."""
    random = Random(number)
    after = random.uniform(0.0, typical)
    done = Round(number, fault)
    began = time.monotonic()
    try:
        if fault == OF_THE_DRIVER:
            results = _search_in_a_driver(done, after, storage)
        else:
            results = _search_here(world, done, after, random, storage)
    except RuntimeError as error:
        done.wrong.append(f"the search failed: {error}")
        return done
    done.seconds = time.monotonic() - began
    done.wrong += _wrong_ends(results)
    lines = list(read_log(storage / "run"))
    done.retries = sum(line["what"] == "retry" for line in lines)
    done.lost = _lost_reports(results, lines)
    world.mend()
    _wait(lambda: not world.left() and world.devices() == 2)
    done.left = world.left()
    return done


def _search_here(world: World, done: Round, after: float, random: Random, storage: Path) -> tune.ResultGrid:
    over = threading.Event()

    def strike() -> None:
        over.wait(after)
        while not over.is_set() and not done.struck:
            done.struck = FAULTS[done.fault](world, random)
            time.sleep(0.01)

    thread = threading.Thread(target=strike)
    thread.start()
    results = None
    with contextlib.suppress(KeyboardInterrupt):  # pressed as it ended
        try:
            results = _faulted.search(done.number, storage).fit()
        finally:
            over.set()
            thread.join()
    if results is None or results.interrupted:
        results = tune.Tuner.restore(storage / "run", _faulted.train).fit()
    return results


def _search_in_a_driver(done: Round, after: float, storage: Path) -> tune.ResultGrid:
    command = [sys.executable, "-m", "experiments._faulted", str(done.number), str(storage)]
    with subprocess.Popen(command) as driver:
        _wait(lambda: (storage / "run" / FILE_NAME).exists() or driver.poll() is not None)
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.wait(after)
        done.struck = driver.poll() is None
        driver.kill()
    return tune.Tuner.restore(storage / "run", _faulted.train).fit()


def _wait(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true() and time.monotonic() < deadline:
        time.sleep(0.1)


# --- what is checked


def _wrong_ends(results: tune.ResultGrid) -> list[str]:
    wrong = [f"there are {len(results)} trials of 6"] if len(results) != 6 else []
    for result in results:
        if result.outcome not in (Outcome.COMPLETED, Outcome.STOPPED) or not result.reason:
            wrong.append(f"trial {result.trial_id} is {result.outcome.value}: {result.reason!r}")
    return wrong


def _lost_reports(results: tune.ResultGrid, lines: Sequence[dict[str, Any]]) -> list[str]:
    """Of each trial, how the steps in the log differ from those that it made, if they do."""
    wrong = []
    for result in results:
        logged = [line["step"] for line in lines if line["what"] == "report" and line["trial"] == result.trial_id]
        made = [int(step) for step in Path(result.path, _faulted.MADE).read_text().split()] if result.path else []
        most = max(made, default=0)
        # A trial that is stopped has made reports that its search no longer wanted.
        least = most if result.outcome is Outcome.COMPLETED else result.steps
        if logged != list(range(1, len(logged) + 1)) or not least <= len(logged) <= most:
            wrong.append(f"trial {result.trial_id} made {most} reports and the log has {logged}")
    return wrong


# --- all of it


def run(rounds: int, faults: Sequence[str]) -> Iterator[Round]:
    """Rounds with each fault once a turn, in an order of the turn's own, after three that warm the cluster up."""
    world = World()
    try:
        _wait(lambda: world.devices() == 2)
        undisturbed: list[float] = [0.0]
        for number in range(-WARM_UP, rounds):
            turn, place = divmod(number, len(faults))
            fault = UNDISTURBED if number < 0 else Random(turn).sample(faults, len(faults))[place]
            typical = median(undisturbed[-WARM_UP:])
            with tempfile.TemporaryDirectory() as storage:
                done = run_round(world, abs(number), fault, typical, Path(storage))
            if fault == UNDISTURBED:
                undisturbed.append(done.seconds)
            if number >= -1:
                yield done
            if fault in COLD:
                with tempfile.TemporaryDirectory() as storage:
                    _faulted.search(0, Path(storage)).fit()
    finally:
        world.close()


def table(done: Sequence[Round]) -> list[str]:
    """A row for each fault."""
    undisturbed = median(each.seconds for each in done if each.fault == UNDISTURBED)
    header = ("fault", "rounds", "struck", "ended", "reports lost", "left behind", "retries", "median delay")
    rows: list[tuple[str, ...]] = [header, ("---",) * len(header)]
    for fault in dict.fromkeys(each.fault for each in done):
        of = [each for each in done if each.fault == fault]
        rows.append(
            (
                fault,
                str(len(of)),
                str(sum(each.struck for each in of)),
                str(sum(not each.wrong for each in of)),
                str(sum(len(each.lost) for each in of)),
                str(sum(len(each.left) for each in of)),
                str(sum(each.retries for each in of)),
                f"{median(each.seconds for each in of) - undisturbed:+.1f} s",
            )
        )
    return ["| " + " | ".join(row) + " |" for row in rows]


def main(arguments: Sequence[str]) -> None:
    options = _parse(arguments)
    done = []
    for each in run(options.rounds, tuple(FAULTS)):
        done.append(each)
        for trouble in (*each.wrong, *each.lost, *each.left):
            print(f"round {each.number} ({each.fault}): {trouble}", file=sys.stderr)
    print("\n".join(table(done)))
    if any(each.wrong or each.lost or each.left for each in done):
        raise SystemExit(1)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments faults", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="searches with a fault (default: %(default)s)")
    return parser.parse_args(arguments)
