"""The driver's log of a run, `<run>/log.jsonl`: one JSON object a line, appended and never rewritten.

Every line has `what` (run, created, retry, promote, reweigh, stop, drop, started, report, saved, capacity, ended,
stopped, time up, restored, closed), `at`, the seconds since fit() was called, and `batch`, a number that lines have in
common which were written together. A value of a configuration that JSON cannot hold is logged as its repr: the exact
one comes from replaying the log into a fresh searcher. A line torn by a crash is skipped.
"""

from __future__ import annotations

import contextlib
import json
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from gandiva_ray.core.model import Outcome, TrialId
from gandiva_ray.core.multi_job import DropCheckpoint, Effect, Retry, TimeUp
from gandiva_ray.core.search import (
    CapacityChanged,
    Create,
    Noticed,
    Promote,
    Reweigh,
    SearchStarved,
    SearchStopped,
    StopTrial,
    TrialEnded,
    TrialEvent,
    TrialReported,
    TrialStarted,
)

Line = dict[str, Any]
Event = TrialEvent | TimeUp

FILE_NAME = "log.jsonl"


class RunLog:
    """Appends; what was written together is on its way to the disk when `write` returns, and `tell` has heard of it.

    Raises OSError, with what that means for the search, where it cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], float],
        first_batch: int = 0,
        tell: Callable[[Line], None] = lambda line: None,
    ) -> None:
        self._file = (folder / FILE_NAME).open("a", encoding="utf-8")
        self._clock = clock
        self._batch = first_batch
        self._tell = tell

    def write(self, *lines: Line) -> None:
        stamp = {"at": round(self._clock(), 4), "batch": self._batch}
        self._batch += 1
        stamped = [{**stamp, **line} for line in lines]
        try:
            self._file.write("".join(map(encode, stamped)))
            self._file.flush()
        except OSError as error:
            with contextlib.suppress(OSError):  # it would try once more
                self._file.close()
            what = f"{error.strerror}: the search ends, for its log cannot be written; Tuner.restore goes on from there"
            raise OSError(error.errno, what, self._file.name) from None
        for line in stamped:
            self._tell(line)

    def close(self) -> None:
        self._file.close()


def encode(line: Line) -> str:
    try:
        return json.dumps(line) + "\n"
    except (TypeError, ValueError):  # a key, or a circle, that `default` is not asked about
        return json.dumps({key: plain(value) for key, value in line.items()}) + "\n"


def plain(value: object) -> object:
    """What JSON can hold of it: the rest as its repr."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return repr(value)
    return value


def line_of(fact: TrialEvent | TimeUp | Effect) -> Line:
    """An event or an effect as a line of the log."""
    match fact:
        case Create(trial, config, until, weight, exclusive):
            line: Line = {"config": dict(config), "until": until, "weight": weight, "exclusive": exclusive}
            return {"what": "created", "trial": trial, **line}
        case Promote(trial, until):
            return {"what": "promote", "trial": trial, "until": until}
        case Reweigh(trial, weight, exclusive):
            return {"what": "reweigh", "trial": trial, "weight": weight, "exclusive": exclusive}
        case StopTrial(trial, reason, outcome):
            return {"what": "stop", "trial": trial, "reason": reason, "outcome": outcome.value}
        case Retry(create, attempt, step, checkpoint, reason, anew):
            line = {"config": dict(create.config), "attempt": attempt, "step": step, "checkpoint": checkpoint}
            return {"what": "retry", "trial": create.trial, **line, "reason": reason, "anew": anew}
        case DropCheckpoint(trial, path):
            return {"what": "drop", "trial": trial, "checkpoint": path}
        case TrialStarted(trial, node, pid, path, attempt):
            return {
                "what": "started", "trial": trial, "node": node, "pid": pid, "path": path, "attempt": attempt,
            }  # fmt: skip
        case TrialReported(trial, step, metrics, device_seconds, checkpoint, attempt):
            line = {"step": step, "metrics": dict(metrics), "device_seconds": device_seconds, "attempt": attempt}
            return {"what": "report", "trial": trial, **line, "checkpoint": checkpoint}
        case TrialEnded(trial, outcome, reason, error, attempt):
            line = {"outcome": outcome.value, "reason": reason, "error": error, "attempt": attempt}
            return {"what": "ended", "trial": trial, **line}
        case Noticed(text):
            return {"what": "noticed", "text": text}
        case SearchStarved(reason):
            return {"what": "starved", "reason": reason}
        case CapacityChanged(devices, step_costs):
            return {"what": "capacity", "devices": devices, "step_costs": dict(step_costs)}
        case SearchStopped(reason):
            return {"what": "stopped", "reason": reason}
        case TimeUp(reason):
            return {"what": "time up", "reason": reason}


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one, with keys joined by "/" as in Ray Tune."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}/")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def with_joined_names(event: Event) -> Event:
    """The event with nested metrics also under their joined names, so that a metric can be called "eval/loss"."""
    if isinstance(event, TrialReported) and any(isinstance(value, Mapping) for value in event.metrics.values()):
        return replace(event, metrics={**event.metrics, **flatten(event.metrics)})
    return event


def event_of(line: Line) -> TrialEvent | None:
    """The event that the line tells of; None where it tells of something else. The inverse of `line_of`."""
    match line:
        case {"what": "started"}:
            return TrialStarted(line["trial"], line["node"], line["pid"], line["path"], line["attempt"])
        case {"what": "report" | "saved"}:
            metrics, seconds = line["metrics"], line["device_seconds"]
            return TrialReported(line["trial"], line["step"], metrics, seconds, line["checkpoint"], line["attempt"])
        case {"what": "ended"}:
            outcome = Outcome(line["outcome"])
            return TrialEnded(line["trial"], outcome, line["reason"], line["error"], line["attempt"])
        case {"what": "capacity"}:
            return CapacityChanged(line["devices"], line["step_costs"])
        case _:
            return None


def read_log(folder: Path) -> Iterator[Line]:
    """The lines of a run's log, in order, without any that a crash tore."""
    for _, line in _lines(folder):
        yield line


def _lines(folder: Path) -> Iterator[tuple[int, Line]]:
    offset = 0
    with (folder / FILE_NAME).open("rb") as file:
        for raw in file:
            if (line := _decode(raw)) is not None:
                yield offset, line
            offset += len(raw)


def _decode(raw: bytes) -> Line | None:
    try:
        line: Line = json.loads(raw)
    except ValueError:
        return None
    return line


class Reports:
    """The reports in a run's log, by trial. Only where each one lies is kept in memory, from the first question on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, trial: TrialId) -> list[Line]:
        with (self._folder / FILE_NAME).open("rb") as file:
            return [self._line_at(file, offset) for offset in self._offsets.get(trial, ())]

    @staticmethod
    def _line_at(file: Any, offset: int) -> Line:
        file.seek(offset)
        line: Line = json.loads(file.readline())
        return line

    @cached_property
    def _offsets(self) -> dict[TrialId, array[int]]:
        offsets: dict[TrialId, array[int]] = {}
        for offset, line in _lines(self._folder):
            if line["what"] == "report":
                offsets.setdefault(line["trial"], array("Q")).append(offset)
            elif line["what"] == "retry" and line["anew"]:
                offsets.pop(line["trial"], None)
        return offsets
