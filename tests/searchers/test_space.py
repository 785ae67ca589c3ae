import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from optuna.distributions import FloatDistribution

import searchers
from searchers import (
    Space,
    choice,
    grid_search,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from tests.searchers.problems import configs, problem

RANGES = {
    "uniform": (-1, 2.5),
    "quniform": (-1, 1, 0.25),
    "loguniform": (1e-5, 1),
    "qloguniform": (0.5, 8, 0.5),
    "randint": (-2, 3),
    "lograndint": (1, 9),
    "qrandint": (3, 20, 4),
    "qlograndint": (1, 64, 8),
}
WHOLE = {"qrandint q=1": ("qrandint", (0, 4, 1)), "qlograndint q=1": ("qlograndint", (1, 4, 1))}
CASES = {**{name: (name, arguments) for name, arguments in RANGES.items()}, **WHOLE}


def draws(domain: Any, n: int = 600) -> list[Any]:
    return [config["x"] for config in configs({"x": domain}, n)]


@pytest.mark.parametrize(("name", "arguments"), CASES.values(), ids=CASES)
def test_a_domain_draws_what_ray_tunes_domain_of_that_name_draws(name: str, arguments: tuple[float, ...]) -> None:
    from ray.tune.search import sample

    ours = draws(getattr(searchers, name)(*arguments))
    domain, generator = getattr(sample, name)(*arguments), np.random.default_rng(0)
    theirs = [domain.sample(random_state=generator) for _ in range(2000)]
    assert {type(value) for value in ours} == {type(value) for value in theirs}
    span = arguments[1] - arguments[0]
    assert min(ours) == pytest.approx(min(theirs), abs=0.02 * span)
    assert max(ours) == pytest.approx(max(theirs), abs=0.02 * span)
    if name.startswith("q") or "int" in name:
        assert set(ours) == set(theirs)
    assert np.mean(ours) == pytest.approx(np.mean(theirs), abs=0.05 * span)


@pytest.mark.parametrize(("name", "arguments"), [("randn", (10, 2)), ("randn", ()), ("qrandn", (10, 2, 0.5))])
def test_normals_have_the_mean_and_deviation_asked_for(name: str, arguments: tuple[float, ...]) -> None:
    ours = draws(getattr(searchers, name)(*arguments), 2000)
    mean, sd, *q = arguments or (0, 1)
    assert np.mean(ours) == pytest.approx(mean, abs=0.1 * sd)
    assert np.std(ours) == pytest.approx(sd, rel=0.1)
    assert all(type(value) is float for value in ours)
    assert all((value / step).is_integer() for step in q for value in ours)


@pytest.mark.parametrize(
    ("build", "inside", "outside"),
    [
        (lambda: uniform(0, 1), [0, 1, 0.5], [-0.1, 1.1, math.nan, math.inf, "0.5", True, None]),
        (lambda: quniform(0, 1, 0.1), [0, 0.3, 1], [0.35, 1.1]),
        (lambda: randint(1, 5), [1, 4, 4.0], [0, 5, 2.5, True]),
        (lambda: qrandint(0, 10, 5), [0, 5, 10], [3, 15]),
        (lambda: randn(), [0, -7.5], [math.inf, "x"]),
        (lambda: choice([None, "a", (1, 2)]), [None, "a", (1, 2)], ["b", 1]),
    ],
)
def test_a_domain_knows_its_values(build: Callable[[], Any], inside: list[Any], outside: list[Any]) -> None:
    space = Space({"x": build()})
    assert [space.point({"x": value})["x"] for value in inside] == inside
    for value in outside:
        with pytest.raises(ValueError, match=r"x: .* is outside"):
            space.point({"x": value})


def test_quantised_values_are_the_multiples_ray_tune_gives() -> None:
    assert sorted(set(draws(quniform(0.1, 0.5, 0.1)))) == [k * 0.1 for k in range(1, 6)]


def test_a_choice_gives_the_very_objects() -> None:
    categories = [object(), [1], {"a": 1}, float]
    assert {id(value) for value in draws(choice(categories), 100)} == {id(category) for category in categories}


def test_dicts_lists_and_constants_stay_as_they_are() -> None:
    constant = {"layers": [1, (2, 3)], "name": "net", "function": math.sin, 7: None}
    (config,) = configs({"model": {**constant, "widths": [8, randint(4, 5), (randint(6, 7),)]}}, 1)
    assert config == {"model": {**constant, "widths": [8, 4, (6,)]}}


@pytest.mark.parametrize(
    "function",
    [
        lambda config: config["model"]["a"] * 2,
        lambda config: config.model.a * 2,
        lambda spec: spec.config.model.a * 2,
        lambda spec: spec["config"]["model"]["a"] * 2,
        lambda: 6,
    ],
)
def test_sample_from_sees_the_configuration_as_in_ray_tune(function: Callable[..., Any]) -> None:
    assert configs({"model": {"a": randint(3, 4)}, "b": sample_from(function)}, 1) == [{"model": {"a": 3}, "b": 6}]


def test_sample_from_functions_may_build_on_one_another_in_any_order() -> None:
    space = {"c": sample_from(lambda config: config.b + 1), "b": sample_from(lambda config: config.a + 1), "a": 1}
    assert configs(space, 1) == [{"c": 3, "b": 2, "a": 1}]


def test_sample_from_functions_in_a_circle_are_named() -> None:
    space = {"a": sample_from(lambda config: config.b), "b": sample_from(lambda config: config.a)}
    with pytest.raises(ValueError, match="sample_from functions of a, b need one another"):
        configs(space, 1)


def test_a_sample_from_that_raises_is_named() -> None:
    with pytest.raises(ValueError, match="param_space, m/a: sample_from raised KeyError: 'lr'"):
        configs({"m": {"a": sample_from(lambda config: config["lr"])}}, 1)


def test_a_sample_from_may_hand_on_a_part_of_the_configuration() -> None:
    (config,) = configs({"m": {"x": randint(1, 2)}, "same": sample_from(lambda config: config.m)}, 1)
    assert config == {"m": {"x": 1}, "same": {"x": 1}}
    assert type(config["same"]) is dict


def ray_domain() -> Any:
    from ray import tune

    return tune.uniform(0, 1)


def ray_function() -> Any:
    from ray import tune

    return tune.loguniform


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: uniform(2, 1), r"uniform\(2, 1\): the lower bound is above the upper one; swap them"),
        (lambda: uniform("0", 1), r"lower must be a finite number, got '0'"),
        (lambda: uniform(0, math.inf), r"upper must be a finite number, got inf"),
        (lambda: loguniform(0, 1), r"loguniform\(0, 1\): a logarithmic range needs a lower bound above 0"),
        (lambda: quniform(0, 1, 0), r"quniform\(0, 1, 0\): q must be above 0"),
        (lambda: quniform(0, 1, 2), r"q is larger than the range of 1"),
        (lambda: quniform(0, 1, 0.3), r"1 is no multiple of q=0.3; the nearest is 0.89"),
        (lambda: qloguniform(0.1, 1, 0.25), r"qloguniform\(0.1, 1, 0.25\): 0.1 is no multiple"),
        (lambda: randint(3, 3), r"randint\(3, 3\) is empty: its upper bound is exclusive"),
        (lambda: randint(4, 3), r"swap them"),
        (lambda: randint(0.5, 3), r"lower must be a whole number"),
        (lambda: lograndint(0, 3), r"lower bound above 0"),
        (lambda: qrandint(0, 10, 20), r"q is larger than the range"),
        (lambda: qlograndint(1, 10, 0), r"q must be above 0"),
        (lambda: randn(0, 0), r"randn\(0, 0\): sd must be above 0"),
        (lambda: qrandn(0, 1, -1), r"q must be above 0"),
        (lambda: choice([]), r"choice\(\[\]\) is empty"),
        (lambda: choice("adam"), r"choice\('adam'\) needs a list"),
        (lambda: choice({"a", "b"}), r"needs a list"),
        (lambda: choice([1, uniform(0, 1)]), r"holds a search space of its own"),
        (lambda: choice([uniform]), r"uniform is the function itself"),
        (lambda: grid_search(3), r"grid_search\(3\) needs a list"),
        (lambda: grid_search([]), r"grid_search\(\[\]\) is empty"),
        (lambda: {"grid_search": [1], "other": 2}, r"'grid_search' cannot hold 'other' too"),
        (lambda: sample_from(3), r"sample_from needs a function, got 3"),
        (lambda: sample_from(lambda a, b: a), r"must take one argument"),
        (lambda: uniform, r"uniform is the function itself; call it: uniform\(...\)"),
        (lambda: grid_search, r"grid_search is the function itself"),
        (ray_domain, r"ray.tune.search.sample.Float is not known here; use gandiva_ray's own"),
        (ray_function, r"loguniform is the function itself"),
        (lambda: FloatDistribution(0, 1), r"FloatDistribution is not known here"),
    ],
)
def test_a_mistake_is_named_with_its_path_and_the_fix(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^param_space, model/lr: .*{message}"):
        Space({"model": {"lr": build()}})


def test_a_space_is_a_dict_of_paths_that_differ() -> None:
    with pytest.raises(ValueError, match="param_space must be a dict"):
        Space([uniform(0, 1)])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="param_space itself cannot be a grid_search"):
        Space(grid_search([{"x": 1}, {"x": 2}]))
    with pytest.raises(ValueError, match="two parameters have the path a/b"):
        Space({"a": {"b": uniform(0, 1)}, "a/b": uniform(0, 1)})


def test_importing_searchers_loads_neither_torch_nor_ray_nor_optuna() -> None:
    code = "import searchers, sys; print([m for m in ('torch', 'ray', 'optuna') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_endless_problem_and_a_bad_one() -> None:
    assert problem(num_samples=-1).num_samples == -1
    with pytest.raises(ValueError, match="num_samples must be at least 1"):
        problem(num_samples=0)
    with pytest.raises(ValueError, match="mode must be"):
        problem(mode="maximum")
    with pytest.raises(ValueError, match="metric must be the key"):
        problem(metric="")
    with pytest.raises(ValueError, match="seed must be"):
        problem(seed=-1)


def test_a_slip_in_grid_search_is_named():
    with pytest.raises(ValueError, match="param_space, x: did you mean 'grid_search' where it says 'grid_serach'"):
        Space({"x": {"grid_serach": [1, 2]}})


def test_a_category_that_cannot_be_pickled_is_named():
    with pytest.raises(TypeError, match="param_space, x: a generator cannot be sent to the trials"):
        Space({"x": choice([1, (n for n in range(3))])})
