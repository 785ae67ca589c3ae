from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gandiva_ray import cli
from gandiva_ray.core.model import Outcome
from gandiva_ray.core.multi_job import Retry
from gandiva_ray.core.search import Create, TrialEnded, TrialReported, TrialStarted
from gandiva_ray.run_log import RunLog, line_of
from tests.whole_runs import ROOT


def write_run(folder: Path, closed: bool) -> None:
    log = RunLog(folder, lambda: 0.0)
    log.write({"what": "run", "metric": "score", "mode": "max"})
    for i, score in enumerate([0.25, 0.75, float("nan")]):
        trial = f"{i:05d}"
        log.write(line_of(Create(trial, {"lr": i / 10})), line_of(TrialStarted(trial, "n", 1, "p")))
        log.write(line_of(TrialReported(trial, 1, {"score": score}, 1.0)))
    log.write(line_of(TrialEnded("00000", Outcome.STOPPED, "worse")))
    log.write(line_of(Retry(Create("00002", {}), 2, 0, None, "it was killed")))
    log.write(line_of(Create("00003", {"lr": 0.3})))
    if closed:
        log.write({"what": "closed", "stop_reason": "interrupted", "interrupted": True})
    log.close()


def test_results_lists_the_trials_the_best_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, closed=False)
    cli.main(["results", str(tmp_path)])
    text = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    assert rows == [
        ["00001", "running", "1", "0.75", "lr=0.1"],
        ["00000", "stopped", "1", "0.25", "lr=0"],
        ["00002", "waiting", "1", "nan", "lr=0.2"],
        ["00003", "waiting", "0", "", "lr=0.3"],
    ]
    assert text.endswith("4 trials; not over, or its script was killed\n")


def test_results_of_a_search_that_is_over_say_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, closed=True)
    cli.main(["results", str(tmp_path)])
    assert capsys.readouterr().out.endswith("4 trials; interrupted\n")


def test_results_say_why_trials_failed_and_forget_what_one_that_begins_anew_had(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, closed=False)
    log = RunLog(tmp_path, lambda: 0.0, first_batch=100)
    for trial in ("00002", "00001"):
        log.write(line_of(TrialEnded(trial, Outcome.FAILED, "ValueError: no (train.py:3)")))
    log.write(line_of(TrialEnded("00003", Outcome.LOST, "node 'n' was lost")))
    log.write(line_of(Retry(Create("00002", {"lr": 0.2}), 3, 0, None, "the search was restored", anew=True)))
    log.close()
    cli.main(["results", str(tmp_path)])
    text = capsys.readouterr().out
    assert [line.split("│")[1:5] for line in text.splitlines() if "00002 " in line] == [
        [" 00002 ", " waiting ", " 0       ", "       "]
    ]
    assert text.splitlines()[-3:-1] == [
        "1 failed, trial 00001 first: ValueError: no (train.py:3)",
        "1 lost, trial 00003 first: node 'n' was lost",
    ]


def test_a_reader_that_has_read_enough_is_no_error(tmp_path: Path) -> None:
    write_run(tmp_path, closed=True)
    (tmp_path / "00001").mkdir()
    (tmp_path / "00001" / "stdout").write_text("epoch\n" * 100_000)
    command = [sys.executable, "-c", "from gandiva_ray.cli import main; main()", "logs", str(tmp_path), "00001"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as logs:
        assert logs.stdout is not None
        assert logs.stderr is not None
        assert logs.stdout.readline() == b"epoch\n"
        logs.stdout.close()
        assert logs.stderr.read() == b""
    assert logs.returncode == 0


def test_logs_are_what_the_trial_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, closed=True)
    (tmp_path / "00001").mkdir()
    (tmp_path / "00001" / "stdout").write_text("epoch 1\n")
    (tmp_path / "00001" / "stderr").write_text("a warning\n")
    cli.main(["logs", str(tmp_path), "00001"])
    assert capsys.readouterr() == ("epoch 1\n", "a warning\n")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["results", "{}/none"], "gandiva results: {}/none is no run's folder: there is no log.jsonl in it"),
        (["logs", "{}", "7"], "gandiva logs: no trial '7' has run in {}; there are 00001 to 00001"),
        (["status", "--address", "127.0.0.1:1"], "gandiva status: no Ray cluster answers at '127.0.0.1:1'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], error: str
) -> None:
    write_run(tmp_path, closed=True)
    (tmp_path / "00001").mkdir()
    with pytest.raises(SystemExit) as ended:
        cli.main([argument.format(tmp_path) for argument in arguments])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(error.format(tmp_path))
    assert said.count("\n") == 1
