"""Only a function of one argument is trained; anything else is refused with the fix."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from gandiva_ray.trainable import as_function, check_space, check_trainable, name_of, with_parameters
from gandiva_ray.trial.kinds import Trainable


def train(config: dict[str, Any]) -> None: ...


def takes_two(config: dict[str, Any], data: Any) -> None: ...


def takes_none() -> None: ...


def generator(config: dict[str, Any]) -> Any:
    yield 1


async def coroutine(config: dict[str, Any]) -> None: ...


class Callable_:  # noqa: N801
    def __call__(self, config: dict[str, Any]) -> None: ...


class Stepless(Trainable):
    pass


class Steps(Trainable):
    def setup(self, config: dict[str, Any], data: Any = None) -> None: ...

    def step(self) -> dict[str, Any]:
        return {}


class GeneratorObject:
    def __call__(self, config: dict[str, Any]) -> Any:
        yield 1


@pytest.mark.parametrize(
    "good",
    [
        train,
        functools.partial(takes_two, data=1),
        Callable_(),
        Callable_().__call__,
        lambda c, epochs=3: None,
        print,
        generator,
        functools.partial(generator),
        GeneratorObject(),
        Steps,
        with_parameters(Steps, data=1),
        with_parameters(takes_two, data=1),
    ],
)
def test_a_function_of_one_argument_may_be_trained(good: Any) -> None:
    check_trainable(good)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (None, ["the trainable is a function", "None"]),
        ("train", ["'train'"]),
        (Callable_, ["class Callable_ is no gandiva_ray.Trainable", "setup(config)"]),
        (Stepless, ["class Stepless has no step(self)"]),
        (coroutine, ["coroutine is asynchronous", "def coroutine(config)"]),
        (takes_none, ["takes_none()", "one argument", "def takes_none(config)"]),
        (takes_two, ["takes_two(config", "data", "functools.partial"]),
    ],
)
def test_anything_else_is_refused_with_the_fix(bad: Any, words: list[str]) -> None:
    with pytest.raises(TypeError) as refused:
        check_trainable(bad)
    assert [word for word in words if word not in str(refused.value)] == []


def test_parameters_that_the_trainable_does_not_take_are_refused() -> None:
    with pytest.raises(TypeError, match="train"):
        with_parameters(train, dta=1)
    with pytest.raises(TypeError, match="the trainable is a function"):
        with_parameters("train")


def test_only_a_class_is_asked_for_checkpoints() -> None:
    with pytest.raises(ValueError, match="a function saves by report"):
        as_function(train, checkpoint_frequency=1)


def test_a_name_can_be_part_of_a_folders_name() -> None:
    assert name_of(train) == "train"
    assert name_of(functools.partial(functools.partial(takes_two), data=1)) == "takes_two"
    assert name_of(lambda config: None) == "trainable"
    assert name_of(Callable_()) == "Callable_"


@pytest.mark.parametrize("space", [None, [("lr", 1)], "lr", 3])
def test_a_space_is_a_dict(space: object) -> None:
    with pytest.raises(TypeError, match=r"param_space is a dict like .* got "):
        check_space(space)


def test_a_space_by_function_is_not_there_yet() -> None:
    with pytest.raises(TypeError, match=r"param_space is a function.*not supported yet"):
        check_space(lambda trial: {})
