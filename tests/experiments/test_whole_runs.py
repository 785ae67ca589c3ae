"""The experiments as a user runs them, only smaller: with Ray, in processes of their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.whole_runs import Run, run_python

OUR_LINES = re.compile(
    r"train_[\d_-]+: ASHA\(.*|\[\d:\d\d:\d\d\] .* reports, .*|(Best|Ended|Trials|Folder): .*"
    r"|trial \d{5} (stopped|completed) .*"
    r"|4 configurations in .*|first at accuracy 0.99: .*|best: trial .*|all of it: .*"
)


def assert_clean(run: Run) -> None:
    assert run.code == 0, run.err
    assert run.err == ""
    assert {"raylet", "gcs_server"} <= run.seen
    assert any("SchedulerActor" in name for name in run.seen), run.seen
    assert run.left == frozenset()


def test_the_demo_says_what_it_found_and_leaves_nothing_running(tmp_path: Path) -> None:
    run = run_python("-m", "experiments", "demo", "--samples", "4", home=tmp_path)
    assert_clean(run)
    lines = run.out.splitlines()
    assert [line for line in lines if not OUR_LINES.fullmatch(line)] == []
    assert "4 configurations in" in lines[-4]
    folder = Path(lines[-1].removeprefix("all of it: "))
    assert folder.is_relative_to(tmp_path)
    assert (folder / "log.jsonl").exists()


@pytest.mark.slow
def test_many_trials_completes_and_hears_of_all_and_leaves_nothing_running(tmp_path: Path) -> None:
    options = ("--trials", "8", "--steps", "2", "--devices", "2", "--quantum", "0.05")
    run = run_python("-m", "experiments", "many_trials", *options, home=tmp_path)
    assert_clean(run)
    lines = run.out.splitlines()
    assert len(lines) == 4
    assert lines[0] == "8 trials on 2 devices, quantum 0.05 s: a round is 0.2 s"
    assert lines[2] == "8 of 8 completed, 16 of 16 reports arrived"


@pytest.mark.slow
def test_do_nothing_finds_the_processes_that_it_measures_and_leaves_nothing_running(tmp_path: Path) -> None:
    code = "from experiments.do_nothing import growth, measure; print(growth(measure('gandiva', 20)))"
    run = run_python("-c", code, home=tmp_path)
    assert_clean(run)
    assert [line.split()[1] for line in run.out.splitlines()[2:]] == ["driver", "agent", "scheduler"]


@pytest.mark.slow
def test_many_reports_hears_of_all_and_leaves_nothing_running(tmp_path: Path) -> None:
    run = run_python("-m", "experiments", "many_reports", "--trials", "6", "--reports", "10", home=tmp_path)
    assert_clean(run)
    assert run.out.splitlines()[1] == "6 of 6 completed, 60 of 60 reports arrived"
