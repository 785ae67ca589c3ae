"""What a user says wrong is refused at once, by its name and with the fix."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from gandiva_ray.config import RunConfig, TuneConfig
from searchers import Hyperband


def refusal(config: type, **keywords: Any) -> str:
    with pytest.raises((TypeError, ValueError)) as refused:
        config(**keywords)
    return str(refused.value)


def test_defaults_follow_ray_tune() -> None:
    config = TuneConfig()
    assert (config.metric, config.mode, config.num_samples, config.max_concurrent_trials) == (None, None, 1, None)
    assert (RunConfig().name, RunConfig().storage_path, RunConfig().verbose) == (None, None, 1)


def test_arguments_may_be_given_all_together() -> None:
    budget = datetime.timedelta(minutes=2)
    config = TuneConfig("loss", "min", 8, Hyperband(max_t=9), target=0.1, time_budget_s=budget, max_concurrent_trials=2)
    assert config.time_budget == 120.0
    assert TuneConfig(time_budget_s=1.5).time_budget == 1.5


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"mode": "maximize"}, ["mode", "'maximize'", 'mean "max"']),
        ({"mode": "max"}, ["mode", "add metric"]),
        ({"target": 0.5}, ["target", "add metric"]),
        ({"metric": "score"}, ["a small or a large score good", 'mode="min" or mode="max"']),
        ({"mode": "best"}, ["mode", '"min" or "max"', "'best'"]),
        ({"metric": 3}, ["metric", "3", "accuracy"]),
        ({"metric": ["loss"]}, ["metric", "loss"]),
        ({"num_samples": 0}, ["num_samples", "at least 1", "got 0", "how many configurations"]),
        ({"num_samples": -1}, ["num_samples=-1", "not supported yet", "time_budget_s"]),
        ({"num_samples": 2.0}, ["num_samples", "2.0"]),
        ({"num_samples": True}, ["num_samples", "True"]),
        ({"max_concurrent_trials": 0}, ["max_concurrent_trials", "at least 1", "got 0", "leave it out"]),
        ({"time_budget_s": 0}, ["time_budget_s", "above 0", "leave it out"]),
        ({"time_budget_s": -5.0}, ["time_budget_s", "-5.0"]),
        ({"time_budget_s": "10m"}, ["time_budget_s", "'10m'", "seconds"]),
        ({"time_budget_s": float("nan")}, ["time_budget_s", "nan"]),
        ({"time_budget_s": datetime.timedelta(0)}, ["time_budget_s"]),
        ({"target": "0.9"}, ["target", "'0.9'", "number"]),
        ({"target": float("nan")}, ["target", "nan"]),
        ({"seed": -1}, ["seed", "-1"]),
        ({"seed": 2**32}, ["seed", "2**32"]),
        ({"seed": None}, ["seed", "None"]),
        ({"searcher": Hyperband}, ["class Hyperband", "searcher=Hyperband(...)"]),
        ({"searcher": "asha"}, ["searcher", "'asha'", "gandiva_ray.Hyperband(max_t=27)"]),
    ],
)
def test_a_wrong_value_is_named_with_the_fix(keywords: dict[str, Any], words: list[str]) -> None:
    message = refusal(TuneConfig, **keywords)
    assert [word for word in words if word not in message] == []


def test_a_searcher_of_ray_tune_is_refused_by_name() -> None:
    foreign = type("OptunaSearch", (), {"__module__": "ray.tune.search.optuna"})()
    assert "OptunaSearch of Ray Tune is not supported yet" in refusal(TuneConfig, searcher=foreign)


@pytest.mark.parametrize("keyword", ["search_alg", "scheduler", "reuse_actors", "trial_name_creator", "stop"])
def test_a_keyword_of_ray_tunes_tune_config_is_refused_with_what_to_use_instead(keyword: str) -> None:
    message = refusal(TuneConfig, **{keyword: None})
    assert f"TuneConfig has no '{keyword}' (Ray Tune has it): " in message


@pytest.mark.parametrize(
    "keyword",
    [
        *(
            "failure_config",
            "checkpoint_config",
            "sync_config",
            "stop",
            "callbacks",
            "progress_reporter",
            "log_to_file",
        ),
        *("local_dir", "storage_filesystem"),
    ],
)
def test_a_keyword_of_ray_tunes_run_config_is_refused_with_what_to_use_instead(keyword: str) -> None:
    assert f"RunConfig has no '{keyword}' (Ray Tune has it): " in refusal(RunConfig, **{keyword: None})


def test_a_typo_is_answered_with_the_nearest_keyword() -> None:
    assert "TuneConfig has no 'num_sample': did you mean 'num_samples'?" in refusal(TuneConfig, num_sample=3)
    assert "It takes name, storage_path, verbose" in refusal(RunConfig, zzz=1)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"storage_path": "s3://bucket/runs"}, ["storage_path", "s3://bucket/runs", "not supported yet", "local"]),
        ({"storage_path": 3}, ["storage_path", "3"]),
        ({"name": "a/b"}, ["name", "'a/b'", "slashes"]),
        ({"name": ".."}, ["name", "'..'"]),
        ({"name": ""}, ["name", "''"]),
        ({"name": 7}, ["name", "7"]),
        ({"verbose": 2}, ["verbose", "0 (silent)", "2"]),
    ],
)
def test_a_wrong_place_or_name_is_refused(keywords: dict[str, Any], words: list[str]) -> None:
    message = refusal(RunConfig, **keywords)
    assert [word for word in words if word not in message] == []


def test_a_storage_path_may_be_a_path_object(tmp_path: Path) -> None:
    assert RunConfig(storage_path=tmp_path).storage_path == tmp_path
