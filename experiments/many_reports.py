"""A thousand trials that report often: what the driver takes of a core, and how late a report reaches the searcher.

All trials run at once and take turns: the searcher acts on their last report alone. A step burns processor time. How
late a report is, is from the clock before `report()` in the trial to that in the searcher. A device is busy while it is
some trial's turn there; what it is not, from the first trial's start to the last report, it waited for anybody.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import gandiva_ray as tune
from gandiva_ray.run_log import read_log


def trial(config: Mapping[str, Any]) -> None:
    for _ in range(config["reports"]):
        end = time.process_time() + config["step"]
        while time.process_time() < end:
            pass
        tune.report({"score": config["x"], "sent_at": time.time()})


class Watch:
    """A stop rule that stops nobody: it is asked right before the searcher is told of a report."""

    def __init__(self) -> None:
        self.late = array("d")

    def __call__(self, trial: str, metrics: Mapping[str, Any]) -> bool:
        self.late.append(time.time() - metrics["sent_at"])
        return False


@dataclass(frozen=True, slots=True)
class Found:
    """`late`: seconds on the way, of every report; `driver`: the processor seconds of the driver in `seconds` of
    searching; `busy`: of all devices together, in the `span` seconds from the first start to the last report.
    """

    late: Sequence[float]
    driver: float
    seconds: float
    busy: float
    span: float
    completed: int


def run(trials: int, reports: int, step: float, devices: int) -> Found:
    tune.init(devices=devices)
    watch = Watch()
    with tempfile.TemporaryDirectory() as storage:
        before, start = psutil.Process().cpu_times(), time.perf_counter()
        results = tune.Tuner(
            trial,
            param_space={"x": tune.uniform(0, 1), "reports": reports, "step": step},
            tune_config=tune.TuneConfig(
                metric="score",
                mode="max",
                num_samples=trials,
                # One rung at the very end: it acts on feedback, so that trials take turns, and stops nobody before it.
                searcher=tune.ASHA(max_t=reports, grace_period=reports),
            ),
            run_config=tune.RunConfig(storage_path=storage, verbose=0, stop=watch),
        ).fit()
        seconds, after = time.perf_counter() - start, psutil.Process().cpu_times()
        lines = [line for line in read_log(Path(results.path)) if line["what"] in ("started", "report")]
    return Found(
        late=watch.late,
        driver=after.user + after.system - before.user - before.system,
        seconds=seconds,
        busy=math.fsum(result.device_seconds for result in results),
        span=lines[-1]["at"] - lines[0]["at"],
        completed=results.num_terminated,
    )


def main(arguments: Sequence[str]) -> None:
    options = _parse(arguments)
    found = run(options.trials, options.reports, options.step, options.devices)
    late = sorted(found.late)
    print(
        f"{options.trials} trials of {options.reports} reports on {options.devices} devices: {found.seconds:.1f} s, "
        f"{len(late) / found.seconds:.0f} reports a second\n"
        f"{found.completed} of {options.trials} completed, {len(late)} of {options.trials * options.reports} reports "
        "arrived\n"
        f"the driver took {found.driver / found.seconds:.1%} of a core, {found.driver / len(late) * 1e6:.0f} "
        "microseconds a report\n"
        f"a report was {_part(late, 0.5) * 1e3:.1f} ms on its way (p50), {_part(late, 0.99) * 1e3:.1f} ms (p99)\n"
        f"the devices were busy for {found.busy / found.span / options.devices:.1%} of the time"
    )


def _part(ranked: Sequence[float], part: float) -> float:
    """The value that this part of all does not exceed."""
    return ranked[max(0, math.ceil(part * len(ranked)) - 1)]


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments many_reports", description=__doc__)
    parser.add_argument("--trials", type=int, default=1000, help="trials (default: %(default)s)")
    parser.add_argument("--reports", type=int, default=300, help="reports of each trial (default: %(default)s)")
    parser.add_argument(
        "--step", type=float, default=0.002, help="processor seconds between two reports (default: %(default)s)"
    )
    parser.add_argument("--devices", type=int, default=2, help="devices (default: %(default)s)")
    return parser.parse_args(arguments)
