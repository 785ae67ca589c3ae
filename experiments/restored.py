"""A search killed with kill -9 at a random moment and restored, many times: the same end, and no finished work twice.

Every round is the same search of successive halving, a few trials at a time, which save a checkpoint with each report.
Its process is killed, and another one goes on by `Tuner.restore`. What was suggested, and what the trials found, must
be as in a search that nobody disturbs; each report must be in the log once; and no step whose report is there before
the kill may be trained again. The trials themselves keep account of that, in a file each.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gandiva_ray as tune
from gandiva_ray.run_log import FILE_NAME, read_log

SAMPLES, MAX_T, STEP = 27, 9, 0.06
LIMIT = 120.0


def train(config: Mapping[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    begin = checkpoint.to_dict()["step"] if checkpoint is not None else 0
    account = Path(tune.get_context().get_trial_dir(), "trained")
    for step in range(begin + 1, MAX_T + 1):
        end = time.process_time() + STEP
        while time.process_time() < end:
            pass
        with account.open("a") as file:
            print(step, file=file)
        tune.report({"value": config["x"] * step}, checkpoint=tune.Checkpoint.from_dict({"step": step}))


def drive(folder: str) -> None:
    """Begin the search that lives in the folder, or go on with it, and write down what it found."""
    run = Path(folder, "run")
    if (run / "tuner.pkl").exists() and (run / FILE_NAME).exists():
        tuner = tune.Tuner.restore(run, train)
    else:
        shutil.rmtree(run, ignore_errors=True)
        tuner = tune.Tuner(
            train,
            param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(
                metric="value",
                mode="max",
                num_samples=SAMPLES,
                max_concurrent_trials=6,
                searcher=tune.SuccessiveHalving(max_t=MAX_T),
            ),
            run_config=tune.RunConfig(name="run", storage_path=folder, verbose=0),
        )
    found = [(result.config, result.outcome.value, result.steps, result.metrics["value"]) for result in tuner.fit()]
    Path(folder, "found.json").write_text(json.dumps(found))


@dataclass(frozen=True, slots=True)
class Round:
    """`again` counts steps that were trained once more although they had been reported, `lost` those that had not."""

    killed_after: float
    same: bool
    twice: int
    again: int
    lost: int


def play(folder: Path, undisturbed: str, killed_after: float) -> Round:
    first = _start(folder)
    time.sleep(killed_after)
    first.kill()
    first.wait()
    log = folder / "run"
    known = _reports(log)
    _finish(folder)
    trained = {path.parent.name: Counter(map(int, path.read_text().split())) for path in log.glob("*/trained")}
    repeated = {(trial, step) for trial, steps in trained.items() for step, times in steps.items() if times > 1}
    return Round(
        killed_after,
        same=(folder / "found.json").read_text() == undisturbed,
        twice=sum(times - 1 for times in _reports(log).values()),
        again=len(repeated & known.keys()),
        lost=len(repeated - known.keys()),
    )


def _start(folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir(exist_ok=True)
    return subprocess.Popen([sys.executable, "-c", f"from experiments.restored import drive; drive({str(folder)!r})"])


def _finish(folder: Path) -> float:
    """Drive the search to its end; returns the seconds that took."""
    began = time.monotonic()
    with _start(folder) as driver:
        code = driver.wait(LIMIT)
    if code:
        raise RuntimeError(f"the search in {folder} ended with code {code}")
    return time.monotonic() - began


def _reports(log: Path) -> Counter[tuple[str, int]]:
    if not (log / FILE_NAME).exists():
        return Counter()
    return Counter((line["trial"], line["step"]) for line in read_log(log) if line["what"] == "report")


def run(times: int, seed: int) -> tuple[float, list[Round]]:
    """The seconds that the search takes when nobody disturbs it, and the rounds."""
    from ray.cluster_utils import Cluster

    chance = random.Random(seed)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as storage:
            seconds = _finish(Path(storage, "undisturbed"))
            undisturbed = Path(storage, "undisturbed", "found.json").read_text()
            return seconds, [
                play(Path(storage, f"{number:03d}"), undisturbed, chance.uniform(0.0, seconds))
                for number in range(times)
            ]
    finally:
        del os.environ["RAY_ADDRESS"]
        cluster.shutdown()  # type: ignore[no-untyped-call]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments restored", description=__doc__)
    parser.add_argument("--times", type=int, default=20, help="how many searches to kill (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills (default: %(default)s)")
    options = parser.parse_args(arguments)
    seconds, rounds = run(options.times, options.seed)
    same = sum(found.same for found in rounds)
    print(
        f"a search of {SAMPLES} trials takes {seconds:.1f} s, its start included; killed {len(rounds)} times, "
        f"after {min(found.killed_after for found in rounds):.1f} to "
        f"{max(found.killed_after for found in rounds):.1f} s\n"
        f"restored to the same suggestions, ends and metrics: {same} of {len(rounds)}\n"
        f"reports that are in the log twice: {sum(found.twice for found in rounds)}\n"
        f"reported steps that were trained again: {sum(found.again for found in rounds)}\n"
        f"steps that were trained again because the kill came before their report: "
        f"{statistics.mean(found.lost for found in rounds):.1f} a search"
    )
    if same < len(rounds) or any(found.twice or found.again for found in rounds):
        sys.exit("the restored searches are NOT what an undisturbed one is")
