"""The driver's log of a run, `<run>/log.jsonl`: one JSON object a line, appended and never rewritten.

Every line has `what` (run, created, promote, reweigh, stop, started, report, capacity, ended, time up, closed) and
`at`, the seconds since fit() was called. A value of a configuration that JSON cannot hold is logged as its repr: the
exact one comes from replaying the log into a fresh searcher. A line torn by a crash is skipped.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from gandiva_ray.core.model import TrialId
from gandiva_ray.core.multi_job import Effect, TimeUp
from gandiva_ray.core.search import (
    CapacityChanged,
    Create,
    Noticed,
    Promote,
    Reweigh,
    SearchStarved,
    StopTrial,
    TrialEnded,
    TrialEvent,
    TrialReported,
    TrialStarted,
)

Line = dict[str, Any]

FILE_NAME = "log.jsonl"


class RunLog:
    """Appends; what was written together is on its way to the disk when `write` returns."""

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        self._file = (folder / FILE_NAME).open("a", encoding="utf-8")
        self._clock = clock

    def write(self, *lines: Line) -> None:
        at = round(self._clock(), 4)
        self._file.write("".join(_encode({"at": at, **line}) for line in lines))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _encode(line: Line) -> str:
    try:
        return json.dumps(line) + "\n"
    except (TypeError, ValueError):  # a key, or a circle, that `default` is not asked about
        return json.dumps({key: _plain(value) for key, value in line.items()}) + "\n"


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
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
        case TrialStarted(trial, node, pid, path):
            return {"what": "started", "trial": trial, "node": node, "pid": pid, "path": path}
        case TrialReported(trial, step, metrics, device_seconds):
            line = {"step": step, "metrics": dict(metrics), "device_seconds": device_seconds}
            return {"what": "report", "trial": trial, **line}
        case TrialEnded(trial, outcome, reason, error):
            return {"what": "ended", "trial": trial, "outcome": outcome.value, "reason": reason, "error": error}
        case Noticed(text):
            return {"what": "noticed", "text": text}
        case SearchStarved(reason):
            return {"what": "starved", "reason": reason}
        case CapacityChanged(devices, step_costs):
            return {"what": "capacity", "devices": devices, "step_costs": dict(step_costs)}
        case TimeUp(reason):
            return {"what": "time up", "reason": reason}


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
        return offsets
