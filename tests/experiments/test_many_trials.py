from __future__ import annotations

import pytest

from experiments import many_trials
from experiments.many_trials import Found


def found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], result: Found) -> str:
    monkeypatch.setattr(many_trials, "run", lambda trials, steps, devices, quantum: result)
    many_trials.main(["--trials", "4", "--steps", "5", "--devices", "2", "--quantum", "0.5"])
    return capsys.readouterr().out


def test_it_says_when_all_reported_within_a_round(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = found(
        monkeypatch, capsys, Found(starting=0.3, first_reports=0.9, reports=20, completed=4, private_bytes=60_000_000)
    )
    assert "a round is 1.0 s" in text
    assert "all were up 0.3 s after the first one, and all had reported 0.9 s later (within a round)" in text
    assert "4 of 4 completed, 20 of 20 reports arrived" in text
    assert "60 MB, 15.0 MB each" in text


def test_it_says_loudly_when_they_did_not(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert "NOT WITHIN a round" in found(monkeypatch, capsys, Found(0.3, 1.1, 20, 4, 1))
