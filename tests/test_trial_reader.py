"""A trial's result is read back as fit() returned it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gandiva_ray.config import CheckpointConfig, FailureConfig, RunConfig, TuneConfig
from gandiva_ray.core.model import Outcome
from gandiva_ray.results import Result
from gandiva_ray.tuner import Tuner
from searchers import SuccessiveHalving, grid_search
from tests.test_restore import climb_and_save
from tests.test_tuner import Install, crash, press_ctrl_c_at, search


def stumble(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Nested metrics and checkpoints; the second trial raises after four reports, whenever it is tried."""
    for step in range(1, 8):
        if step == 5 and config["x"] == 1:
            raise ValueError("no further")
        yield {"score": config["x"], "eval": {"loss": 1 / step}, "checkpoint": f"checkpoint_{step:06d}"}


def stumbling_search(folder: Path) -> Any:
    return Tuner(
        stumble,
        param_space={"x": grid_search([0, 1, 2]), "kind": Outcome.CUT},  # one that JSON does not hold
        tune_config=TuneConfig("score", "max"),
        run_config=RunConfig(
            name="run",
            storage_path=folder,
            verbose=0,
            failure_config=FailureConfig(max_failures=1),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        ),
    )


def same(read: Result, returned: Result) -> bool:
    names = ("trial_id", "config", "metrics", "outcome", "reason", "error", "path", "steps", "device_seconds")
    return all(getattr(read, name) == getattr(returned, name) for name in names)


def test_it_is_as_fit_returned_it(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime()
    for result in stumbling_search(tmp_path).fit():
        read = Result.from_path(result.path or "")
        assert same(read, result)
        assert read.metrics_dataframe.equals(result.metrics_dataframe)
        names = [Path(checkpoint.path).name for checkpoint, _ in read.best_checkpoints]
        assert names == [Path(checkpoint.path).name for checkpoint, _ in result.best_checkpoints]
        assert len(names) == 2


@pytest.mark.parametrize("how", ["resume_errored", "restart_errored"])
def test_it_is_as_a_restored_search_returned_it(tmp_path: Path, fake_runtime: Install, how: str) -> None:
    fake_runtime()
    stumbling_search(tmp_path).fit()
    fake_runtime()
    results = Tuner.restore(tmp_path / "run", climb_and_save, **{how: True}).fit()
    assert results.num_errors == 0
    assert all(same(Result.from_path(result.path or ""), result) for result in results)


def test_trials_that_were_cut_or_stopped_are_read_back_too(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime(before_poll=press_ctrl_c_at(7))
    results = search(tmp_path, climb_and_save, num_samples=9, searcher=SuccessiveHalving(max_t=9))
    assert all(same(Result.from_path(result.path), result) for result in results if result.path is not None)


def test_a_run_that_was_moved_is_read_where_it_is_now(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime()
    search(tmp_path, crash, space={"x": grid_search([1])})
    shutil.move(tmp_path / "run", tmp_path / "there")
    read = Result.from_path(tmp_path / "there" / "00000")
    assert (read.path, read.outcome) == (str(tmp_path / "there" / "00000"), Outcome.FAILED)
    assert "ValueError: cannot train 1" in (read.error or "")


def test_what_is_no_trials_folder_is_named(tmp_path: Path, fake_runtime: Install) -> None:
    fake_runtime()
    search(tmp_path, crash)
    for folder in (tmp_path, tmp_path / "run" / "00099"):
        with pytest.raises(FileNotFoundError, match=r"is no trial's folder: no log\.jsonl beside it tells of"):
            Result.from_path(folder)
