"""Only a function of one argument is trained; anything else is refused with the fix."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from gandiva_ray.trainable import check_space, check_trainable, name_of


def train(config: dict[str, Any]) -> None: ...


def takes_two(config: dict[str, Any], data: Any) -> None: ...


def takes_none() -> None: ...


def generator(config: dict[str, Any]) -> Any:
    yield 1


async def coroutine(config: dict[str, Any]) -> None: ...


class Callable_:  # noqa: N801
    def __call__(self, config: dict[str, Any]) -> None: ...


class GeneratorObject:
    def __call__(self, config: dict[str, Any]) -> Any:
        yield 1


@pytest.mark.parametrize(
    "good",
    [train, functools.partial(takes_two, data=1), Callable_(), Callable_().__call__, lambda c, epochs=3: None, print],
)
def test_a_function_of_one_argument_may_be_trained(good: Any) -> None:
    check_trainable(good)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (None, ["the trainable is a function", "None"]),
        ("train", ["'train'"]),
        (Callable_, ["class, Callable_", "not supported yet", "def train(config)"]),
        (generator, ["generator", "yield", "not supported yet", "gandiva_ray.report"]),
        (functools.partial(generator), ["generator"]),
        (GeneratorObject(), ["GeneratorObject is a generator"]),
        (coroutine, ["coroutine is asynchronous", "def coroutine(config)"]),
        (takes_none, ["takes_none()", "one argument", "def takes_none(config)"]),
        (takes_two, ["takes_two(config", "data", "functools.partial"]),
    ],
)
def test_anything_else_is_refused_with_the_fix(bad: Any, words: list[str]) -> None:
    with pytest.raises(TypeError) as refused:
        check_trainable(bad)
    assert [word for word in words if word not in str(refused.value)] == []


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
