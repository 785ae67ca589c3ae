"""What time-slicing costs: mini-batches a second and results against bare training; and the price of each operation.

**Rate and results.** 16 trials of one configuration, each with its own seed, take turns on one device. The same 16
trainings run one after the other in a bare process, pinned to that device's core, at the niceness of a trial. The rate
of the trials counts from the moment when all of them have begun. Losses and accuracies must be equal to the last bit.

**Operations.** One trial at a time under a small agent, without Ray: from the order to fork to the end of the first
mini-batch; from the request to suspend to the answer (it waits for the mini-batch under way); the memory that a
suspended trial does not share; `report()` and the boundary when nothing is asked of them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import gandiva_ray as tune
from experiments._agent import Template
from gandiva_ray.trial.child import seed_everything
from gandiva_ray.trial.session import boundary
from workloads import digits

CONFIG: dict[str, Any] = {"lr": 0.1, "optimizer": "sgd", "momentum": 0.5, "width": 8, "batch_size": 32}
SEED = 0
TENSORS_A_PARAMETER = 3  # itself, its gradient and its momentum


# --- rate and results


@dataclass(frozen=True, slots=True)
class Training:
    """`stamps` are the times at which its mini-batches ended; `history` holds what it reported after each epoch."""

    stamps: Sequence[float]
    history: Sequence[Mapping[str, float]]


def stamped(config: Mapping[str, Any], data: digits.Data) -> Training:
    stamps: list[float] = []
    hook = register_optimizer_step_post_hook(lambda *_: stamps.append(time.monotonic()))
    history = list(digits.steps(config, data))
    hook.remove()
    return Training(stamps, history)


def sliced_trial(config: Mapping[str, Any], data: digits.Data) -> None:
    """Reports once, at its end, so that nothing but the optimiser's boundary can suspend it."""
    training = stamped(config, data)
    place = {"cores": sorted(os.sched_getaffinity(0)), "niceness": os.nice(0)}
    tune.report({"accuracy": 0.0, "stamps": training.stamps, "history": training.history, "place": place})


@dataclass(frozen=True, slots=True)
class Sliced:
    """The trials' trainings, and what to pin a bare process to and at which niceness, to have what they had."""

    trainings: dict[str, Training]
    cores: Sequence[int]
    niceness: int


def sliced(trials: int, epochs: int, storage: str) -> Sliced:
    """The trials in turns on one device. The searcher acts on feedback, at a rung that nobody reaches."""
    results = tune.Tuner(
        partial(sliced_trial, data=digits.load()),
        param_space={**CONFIG, "epochs": epochs},
        tune_config=tune.TuneConfig(
            metric="accuracy",
            mode="max",
            num_samples=trials,
            searcher=tune.ASHA(max_t=2, grace_period=2),
            seed=SEED,
        ),
        run_config=tune.RunConfig(storage_path=storage, verbose=0),
    ).fit()
    if results.num_errors:
        raise RuntimeError(f"{results.num_errors} trials failed: {results.errors[0]}")
    trainings = {r.trial_id: Training(r.metrics["stamps"], r.metrics["history"]) for r in results}
    return Sliced(trainings, **results[0].metrics["place"])


def bare(turns: Sliced, epochs: int) -> dict[str, Training]:
    """The same trainings, one after the other, in a process of their own."""
    context = multiprocessing.get_context("spawn")
    place = (turns.cores, turns.niceness)
    with ProcessPoolExecutor(1, mp_context=context, initializer=_settle, initargs=place) as pool:
        return pool.submit(bare_loops, list(turns.trainings), epochs).result()


def _settle(cores: Sequence[int], niceness: int) -> None:
    os.sched_setaffinity(0, cores)
    os.nice(niceness - os.nice(0))
    torch.set_num_threads(1)


def bare_loops(trials: Sequence[str], epochs: int) -> dict[str, Training]:
    """Each with the random numbers of the trial of that name."""
    data = digits.load()
    trainings = {}
    for trial in trials:
        seed_everything(SEED, trial)
        trainings[trial] = stamped({**CONFIG, "epochs": epochs}, data)
    return trainings


def rate(streams: Sequence[Sequence[float]]) -> float:
    """Mini-batches a second of all streams together, from when each has begun until the last one ends."""
    start = max(stream[0] for stream in streams)
    end = max(stream[-1] for stream in streams)
    return sum(stamp > start for stream in streams for stamp in stream) / (end - start)


@dataclass(frozen=True, slots=True)
class Run:
    """Mini-batches a second, and whether all losses and accuracies were the same."""

    bare: float
    sliced: float
    identical: bool


def compare(trials: int, epochs: int, runs: int) -> list[Run]:
    """Pairs of runs, in alternating order. The first search warms up, and says which core the device is."""
    tune.init(devices=1)
    with tempfile.TemporaryDirectory() as storage:
        turns = sliced(trials, 1, storage)
        pairs: list[Run] = []
        for number in range(runs):
            alone = bare(turns, epochs) if number % 2 == 0 else {}
            turns = sliced(trials, epochs, storage)
            alone = alone or bare(turns, epochs)
            one_stream = [stamp for training in alone.values() for stamp in training.stamps]
            identical = all(alone[trial].history == turns.trainings[trial].history for trial in alone)
            in_turns = rate([training.stamps for training in turns.trainings.values()])
            pairs.append(Run(rate([one_stream]), in_turns, identical))
    return pairs


