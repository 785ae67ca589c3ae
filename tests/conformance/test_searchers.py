from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gandiva_ray.core.model import Outcome
from gandiva_ray.core.search import Action, Algorithm, Create, Problem, Promote, Searcher
from searchers import ASHA, GridSearch, Hyperband, RandomSearch, SuccessiveHalving, choice, grid_search, uniform
from searchers.random_search import FeedForward
from searchers.sampling import Sampling
from tests.conformance.searcher_suite import Chaos, chaos, check_searcher

ALGORITHMS: list[Algorithm] = [
    RandomSearch(),
    RandomSearch(points_to_evaluate=[{"x": 0.5}]),
    GridSearch(),
    SuccessiveHalving(max_t=9),
    SuccessiveHalving(max_t=10, grace_period=2, reduction_factor=2),
    Hyperband(max_t=9),
    Hyperband(max_t=8, reduction_factor=2),
    ASHA(max_t=20),
    ASHA(max_t=10, reduction_factor=1.5, brackets=3),
]
MIXED = {"x": uniform(0, 1), "m": {"w": choice([4, 8]), "act": grid_search(["relu", "tanh"])}}
FINITE = {"m": {"w": choice([4, 8]), "act": grid_search(["relu", "tanh"])}}


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=repr)
@settings(deadline=None, max_examples=50)
@given(chaos=chaos())
def test_every_search_ends_whatever_happens_and_can_be_replayed(algorithm: Algorithm, chaos: Chaos) -> None:
    check_searcher(algorithm, chaos, FINITE if isinstance(algorithm, GridSearch) else MIXED)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=repr)
@settings(deadline=None, max_examples=20)
@given(splits=st.lists(st.integers(0, 5), max_size=8))
def test_the_same_trials_are_suggested_however_they_are_asked_for(algorithm: Algorithm, splits: list[int]) -> None:
    problem = Problem(FINITE if isinstance(algorithm, GridSearch) else MIXED, "score", "max", num_samples=6)
    piecewise, at_once = algorithm.start(problem), algorithm.start(problem)
    assert [create for n in [*splits, 100] for create in piecewise.suggest(n)] == at_once.suggest(100)
    assert piecewise.finished
    assert at_once.finished


# --- the suite itself can fail


class Faulty(FeedForward):
    acts_on_feedback = True


class Sleeper(Faulty):
    """Parks everything for ever."""

    def suggest(self, n: int) -> list[Create]:
        return [Create(create.trial, create.config, until=1) for create in super().suggest(n)]


class Forgetful(Faulty):
    """Acts again on a report that it has seen."""

    def report(self, trial: str, step: int, values: Mapping[str, float]) -> list[Action]:
        return [Promote(trial, None)]


class Necromancer(Faulty):
    """Acts on a trial that ended."""

    def ended(self, trial: str, outcome: Outcome) -> list[Action]:
        return [Promote(trial, None)]


class Twins(Faulty):
    """Gives two trials one id."""

    def suggest(self, n: int) -> list[Create]:
        return [Create("00000", create.config) for create in super().suggest(n)]


class Pushy(Faulty):
    """Suggests more than it was asked for."""

    def suggest(self, n: int) -> list[Create]:
        return super().suggest(n + 1)


class Starts:
    def __init__(self, kind: type[FeedForward]) -> None:
        self._kind = kind

    def start(self, problem: Problem) -> Searcher:
        return self._kind(Sampling(problem))


@pytest.mark.parametrize("kind", [Sleeper, Forgetful, Necromancer, Twins, Pushy])
def test_the_suite_finds_the_fault(kind: type[FeedForward]) -> None:
    world = Chaos(1, "max", 4, max_concurrent_trials=2, values="plain", failures=0.0, length=4)
    with pytest.raises(AssertionError):
        check_searcher(Starts(kind), world, {"x": uniform(0, 1)})


def test_the_suite_lets_a_sound_searcher_pass() -> None:
    world = Chaos(1, "max", 4, max_concurrent_trials=2, values="plain", failures=0.0, length=4)
    check_searcher(Starts(Faulty), world, {"x": uniform(0, 1)})
