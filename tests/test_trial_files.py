"""The files of each trial that other tools read, after searches over a fake session."""

from __future__ import annotations

import csv
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from gandiva_ray.config import FailureConfig, RunConfig, TuneConfig
from gandiva_ray.tuner import Tuner
from searchers import SuccessiveHalving
from tests.test_restore import climb_and_save
from tests.test_tuner import Install, climb, press_ctrl_c_at, search


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "progress.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_trial_has_the_files_of_ray_tune(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime()
    for result in search(tmp_path, climb, num_samples=3):
        folder = Path(result.path or "")
        config = {"x": result.config["x"], "model": dict(result.config["model"])}
        assert json.loads((folder / "params.json").read_text()) == config
        assert pickle.loads((folder / "params.pkl").read_bytes()) == result.config
        assert [row["training_iteration"] for row in rows(folder)] == list(range(1, 10))
        assert [row["done"] for row in rows(folder)] == [False] * 8 + [True]
        last = rows(folder)[-1]
        assert (last["trial_id"], last["score"], last["config"]) == (result.trial_id, result.metrics["score"], config)
        assert last["time_total_s"] == result.device_seconds == 4.5
        assert [float(row["score"]) for row in table(folder)] == [row["score"] for row in rows(folder)]
        assert "config/x" not in table(folder)[0]


def test_ray_tune_itself_reads_them(tmp_path: Path, fake_runtime: Install) -> None:
    from ray.tune import Result as RaysResult

    fake_runtime()
    for result in search(tmp_path, climb, num_samples=2):
        read = RaysResult.from_path(result.path)
        assert read.config == result.config
        assert read.metrics["score"] == result.metrics["score"]
        assert list(read.metrics_dataframe["score"]) == [result.config["x"] * step / 9 for step in range(1, 10)]


def test_a_name_that_comes_up_late_gets_a_column(tmp_path: Path, fake_runtime: Install) -> None:
    def train(config: dict[str, Any]) -> Any:
        return ({"score": step, **({"eval": {"loss": 7}} if step == 3 else {})} for step in range(1, 4))

    fake_runtime()
    (result,) = search(tmp_path, train, space={})
    assert [row["eval/loss"] for row in table(Path(result.path or ""))] == ["", "", "7"]


@pytest.mark.parametrize("poll", [2, 5, 9])
def test_a_restored_search_has_each_report_once(tmp_path: Path, fake_runtime: Install, poll: int) -> None:
    run = RunConfig(name="run", storage_path=tmp_path, verbose=0)
    config = TuneConfig("score", "max", num_samples=9, searcher=SuccessiveHalving(max_t=9))
    fake_runtime(before_poll=press_ctrl_c_at(poll))
    Tuner(climb_and_save, param_space={"x": 0.5}, tune_config=config, run_config=run).fit()
    fake_runtime()
    for result in Tuner.restore(tmp_path / "run", climb_and_save).fit():
        folder = Path(result.path or "")
        assert [row["training_iteration"] for row in rows(folder)] == list(range(1, result.steps + 1))
        assert [row["training_iteration"] for row in table(folder)] == list(map(str, range(1, result.steps + 1)))


def test_a_trial_that_is_tried_again_has_each_report_once(tmp_path: Path, fake_runtime: Install) -> None:
    def train(config: dict[str, Any]) -> Any:
        yield {"score": 1}
        raise ValueError("again")

    fake_runtime()
    run = RunConfig(name="run", storage_path=tmp_path, verbose=0, failure_config=FailureConfig(max_failures=2))
    (result,) = Tuner(train, tune_config=TuneConfig("score", "max"), run_config=run).fit()
    assert [(row["training_iteration"], row["done"]) for row in rows(Path(result.path or ""))] == [(1, False)]


def test_a_file_that_cannot_be_written_is_said_and_harms_nobody(
    tmp_path: Path, fake_runtime: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    def block(poll: int) -> None:
        if poll == 1:
            (tmp_path / "run" / "00001").touch()  # a file where the folder of the second trial is to be

    fake_runtime(before_poll=block)
    results = search(tmp_path, climb, num_samples=2, verbose=1)
    assert results.num_terminated == 2
    assert "Not all files of the trials could be written, the log is whole: [Errno" in capsys.readouterr().out
    assert len(results[1].metrics_dataframe) == 9


def test_a_training_iteration_of_the_users_own_is_kept(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime()
    (result,) = search(tmp_path, lambda config: [{"score": 1, "training_iteration": n} for n in (10, 20)], space={})
    assert [row["training_iteration"] for row in rows(Path(result.path or ""))] == [10, 20]
