"""The command `gandiva`: what a run has found so far, what its trials printed, what the cluster is doing; stops it."""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gandiva_ray.core.model import Outcome
from gandiva_ray.run_log import FILE_NAME, Line, flatten, read_log

_MOST_CONFIG = 60


def main(arguments: Sequence[str] | None = None) -> None:
    """Exits with 2 and one line on standard error where a command cannot be carried out."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # as of `| head`: it has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would complain as it ends
    except (OSError, RuntimeError, ValueError) as error:
        print(f"gandiva {options.command}: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gandiva", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    results = commands.add_parser("results", help="the trials of a run, the best first; also while it runs")
    results.add_argument("path", type=Path, help="the run's folder")
    results.set_defaults(run=_results)
    logs = commands.add_parser("logs", help="what a trial printed")
    logs.add_argument("path", type=Path, help="the run's folder")
    logs.add_argument("trial", help="the trial's id, as in 00003")
    logs.set_defaults(run=_logs)
    status = commands.add_parser("status", help="devices and searches of a Ray cluster")
    status.set_defaults(run=_status)
    stop = commands.add_parser("stop", help="end a search: its fit() returns what there is; without a name, list them")
    which = stop.add_mutually_exclusive_group()
    which.add_argument("name", nargs="?", help="of the search, or of its run")
    which.add_argument("--all", action="store_true", help="every search of the cluster")
    stop.set_defaults(run=_stop)
    for command in (status, stop):
        command.add_argument("--address", help="of the Ray cluster (default: RAY_ADDRESS, or the one of this machine)")
    return parser


def _results(options: argparse.Namespace) -> None:
    lines = list(read_log(_run_folder(options.path)))
    run = next((line for line in lines if line["what"] == "run"), {})
    trials = _fold(lines)
    metric, sign = run.get("metric"), -1.0 if run.get("mode") == "max" else 1.0
    table = Table("trial", "state", "reports", metric or "metrics", "configuration")
    for trial in sorted(trials.values(), key=lambda trial: _rank(trial, metric, sign)):
        metrics = flatten(trial["metrics"])
        value = metrics.get(metric, "") if metric else ", ".join(f"{name}={value}" for name, value in metrics.items())
        config = ", ".join(f"{name}={_short(value)}" for name, value in flatten(trial["config"]).items())
        table.add_row(trial["trial"], trial["state"], str(trial["step"]), _short(value), config)
    closed = next((line for line in lines if line["what"] == "closed"), None)
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    for reason, of in _failures(trials.values()).items():
        print(f"{len(of)} {of[0]['state']}, trial {of[0]['trial']} first: {reason}")
    print(f"{len(trials)} trials; {closed['stop_reason'] if closed else 'not over, or its script was killed'}")


def _fold(lines: Sequence[Line]) -> dict[str, dict[str, Any]]:
    trials: dict[str, dict[str, Any]] = {}
    for line in lines:
        match line["what"]:
            case "created" | "retry":
                trial = trials.setdefault(line["trial"], {"trial": line["trial"], "config": line["config"]})
                trial["state"] = "waiting"
                if line.get("anew", True):
                    trial.update(step=0, metrics={})
            case "started":
                trials[line["trial"]]["state"] = "running"
            case "report":
                trials[line["trial"]].update(step=line["step"], metrics=line["metrics"])
            case "ended":
                trials[line["trial"]].update(state=line["outcome"], reason=line["reason"])
    return trials


def _failures(trials: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The trials that did not come to an end of their own, by the reason."""
    failures: dict[str, list[dict[str, Any]]] = {}
    for trial in trials:
        if trial["state"] in (Outcome.FAILED.value, Outcome.LOST.value):
            failures.setdefault(trial["reason"], []).append(trial)
    return failures


def _rank(trial: Mapping[str, Any], metric: str | None, sign: float) -> tuple[bool, float, str]:
    value = flatten(trial["metrics"]).get(metric) if metric else None
    known = isinstance(value, int | float) and not math.isnan(value)
    return (not known, sign * value if known else 0.0, trial["trial"])  # type: ignore[operator]


def _short(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _MOST_CONFIG else text[: _MOST_CONFIG - 3] + "..."


def _logs(options: argparse.Namespace) -> None:
    folder = _run_folder(options.path) / options.trial
    if not folder.is_dir():
        known = sorted(path.name for path in options.path.iterdir() if path.is_dir())
        few = f"{known[0]} to {known[-1]}" if known else "none"
        raise ValueError(f"no trial {options.trial!r} has run in {options.path}; there are {few}")
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        if (folder / name).exists():
            with (folder / name).open(errors="replace") as file:
                shutil.copyfileobj(file, stream)


def _run_folder(path: Path) -> Path:
    if not (path / FILE_NAME).is_file():
        raise ValueError(f"{path} is no run's folder: there is no {FILE_NAME} in it")
    return path


def _status(options: argparse.Namespace) -> None:
    from gandiva_ray.runtime.client import cluster_status

    status = cluster_status(_address(options))
    if status is None:
        print("no search has run on this Ray cluster of late")
        return
    nodes: Any = status["nodes"]
    print(f"policy {status['settings'].policy}, journal {status['journal']}")
    print(f"{sum(node.num_devices for node in nodes)} devices on {len(nodes)} nodes")
    _list(status)


def _stop(options: argparse.Namespace) -> None:
    from gandiva_ray.runtime.client import cluster_status, stop_search

    status = cluster_status(_address(options)) or {"multi_jobs": {}, "drivers": {}}
    if not options.all and options.name is None:
        _list(status)
        return
    for name in status["multi_jobs"] if options.all else [_search_called(options.name, list(status["multi_jobs"]))]:
        stop_search(name, "stopped by gandiva stop", _address(options))
        print(f"search {name} has stopped")


def _search_called(name: str, searches: Sequence[str]) -> str:
    """A search is called after its run, with a few characters more."""
    found = [search for search in searches if name in (search, search.rpartition("-")[0])]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"there are several searches called {name!r}: {', '.join(found)}")
    raise ValueError(f"no search {name!r} is running; there are {', '.join(searches) or 'none'}")


def _list(status: Mapping[str, Any]) -> None:
    for name, unfinished in status["multi_jobs"].items():
        print(f"search {name}, driver {status['drivers'][name]}: {unfinished} trials wait or run")
    if not status["multi_jobs"]:
        print("no search is running")


def _address(options: argparse.Namespace) -> str:
    return options.address or os.environ.get("RAY_ADDRESS") or "auto"
