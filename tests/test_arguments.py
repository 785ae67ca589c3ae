"""Whatever is called with a keyword that it lacks names it and the nearest one that it has."""

import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import gandiva_ray as tune
from gandiva_ray.arguments import explain_unknown

RESULTS = tune.ResultGrid.__new__(tune.ResultGrid)


def train(config: dict[str, Any]) -> None: ...


@pytest.mark.parametrize(
    ("called", "wrong", "right"),
    [
        (tune.init, "quantums", "quantum"),
        (tune.Tuner, "param_spaces", "param_space"),
        (tune.Tuner.restore, "restart_error", "restart_errored"),
        (tune.TuneConfig, "num_sample", "num_samples"),
        (tune.RunConfig, "storage", "storage_path"),
        (tune.FailureConfig, "max_failure", "max_failures"),
        (tune.CheckpointConfig, "num_keep", "num_to_keep"),
        (tune.ASHA, "grace_periods", "grace_period"),
        (tune.Hyperband, "max_time", "max_t"),
        (tune.SuccessiveHalving, "reduction", "reduction_factor"),
        (tune.RandomSearch, "points", "points_to_evaluate"),
        (tune.uniform, "low", "lower"),
        (tune.quniform, "uper", "upper"),
        (tune.loguniform, "low", "lower"),
        (tune.qloguniform, "low", "lower"),
        (tune.randn, "means", "mean"),
        (tune.qrandn, "means", "mean"),
        (tune.randint, "low", "lower"),
        (tune.lograndint, "low", "lower"),
        (tune.qrandint, "low", "lower"),
        (tune.qlograndint, "low", "lower"),
        (tune.choice, "category", "categories"),
        (tune.grid_search, "value", "values"),
        (tune.sample_from, "function", "func"),
        (tune.report, "metric", "metrics"),
        (tune.with_resources, "resource", "resources"),
        (RESULTS.get_best_result, "metrics", "metric"),
        (RESULTS.get_dataframe, "filter_metrics", "filter_metric"),
    ],
)
def test_the_nearest_known_keyword_is_named(called: Callable[..., Any], wrong: str, right: str) -> None:
    with pytest.raises(TypeError) as refused:
        called(**{wrong: 1})
    name = called.__qualname__
    assert str(refused.value).startswith(f"{name} has no {wrong!r}: did you mean {right!r}? It takes ")
    assert right in inspect.signature(called).parameters


@pytest.mark.parametrize(
    ("called", "keyword", "instead"),
    [
        (tune.ASHA, "metric", "it belongs into TuneConfig(...), beside searcher"),
        (tune.Hyperband, "time_attr", "leave it out: a trial's time is the number of its reports"),
        (tune.report, "checkpoint_dir_name", "leave it out: checkpoints are numbered by their reports"),
    ],
)
def test_a_keyword_of_ray_tune_is_told_what_to_use(called: Callable[..., Any], keyword: str, instead: str) -> None:
    with pytest.raises(TypeError) as refused:
        called(**{keyword: "loss"})
    assert str(refused.value) == f"{called.__qualname__} has no {keyword!r} (Ray Tune has it): {instead}"


def test_what_is_called_well_is_left_alone() -> None:
    @explain_unknown()
    def add(a: int, *, b: int = 2) -> int:
        """Sum."""
        return a + b

    assert (add(1), add(a=1, b=1)) == (3, 2)
    assert add.__doc__ == "Sum."
    assert list(inspect.signature(add).parameters) == ["a", "b"]
    assert pickle.loads(pickle.dumps(tune.report)) is tune.report
    assert pickle.loads(pickle.dumps(tune.ASHA(max_t=9))) == tune.ASHA(max_t=9)
