from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from experiments import faults
from experiments.faults import UNDISTURBED, Round
from gandiva_ray.core.model import Outcome
from gandiva_ray.results import Result, ResultGrid
from gandiva_ray.run_log import FILE_NAME
from gandiva_ray.run_log import Reports as LoggedReports
from tests.whole_runs import run_python

TRIAL, ACTOR, CTRL_C = "kill -9 of a trial", "kill -9 of a trial actor", "Ctrl-C, then restored"


def run_of(*rounds: Round) -> object:
    def run(number: int, of: Sequence[str]) -> Iterator[Round]:
        yield from rounds

    return run


def test_a_row_for_each_fault_says_what_came_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = (
        Round(0, UNDISTURBED, True, 2.0),
        Round(1, TRIAL, True, 2.5, retries=1),
        Round(2, TRIAL, False, 2.0),
        Round(3, CTRL_C, True, 3.5),
    )
    monkeypatch.setattr(faults, "run", run_of(*rounds))
    faults.main([])
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| none | 1 | 1 | 1 | 0 | 0 | 0 | +0.0 s |",
        "| kill -9 of a trial | 2 | 1 | 2 | 0 | 0 | 1 | +0.2 s |",
        "| Ctrl-C, then restored | 1 | 1 | 1 | 0 | 0 | 0 | +1.5 s |",
    ]


@pytest.mark.parametrize("trouble", ["wrong", "lost", "left"])
def test_any_trouble_is_named_and_fails_the_experiment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], trouble: str
) -> None:
    bad = Round(7, TRIAL, True, 2.0)
    getattr(bad, trouble).append("what must not be")
    monkeypatch.setattr(faults, "run", run_of(Round(0, UNDISTURBED, True, 2.0), bad))
    with pytest.raises(SystemExit) as end:
        faults.main([])
    assert end.value.code == 1
    assert "round 7 (kill -9 of a trial): what must not be" in capsys.readouterr().err


def grid(path: Path, made: str, outcome: Outcome, steps: int) -> ResultGrid:
    (path / "made").write_text(made)
    (path / FILE_NAME).write_text("")
    result = Result("00000", {}, {}, outcome, "it returned", None, str(path), steps, 1.0, None, [], LoggedReports(path))
    return ResultGrid((result,), "value", "max", str(path), "all trials ended", False)


@pytest.mark.parametrize(
    ("made", "logged", "outcome", "right"),
    [
        ("1\n2\n3\n", [1, 2, 3], Outcome.COMPLETED, True),
        ("1\n2\n3\n2\n3\n4\n", [1, 2, 3, 4], Outcome.COMPLETED, True),
        ("1\n2\n3\n", [1, 2], Outcome.STOPPED, True),
        ("1\n2\n3\n", [1, 2], Outcome.COMPLETED, False),
        ("1\n2\n3\n", [1, 3], Outcome.STOPPED, False),
        ("1\n2\n3\n", [1, 2, 2, 3], Outcome.COMPLETED, False),
        ("1\n2\n3\n", [1, 2, 3, 4], Outcome.STOPPED, False),
    ],
)
def test_reports_that_were_made_are_compared_with_the_log(
    tmp_path: Path, made: str, logged: list[int], outcome: Outcome, right: bool
) -> None:
    lines = [{"what": "report", "trial": "00000", "step": step} for step in logged]
    assert (faults._lost_reports(grid(tmp_path, made, outcome, len(logged)), lines) == []) is right


@pytest.mark.slow
def test_searches_with_faults_end_whole_and_nothing_is_left(tmp_path: Path) -> None:
    code = f"""
from experiments import faults
faults.FAULTS = {{fault: faults.FAULTS[fault] for fault in {[UNDISTURBED, TRIAL, ACTOR, CTRL_C]}}}
faults.main(["--rounds", "4"])
"""
    run = run_python("-c", code, home=tmp_path)
    assert run.code == 0, run.err
    rows = {row.split("|")[1].strip(): row.split("|")[2:-1] for row in run.out.splitlines()[2:]}
    assert set(rows) == {UNDISTURBED, TRIAL, ACTOR, CTRL_C}
    for rounds, _, ended, lost, left, _, _ in rows.values():
        assert int(rounds) == int(ended) >= 1
        assert (int(lost), int(left)) == (0, 0)
    assert run.left == frozenset()