# --- operations


@dataclass(frozen=True, slots=True)
class Operations:
    """Medians. Seconds and bytes."""

    fork_to_first_mini_batch: float
    mini_batch: float
    suspend: float
    private_bytes: int
    tensor_bytes: int
    report: float
    boundary: float


def training_trial(config: Mapping[str, Any], data: digits.Data) -> None:
    tune.report({"stamps": stamped(config, data).stamps})


def calling_trial(config: Mapping[str, Any]) -> None:
    """Times `report()` and the boundary from within, as nothing is asked of them."""
    report = _seconds_each(lambda: tune.report({"accuracy": 0.5, "loss": 1.0}), config["reports"])
    tune.report({"report": report, "boundary": _seconds_each(boundary, config["boundaries"])})


def _seconds_each(call: Callable[[], None], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def operations(launches: int, suspends: int) -> Operations:
    core = min(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as storage:
        with Template(partial(training_trial, data=digits.load()), Path(storage), core) as template:
            forks, mini_batches = _launch_often(template, launches)
            waits, private_bytes = _suspend_often(template, suspends)
        with Template(calling_trial, Path(storage), core) as template:
            calls = _time_calls(template)
    return Operations(
        statistics.median(forks),
        statistics.median(mini_batches),
        statistics.median(waits),
        private_bytes,
        _tensor_bytes(),
        calls["report"],
        calls["boundary"],
    )


def _launch_often(template: Template, launches: int) -> tuple[list[float], list[float]]:
    """Seconds from the order to the end of the first mini-batch, one a launch; seconds of the mini-batches after it."""
    forks, mini_batches = [], []
    for _ in range(launches):
        ordered = time.monotonic()
        trial = template.launch({**CONFIG, "epochs": 1})
        trial.resume()
        stamps = trial.next_report()["stamps"]
        trial.wait_for_end()
        forks.append(stamps[0] - ordered)
        mini_batches += [after - before for before, after in pairwise(stamps)]
    return forks, mini_batches


def _suspend_often(template: Template, suspends: int) -> tuple[list[float], int]:
    """Seconds from each request to its answer; and the private bytes of the trial when it is suspended at last."""
    trial = template.launch({**CONFIG, "epochs": 1_000_000})
    waits = []
    for _ in range(suspends):
        trial.resume()
        time.sleep(0.02)
        asked = time.monotonic()
        trial.suspend()
        waits.append(time.monotonic() - asked)
    return waits, psutil.Process(trial.pid).memory_full_info().uss


def _time_calls(template: Template) -> dict[str, float]:
    reports = 2_000
    trial = template.launch({"reports": reports, "boundaries": 100_000})
    trial.resume()
    for _ in range(reports):
        trial.next_report()
    calls = trial.next_report()
    trial.wait_for_end()
    return calls


def _tensor_bytes() -> int:
    parameters = digits.cnn(CONFIG["width"]).parameters()
    return TENSORS_A_PARAMETER * sum(parameter.nbytes for parameter in parameters)


# --- what is printed


def main(arguments: Sequence[str]) -> None:
    options = _parse(arguments)
    print(operations_table(operations(options.launches, options.suspends)), "\n", flush=True)
    print(rate_table(compare(options.trials, options.epochs, options.runs)))


def operations_table(found: Operations) -> str:
    return "\n".join(
        [
            "| operation | median |",
            "|---|---|",
            f"| order to fork -> end of the first mini-batch | {1e3 * found.fork_to_first_mini_batch:.1f} ms |",
            f"| request to suspend -> suspended (a mini-batch takes {1e3 * found.mini_batch:.1f} ms) "
            f"| {1e3 * found.suspend:.2f} ms |",
            f"| private memory of a suspended trial, tensors apart "
            f"| {(found.private_bytes - found.tensor_bytes) / 1e6:.1f} MB |",
            f"| `report()` | {1e6 * found.report:.1f} us |",
            f"| boundary | {1e6 * found.boundary:.2f} us |",
        ]
    )


def rate_table(runs: Sequence[Run]) -> str:
    ratio = statistics.median(run.sliced / run.bare for run in runs)
    identical = all(run.identical for run in runs)
    return "\n".join(
        [
            "| | mini-batches a second |",
            "|---|---|",
            f"| bare training, median of {len(runs)} runs | {statistics.median(run.bare for run in runs):.1f} |",
            f"| in turns, median of {len(runs)} runs | {statistics.median(run.sliced for run in runs):.1f} |",
            f"| in turns / bare, median of the pairs | {ratio:.3f} |",
            f"| losses and accuracies bit-identical | {'yes' if identical else 'NO'} |",
        ]
    )


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments overheads", description=(__doc__ or "").split("\n")[0])
    for option, default, meaning in (
        ("--trials", 16, "trials in turns on the device"),
        ("--epochs", 27, "epochs of each"),
        ("--runs", 5, "pairs of runs"),
        ("--launches", 20, "forks to take the median of"),
        ("--suspends", 100, "suspends to take the median of"),
    ):
        parser.add_argument(option, type=int, default=default, help=f"{meaning} (default: %(default)s)")
    return parser.parse_args(arguments)
