from __future__ import annotations

import time

import pytest

from experiments import many_reports
from experiments.many_reports import Found, Watch


def test_it_says_what_the_driver_took_and_how_late_reports_were(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    late = [0.001 * n for n in range(100, 0, -1)]
    found = Found(late=late, driver=2.0, seconds=10.0, busy=15.2, span=8.0, completed=4)
    monkeypatch.setattr(many_reports, "run", lambda trials, reports, step, devices: found)
    many_reports.main(["--trials", "4", "--reports", "25", "--devices", "2"])
    assert capsys.readouterr().out.splitlines() == [
        "4 trials of 25 reports on 2 devices: 10.0 s, 10 reports a second",
        "4 of 4 completed, 100 of 100 reports arrived",
        "the driver took 20.0% of a core, 20000 microseconds a report",
        "a report was 50.0 ms on its way (p50), 99.0 ms (p99)",
        "the devices were busy for 95.0% of the time",
    ]


def test_a_report_is_late_by_the_time_since_it_was_made() -> None:
    watch = Watch()
    assert not watch("00000", {"sent_at": time.time() - 5})
    assert watch.late[0] == pytest.approx(5, abs=0.5)
