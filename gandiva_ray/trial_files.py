"""The files of a trial that other tools read, as Ray Tune lays them out in its folder; derived from the run's log.

`params.json` and `params.pkl` hold the configuration, `result.json` one JSON object a report, `progress.csv` the same
without the configuration, with nested names joined by "/". `time_total_s` is the device time that the trial received:
what it waited for a turn is left out. The last report of a trial that ended well is `done`.
"""

from __future__ import annotations

import csv
import datetime
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle

from gandiva_ray.core.model import Outcome, TrialId
from gandiva_ray.run_log import Line, encode, flatten, plain

_FLUSH_EVERY = 30.0
_MOST_BUFFERED = 20_000
_DONE = (Outcome.COMPLETED.value, Outcome.STOPPED.value)


@dataclass(slots=True)
class _Trial:
    """`rows` are not written yet; `columns` are those of progress.csv, None before the first row."""

    folder: Path | None = None
    config: object = None
    pid: int = 0
    earlier_seconds: float = 0.0
    seconds: float = 0.0
    fresh: bool = True
    step: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    columns: list[str] | None = None


class TrialFiles:
    """Told every line of a run's log, from the first, it writes the files anew: so no report is there twice.

    Rows are buffered, so that no file stays open and none is opened for each report. The last row of a trial is written
    when it ends, or at the close. `problem` is why the first file that could not be written was not: the search goes on
    without it, for its log has everything.
    """

    def __init__(self, folder: Path, config_of: Callable[[TrialId], Mapping[str, Any]]) -> None:
        self._folder = folder
        self._config_of = config_of
        self._trials: dict[TrialId, _Trial] = {}
        self._began_at = 0.0
        self._flushed_at = 0.0
        self._buffered = 0
        self.problem = ""

    def take(self, line: Line) -> None:
        try:
            self._take(line)
        except OSError as error:
            self.problem = self.problem or str(error)

    def _take(self, line: Line) -> None:
        match line:
            case {"what": "run" | "restored", "at": at, "started_at": now}:
                self._began_at = datetime.datetime.fromisoformat(now).timestamp() - at
            case {"what": "started", "trial": trial, "path": path, "pid": pid}:
                self._start(self._trial(trial), trial, path, pid)
            case {"what": "retry", "trial": trial, "anew": True}:
                self._forget(self._trial(trial))
            case {"what": "report", "trial": trial}:
                self._report(self._trial(trial), line)
            case {"what": "saved", "trial": trial}:
                self._save(self._trial(trial), line)
            case {"what": "ended", "trial": trial, "outcome": outcome}:
                self._end(trial, outcome)
        if line["at"] - self._flushed_at >= _FLUSH_EVERY or self._buffered >= _MOST_BUFFERED:
            self._flushed_at, self._buffered = line["at"], 0
            for trial in self._trials.values():
                _write(trial, len(trial.rows) - 1)

    def close(self) -> None:
        for trial in self._trials.values():
            try:
                _write(trial, len(trial.rows))
            except OSError as error:
                self.problem = self.problem or str(error)

    def _trial(self, trial: TrialId) -> _Trial:
        return self._trials.setdefault(trial, _Trial())

    def _start(self, trial: _Trial, name: TrialId, path: str, pid: int) -> None:
        trial.pid, trial.earlier_seconds = pid, trial.seconds
        if trial.folder is None:
            config = self._config_of(name)
            trial.folder, trial.config = self._folder / Path(path).name, plain(config)
            trial.folder.mkdir(parents=True, exist_ok=True)
            (trial.folder / "params.json").write_text(json.dumps(trial.config, indent=2, sort_keys=True))
            (trial.folder / "params.pkl").write_bytes(cloudpickle.dumps(dict(config)))

    def _forget(self, trial: _Trial) -> None:
        trial.rows.clear()
        trial.fresh, trial.columns = True, None

    def _report(self, trial: _Trial, line: Line) -> None:
        before, trial.seconds = trial.seconds, trial.earlier_seconds + line["device_seconds"]
        trial.step = line["step"]
        at = self._began_at + line["at"]
        own = {
            "training_iteration": line["step"],
            "trial_id": line["trial"],
            "time_this_iter_s": trial.seconds - before,
            "time_total_s": trial.seconds,
            "timestamp": int(at),
            "date": f"{datetime.datetime.fromtimestamp(at):%Y-%m-%d_%H-%M-%S}",
            "pid": trial.pid,
            "done": False,
            "checkpoint_dir_name": _name(line["checkpoint"]),
            "config": trial.config,
        }
        trial.rows.append({**own, **line["metrics"]})
        self._buffered += 1

    def _save(self, trial: _Trial, line: Line) -> None:
        """A checkpoint that came after its report."""
        if trial.rows and trial.step == line["step"]:
            trial.rows[-1]["checkpoint_dir_name"] = _name(line["checkpoint"])

    def _end(self, name: TrialId, outcome: str) -> None:
        trial = self._trial(name)
        if trial.rows and outcome in _DONE:
            trial.rows[-1]["done"] = True
        _write(trial, len(trial.rows))
        if outcome in _DONE:  # the others may go on
            del self._trials[name]


def _name(checkpoint: str | None) -> str | None:
    return None if checkpoint is None else Path(checkpoint).name


def _write(trial: _Trial, count: int) -> None:
    """The first `count` of its rows; in place of what an earlier driver wrote."""
    if trial.folder is None or count <= 0:
        return
    rows = trial.rows[:count]
    del trial.rows[:count]
    with (trial.folder / "result.json").open("w" if trial.fresh else "a", encoding="utf-8") as file:
        file.writelines(map(encode, rows))
    _write_table(trial, [flatten({key: row[key] for key in row if key != "config"}) for row in rows])
    trial.fresh = False


def _write_table(trial: _Trial, rows: list[dict[str, Any]]) -> None:
    """A name that comes up for the first time gets a column, and what is there already is written anew."""
    assert trial.folder is not None
    path, known = trial.folder / "progress.csv", trial.columns or []
    columns = list(dict.fromkeys([*known, *(name for row in rows for name in row)]))
    earlier: list[dict[str, Any]] = []
    if known and columns != known:
        with path.open(encoding="utf-8", newline="") as file:
            earlier = list(csv.DictReader(file))
    anew = columns != known
    with path.open("w" if anew else "a", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, columns)
        if anew:
            table.writeheader()
        table.writerows([*earlier, *rows])
    trial.columns = columns
