from __future__ import annotations

import subprocess
import sys

import pytest

from experiments.__main__ import main, names, summary


def test_list_names_every_experiment_with_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == names()
    assert {"demo", "ray_tune", "overheads", "many_trials"} <= set(names())
    assert all(len(line) < 140 for line in lines)


@pytest.mark.parametrize("name", names())
def test_every_experiment_says_in_one_sentence_what_it_is(name: str) -> None:
    assert summary(name).endswith(".")


@pytest.mark.parametrize("name", names())
def test_every_experiment_explains_its_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    assert f"python -m experiments {name}" in capsys.readouterr().out


def test_an_unknown_experiment_is_answered_with_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["raytune"]) == 2
    assert "did you mean 'ray_tune'" in capsys.readouterr().err


def test_nothing_at_all_is_answered_with_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "python -m experiments NAME" in capsys.readouterr().out


def test_list_loads_neither_ray_nor_torch() -> None:
    code = "import sys; from experiments.__main__ import main; main(['list']); print({'ray', 'torch'} & {*sys.modules})"
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert listed.stdout.splitlines()[-1] == "set()"
