"""One trial's result, read back from its folder and the log of its run."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gandiva_ray.core.model import Outcome
from gandiva_ray.core.search import TrialReported
from gandiva_ray.results import Result
from gandiva_ray.run_log import FILE_NAME, Line, Reports, event_of, read_log, with_joined_names
from gandiva_ray.trial.checkpoint import Checkpoint

_NOT_ENDED = "it had not ended: its search was cut short, or is still under way"


@dataclass(slots=True)
class _Told:
    """What the log's lines have told so far. `saved` are the checkpoints that are kept, by name."""

    config: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    step: int = 0
    seconds: float = 0.0
    earlier_seconds: float = 0.0
    outcome: Outcome = Outcome.CUT
    reason: str = _NOT_ENDED
    error: str = ""
    saved: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def take(self, line: Line) -> None:
        match line["what"]:
            case "created":
                self.config = line["config"]
            case "report" | "saved":
                self._report(line)
            case "drop":
                self.saved.pop(Path(line["checkpoint"]).name, None)
            case "retry":
                self.earlier_seconds = self.seconds
                self.outcome, self.reason, self.error = Outcome.CUT, _NOT_ENDED, ""
                if line["anew"]:
                    self.metrics, self.step = {}, 0
            case "ended":
                self.outcome, self.reason, self.error = Outcome(line["outcome"]), line["reason"], line["error"]

    def _report(self, line: Line) -> None:
        event = event_of(line)
        assert isinstance(event, TrialReported)
        metrics = with_joined_names(event).metrics  # type: ignore[union-attr]
        if line["what"] == "report":
            self.metrics, self.step = metrics, event.step
            self.seconds = self.earlier_seconds + event.device_seconds
        if event.checkpoint is not None:
            name = Path(event.checkpoint).name
            self.saved.pop(name, None)
            self.saved[name] = metrics


def read_result(folder: Path) -> Result:
    """Raises FileNotFoundError where the folder is not that of a trial, inside of its run's."""
    told, known = _Told(), False
    if (folder.parent / FILE_NAME).is_file():
        for line in read_log(folder.parent):
            if line.get("trial") == folder.name:
                known = True
                told.take(line)
    if not known:
        raise FileNotFoundError(f"{folder} is no trial's folder: no {FILE_NAME} beside it tells of {folder.name!r}")
    checkpoints = tuple((Checkpoint(folder / name), metrics) for name, metrics in told.saved.items())
    failed = told.outcome in (Outcome.FAILED, Outcome.LOST)
    return Result(
        trial_id=folder.name,
        config=_exact_config(folder) or told.config,
        metrics=told.metrics,
        outcome=told.outcome,
        reason=told.reason,
        error=(told.error or told.reason) if failed else None,
        path=str(folder) if folder.is_dir() else None,
        steps=told.step,
        device_seconds=told.seconds,
        checkpoint=checkpoints[-1][0] if checkpoints else None,
        best_checkpoints=checkpoints,
        _reports=Reports(folder.parent),
    )


def _exact_config(folder: Path) -> Mapping[str, Any] | None:
    """The log has the repr of what JSON cannot hold."""
    try:
        config: Mapping[str, Any] = pickle.loads((folder / "params.pkl").read_bytes())
    except FileNotFoundError:
        return None
    return config
