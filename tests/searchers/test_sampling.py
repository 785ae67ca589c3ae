import tracemalloc
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers import GridSearch, RandomSearch, choice, grid_search, qrandn, quniform, randint, sample_from, uniform
from searchers.sampling import Sampling
from tests.searchers.problems import configs, problem

SPACE = {"lr": uniform(0, 1), "model": {"width": choice([4, 8]), "act": grid_search(["relu", "tanh"])}}


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 5), max_size=12))
def test_a_seed_gives_the_same_trials_however_they_are_asked_for(splits: list[int]) -> None:
    asked = problem(SPACE, num_samples=5, seed=7)
    sampling = Sampling(asked)
    piecewise = [trial for n in [*splits, 100] for trial in sampling.take(n)]
    assert piecewise == list(Sampling(asked).take(100))
    assert [trial for trial, _ in piecewise] == [f"{n:05d}" for n in range(10)]
    assert sampling.exhausted


def test_another_seed_gives_other_configurations() -> None:
    assert configs(SPACE, 3, seed=1) != configs(SPACE, 3, seed=2)


def test_optunas_random_sampler_is_what_draws() -> None:
    sampler = optuna.samplers.RandomSampler(seed=3)
    study = optuna.create_study(sampler=sampler)
    distribution = {"x": optuna.distributions.FloatDistribution(0, 1)}
    expected = [study.ask(distribution).params for _ in range(4)]
    assert configs({"x": uniform(0, 1)}, 4, seed=3) == expected


def test_optunas_log_is_silent_and_as_loud_as_before(capfd: pytest.CaptureFixture[str]) -> None:
    optuna.logging.set_verbosity(optuna.logging.DEBUG)
    try:
        configs({"x": uniform(0, 1)}, 3)
        assert optuna.logging.get_verbosity() == optuna.logging.DEBUG
    finally:
        optuna.logging.set_verbosity(optuna.logging.INFO)
    assert capfd.readouterr() == ("", "")


def test_many_trials_leave_no_memory_behind() -> None:
    sampling = Sampling(problem({"x": uniform(0, 1), "y": choice([1, 2])}, num_samples=-1))
    list(sampling.take(50))
    tracemalloc.start()
    try:
        for _ in sampling.take(300):
            pass
        assert tracemalloc.get_traced_memory()[0] / 300 < 500
    finally:
        tracemalloc.stop()


def test_grids_are_crossed_in_ray_tunes_order_and_repeated() -> None:
    from ray.tune.search.variant_generator import generate_variants

    space = {"b": grid_search([1, 2, 3]), "a": {"grid_search": ["x", "y"]}, "m": {"c": grid_search([0, 1])}}
    theirs = [spec["config"] for _, spec in generate_variants({"config": space})]
    assert configs(space, 2) == theirs * 2


def test_every_combination_of_a_grid_draws_its_own_random_values() -> None:
    drawn = configs({"a": grid_search([1, 2, 3]), "x": uniform(0, 1)}, 2)
    assert [config["a"] for config in drawn] == [1, 2, 3, 1, 2, 3]
    assert len({config["x"] for config in drawn}) == 6


def test_points_come_first_and_count_as_samples() -> None:
    points: list[dict[str, Any]] = [
        {"lr": 1, "model": {"width": 8, "act": "tanh"}},
        {"model": {"act": "relu"}},
        {"lr": 0.5},
    ]
    drawn = configs(SPACE, 4, points)
    assert drawn[0] == {"lr": 1.0, "model": {"width": 8, "act": "tanh"}}
    assert drawn[1]["model"]["act"] == "relu"
    assert [(config["lr"], config["model"]["act"]) for config in drawn[2:4]] == [(0.5, "relu"), (0.5, "tanh")]
    assert len(drawn) == 1 + 1 + 2 + 2


def test_more_points_than_samples_are_all_tried() -> None:
    assert [config["x"] for config in configs({"x": uniform(0, 1)}, 1, [{"x": 0.1}, {"x": 0.2}])] == [0.1, 0.2]


def test_the_total_is_known_beforehand() -> None:
    points = [{"model": {"act": "relu"}}, {"lr": 0.5}]
    sampling = Sampling(problem(SPACE, num_samples=4), points)
    assert sampling.total == 1 + 2 + 2 * 2 == len(list(sampling.take(100)))
    assert Sampling(problem(SPACE, num_samples=-1)).total is None


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"lr": 7}, r"points_to_evaluate\[1\]: lr: 7 is outside uniform\(0, 1\)"),
        ({"model": {"act": "gelu"}}, r"model/act: 'gelu' is outside grid_search\(\['relu', 'tanh'\]\)"),
        ({"model": {"widht": 8}}, r"model/widht is not in param_space; the nearest key is model/width"),
        ({"rate": 1}, r"rate is not in param_space; the nearest key is"),
        ({"model": 3}, r"model must be a dict with keys of 'width', 'act', got 3"),
        ({"epochs": 5}, r"epochs: 5 is not what param_space fixes it at, 3"),
        ({"layers": [1]}, r"layers must be a list of 2 values"),
        ({"layers": [1, 9]}, r"layers/1: 9 is outside randint\(0, 4\)"),
    ],
)
def test_a_wrong_point_is_named(point: dict[str, Any], message: str) -> None:
    space = {**SPACE, "epochs": 3, "layers": [1, randint(0, 4)]}
    with pytest.raises(ValueError, match=message):
        RandomSearch(points_to_evaluate=[{}, point]).start(problem(space, num_samples=2))


def test_a_point_may_stand_in_for_a_sample_from() -> None:
    space = {"a": 1, "b": sample_from(lambda config: config.a + 1)}
    assert configs(space, 2, [{"b": 9}]) == [{"a": 1, "b": 9}, {"a": 1, "b": 2}]


def test_a_grid_search_enumerates_every_finite_parameter_once_a_sample() -> None:
    space = {"a": choice(["x", "y"]), "b": randint(1, 3), "c": quniform(0, 1, 0.5), "d": sample_from(lambda c: c.b)}
    searcher = GridSearch().start(problem(space, num_samples=2))
    drawn = [tuple(create.config.values()) for create in searcher.suggest(100)]
    combinations = [(a, b, c, b) for c in (0.0, 0.5, 1.0) for b in (1, 2) for a in ("x", "y")]
    assert drawn == combinations * 2
    assert searcher.finished


def test_a_huge_grid_is_enumerated_without_being_held() -> None:
    searcher = GridSearch().start(problem({"a": randint(0, 10**12), "b": randint(0, 10**12)}))
    assert [create.config for create in searcher.suggest(2)] == [{"a": 0, "b": 0}, {"a": 1, "b": 0}]


@pytest.mark.parametrize("domain", [uniform(0, 1), qrandn(0, 1, 1)])
def test_a_grid_of_infinitely_many_values_is_refused_by_name(domain: Any) -> None:
    with pytest.raises(ValueError, match=r"param_space, m/lr: .* has infinitely many values"):
        GridSearch().start(problem({"m": {"lr": domain}}))


def test_an_endless_grid_is_refused() -> None:
    with pytest.raises(ValueError, match="GridSearch ends when its grid does"):
        GridSearch().start(problem({"a": randint(0, 2)}, num_samples=-1))


def test_random_search_runs_every_trial_to_its_end() -> None:
    searcher = RandomSearch().start(problem(num_samples=2))
    assert not searcher.acts_on_feedback
    assert [(create.trial, create.until) for create in searcher.suggest(5)] == [("00000", None), ("00001", None)]
    assert searcher.report("00000", 1, {"score": 0.0}) == []
    assert searcher.finished
