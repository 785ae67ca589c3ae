"""What a user says wrong is refused at once, by its name and with the fix."""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Any

import pytest

from gandiva_ray.config import CheckpointConfig, FailureConfig, RunConfig, TuneConfig, stop_rule
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


class FullyTrained:
    """As ray.tune.Stopper has it."""

    def __call__(self, trial: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return False


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
        ({"num_samples": -1}, ["num_samples=-1", "without end", "max_concurrent_trials"]),
        ({"num_samples": -2}, ["num_samples", "-2"]),
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
        "sync_config",
        "callbacks",
        "progress_reporter",
        "log_to_file",
        "local_dir",
        "storage_filesystem",
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
        ({"stop": {}}, ["stop", "training_iteration"]),
        ({"stop": {"loss": "low"}}, ["stop", "'low'"]),
        ({"stop": 10}, ["stop", "10"]),
        ({"stop": FullyTrained()}, ["FullyTrained", "a Stopper of Ray Tune", '{"training_iteration": 10}', "target="]),
        ({"failure_config": 3}, ["failure_config is a gandiva_ray.FailureConfig", "3"]),
        ({"checkpoint_config": {}}, ["checkpoint_config is a gandiva_ray.CheckpointConfig"]),
        ({"storage_path": "s3://bucket/runs"}, ["storage_path", "s3://bucket/runs", "not supported yet", "local"]),
        ({"storage_path": 3}, ["storage_path", "3"]),
        ({"name": "a/b"}, ["name", "'a/b'", "slashes"]),
        ({"name": ".."}, ["name", "'..'"]),
        ({"name": ""}, ["name", "''"]),
        ({"name": 7}, ["name", "7"]),
        ({"start_method": "forkserver"}, ["start_method", '"fork", "spawn" or "actor"', "'forkserver'"]),
        ({"verbose": 2}, ["verbose", "0 (silent)", "2"]),
    ],
)
def test_a_wrong_place_or_name_is_refused(keywords: dict[str, Any], words: list[str]) -> None:
    message = refusal(RunConfig, **keywords)
    assert [word for word in words if word not in message] == []


def test_a_storage_path_may_be_a_path_object(tmp_path: Path) -> None:
    assert RunConfig(storage_path=tmp_path).storage_path == tmp_path


@pytest.mark.parametrize(
    ("kind", "keywords", "words"),
    [
        (FailureConfig, {"max_failures": -2}, ["max_failures", "-2"]),
        (FailureConfig, {"max_failures": 1.5}, ["max_failures", "1.5"]),
        (FailureConfig, {"fail_fast": "raise"}, ["fail_fast", "'raise'"]),
        (FailureConfig, {"fail_fast": True, "max_failures": 2}, ["fail_fast", "max_failures"]),
        (CheckpointConfig, {"num_to_keep": 0}, ["num_to_keep", "leave it out"]),
        (CheckpointConfig, {"checkpoint_score_order": "maximize"}, ["checkpoint_score_order", 'mean "max"']),
        (CheckpointConfig, {"checkpoint_score_attribute": 3}, ["checkpoint_score_attribute", "3"]),
        (CheckpointConfig, {"checkpoint_frequency": -1}, ["checkpoint_frequency", "-1"]),
        (CheckpointConfig, {"checkpoint_at_end": "yes"}, ["checkpoint_at_end", "True or False", "'yes'"]),
    ],
)
def test_what_becomes_of_failures_and_checkpoints_is_checked_too(
    kind: Any, keywords: dict[str, Any], words: list[str]
) -> None:
    message = refusal(kind, **keywords)
    assert [word for word in words if word not in message] == []


def test_a_trial_has_done_enough_at_the_first_metric_that_reaches_its_number() -> None:
    rule = stop_rule({"accuracy": 0.5, "training_iteration": 10})
    assert rule is not None
    assert rule("00000", {"accuracy": 0.4, "training_iteration": 9}) == ""
    assert rule("00000", {"accuracy": 0.6, "training_iteration": 9}) == "accuracy reached 0.5"
    assert rule("00000", {"accuracy": math.nan, "training_iteration": 10}) == "training_iteration reached 10"
    with pytest.raises(ValueError, match="stop names 'accuracy', which trial 00000 does not report: loss"):
        rule("00000", {"loss": 1.0})


def test_a_function_may_say_that_a_trial_has_done_enough() -> None:
    rule = stop_rule(lambda trial, metrics: trial == "00001" and metrics["loss"] < 1)
    assert rule is not None
    assert (rule("00000", {"loss": 0.5}), rule("00001", {"loss": 2.0})) == ("", "")
    assert rule("00001", {"loss": 0.5}) == "the stop function said so"
