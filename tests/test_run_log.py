"""The run's log: appended whole lines, readable after a crash, and reports found again without being kept."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gandiva_ray.core.model import Outcome
from gandiva_ray.core.multi_job import DropCheckpoint, Retry
from gandiva_ray.core.search import (
    CapacityChanged,
    Create,
    Promote,
    Reweigh,
    StopTrial,
    TrialEnded,
    TrialReported,
    TrialStarted,
)
from gandiva_ray.run_log import FILE_NAME, Reports, RunLog, event_of, line_of, read_log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[RunLog]:
    log = RunLog(tmp_path, clock=iter(range(1000)).__next__)
    yield log
    log.close()


def report(trial: str, step: int, **metrics: Any) -> dict[str, Any]:
    return line_of(TrialReported(trial, step, metrics, step / 2))


@pytest.mark.parametrize(
    ("fact", "line"),
    [
        (
            Create("00000", {"lr": 0.1}, until=3),
            {
                "what": "created",
                "trial": "00000",
                "config": {"lr": 0.1},
                "until": 3,
                "weight": 1.0,
                "exclusive": False,
            },
        ),
        (Promote("00000", None), {"what": "promote", "trial": "00000", "until": None}),
        (Reweigh("00000", 2.0), {"what": "reweigh", "trial": "00000", "weight": 2.0, "exclusive": False}),
        (StopTrial("00000", "poor"), {"what": "stop", "trial": "00000", "reason": "poor", "outcome": "stopped"}),
        (
            TrialStarted("00000", "n", 7, "/p"),
            {"what": "started", "trial": "00000", "node": "n", "pid": 7, "path": "/p", "attempt": 1},
        ),
        (
            TrialReported("00000", 2, {"a": {"b": 1}}, 0.5, "/c"),
            {
                "what": "report",
                "trial": "00000",
                "step": 2,
                "metrics": {"a": {"b": 1}},
                "device_seconds": 0.5,
                "attempt": 1,
                "checkpoint": "/c",
            },
        ),
        (
            TrialEnded("00000", Outcome.FAILED, "ValueError: x", "Traceback"),
            {
                "what": "ended",
                "trial": "00000",
                "outcome": "failed",
                "reason": "ValueError: x",
                "error": "Traceback",
                "attempt": 1,
            },
        ),
        (
            Retry(Create("00000", {"lr": 0.1}), 2, 5, "/c", "it was killed"),
            {
                "what": "retry",
                "trial": "00000",
                "config": {"lr": 0.1},
                "attempt": 2,
                "step": 5,
                "checkpoint": "/c",
                "reason": "it was killed",
                "anew": False,
            },
        ),
        (DropCheckpoint("00000", "/c"), {"what": "drop", "trial": "00000", "checkpoint": "/c"}),
        (CapacityChanged(2, {"00000": 0.5}), {"what": "capacity", "devices": 2, "step_costs": {"00000": 0.5}}),
    ],
)
def test_every_fact_is_a_line(log: RunLog, tmp_path: Path, fact: Any, line: dict[str, Any]) -> None:
    log.write(line_of(fact))
    assert list(read_log(tmp_path)) == [{"at": 0, "batch": 0, **line}]
    if isinstance(fact, TrialStarted | TrialReported | TrialEnded | CapacityChanged):
        assert event_of(line) == fact


def test_what_was_written_is_in_the_file_before_it_is_closed(log: RunLog, tmp_path: Path) -> None:
    log.write(report("00000", 1), report("00001", 1))
    log.write(report("00000", 2))
    assert [(line["at"], line["trial"]) for line in read_log(tmp_path)] == [(0, "00000"), (0, "00001"), (1, "00000")]


def test_a_torn_last_line_is_skipped(log: RunLog, tmp_path: Path) -> None:
    log.write(report("00000", 1, loss=1.0), report("00000", 2, loss=0.5))
    text = (tmp_path / FILE_NAME).read_bytes()
    for length in range(len(text)):
        (tmp_path / FILE_NAME).write_bytes(text[:length])
        assert len(list(read_log(tmp_path))) == text[: length + 1].count(b"\n")
        assert len(Reports(tmp_path).of("00000")) == text[: length + 1].count(b"\n")


def test_what_json_cannot_hold_is_its_repr_and_the_rest_stays(log: RunLog, tmp_path: Path) -> None:
    config: dict[Any, Any] = {"model": {"kind": dict, "width": 3, 4: 5}, "lr": 0.1, ("a", 1): {1, 2}}
    log.write(line_of(Create("00000", config)))
    (line,) = read_log(tmp_path)
    assert line["config"] == {
        "model": {"kind": "<class 'dict'>", "width": 3, "4": 5},
        "lr": 0.1,
        "('a', 1)": "{1, 2}",
    }


def test_numbers_that_are_not_finite_survive(log: RunLog, tmp_path: Path) -> None:
    log.write(report("00000", 1, loss=math.nan, best=math.inf))
    (line,) = read_log(tmp_path)
    assert math.isnan(line["metrics"]["loss"])
    assert line["metrics"]["best"] == math.inf


def test_a_name_in_any_script_is_found_again(log: RunLog, tmp_path: Path) -> None:
    log.write(line_of(Create("00000", {"name": "läuft é 語"})), report("00000", 1, loss=1))
    assert next(read_log(tmp_path))["config"] == {"name": "läuft é 語"}
    assert [line["step"] for line in Reports(tmp_path).of("00000")] == [1]


def test_reports_are_found_by_trial_and_in_order(log: RunLog, tmp_path: Path) -> None:
    for step in range(1, 4):
        log.write(*(report(trial, step, loss=step) for trial in ("00000", "00001")), line_of(Promote("00000", 5)))
    reports = Reports(tmp_path)
    assert [line["step"] for line in reports.of("00001")] == [1, 2, 3]
    assert reports.of("00007") == []


def test_every_line_is_json_of_its_own(log: RunLog, tmp_path: Path) -> None:
    log.write(line_of(TrialEnded("00000", Outcome.FAILED, "two\nlines", "a\nb\u2028c")))
    (line,) = (tmp_path / FILE_NAME).read_text().splitlines()
    assert json.loads(line)["error"] == "a\nb\u2028c"
