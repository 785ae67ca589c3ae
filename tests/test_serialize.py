"""A trainable that cannot be pickled is refused by the name, type and line of what it holds."""

from __future__ import annotations

import functools
import inspect
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from gandiva_ray.serialize import dump_trainable, size_hint
from gandiva_ray.trainable import name_of, with_parameters


def refusal(trainable: Callable[..., Any]) -> str:
    with pytest.raises(TypeError) as refused:
        dump_trainable(trainable, name_of(trainable))
    return str(refused.value)


def as_in_a_script(source: str, **names: Any) -> Callable[..., Any]:
    """The function `train` of a script: its module cannot be imported, as __main__ cannot by another process."""
    scope: dict[str, Any] = {"__name__": "__main__", **names}
    exec(compile(source, "script.py", "exec"), scope)
    train: Callable[..., Any] = scope["train"]
    return train


def test_a_function_goes_and_comes_back() -> None:
    factor = 3
    assert cloudpickle.loads(dump_trainable(lambda config: config["x"] * factor, "train"))({"x": 2}) == 6


def test_a_captured_variable_is_named_with_its_type_and_line() -> None:
    guard = threading.Lock()

    def train(config: dict[str, Any]) -> None:
        with guard:
            pass

    line = inspect.getsourcelines(train)[1] + 1
    message = refusal(train)
    assert "train cannot be sent" in message
    assert f"it holds 'guard', a _thread.lock (used in test_serialize.py, line {line})" in message
    assert "Create it inside train instead" in message


def test_a_global_of_the_script_is_named_with_its_line(tmp_path: Path) -> None:
    source = "def train(config):\n    x = 1\n    return len(log_file.name)\n"
    with (tmp_path / "log").open("w") as log_file:
        message = refusal(as_in_a_script(source, log_file=log_file))
    assert "'log_file', a _io.TextIOWrapper (used in script.py, line 3)" in message


def test_a_global_used_only_by_a_function_inside_is_found() -> None:
    source = "def train(config):\n    def inner():\n        return guard\n    return inner\n"
    assert "'guard'" in refusal(as_in_a_script(source, guard=threading.Lock()))


def test_a_helper_in_the_script_is_looked_into() -> None:
    source = "def helper():\n    return guard\ndef train(config):\n    return helper()\n"
    message = refusal(as_in_a_script(source, guard=threading.Lock()))
    assert "'helper.guard', a _thread.lock (used in script.py, line 2)" in message


def test_a_default_argument_is_named() -> None:
    def train(config: dict[str, Any], first: int = 1, lock: Any = threading.Lock()) -> None:  # noqa: B008
        pass

    def other(config: dict[str, Any], *, lock: Any = threading.Lock()) -> None:  # noqa: B008
        pass

    assert "'lock', a _thread.lock" in refusal(train)
    assert "'lock', a _thread.lock" in refusal(other)


def test_an_attribute_is_named_by_its_path_and_with_the_line_of_the_variable() -> None:
    class Loader:
        def __init__(self) -> None:
            self.workers = {"main": threading.Lock()}

    loader = Loader()

    def train(config: dict[str, Any]) -> None:
        print(loader)

    line = inspect.getsourcelines(train)[1] + 1
    assert f"\"loader.workers['main']\", a _thread.lock (used in test_serialize.py, line {line})" in refusal(train)


def test_a_partial_and_a_method_are_looked_into() -> None:
    class Experiment:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def train(self, config: dict[str, Any]) -> None: ...

    def train(config: dict[str, Any], data: Any) -> None: ...

    assert "'__self__.lock', a _thread.lock" in refusal(Experiment().train)
    assert "'data', a _thread.lock" in refusal(functools.partial(train, data=threading.Lock()))
    assert "argument 0" in refusal(functools.partial(lambda lock, config: None, threading.Lock()))


def test_a_generator_that_is_captured_is_named() -> None:
    batches = (i for i in range(3))
    assert "'batches', a generator" in refusal(lambda config: next(batches))


def test_refusing_takes_less_than_a_second_beside_a_large_array() -> None:
    data, lock = bytearray(100_000_000), threading.Lock()

    def train(config: dict[str, Any]) -> None:
        print(len(data), lock)

    started = time.perf_counter()
    assert "'lock'" in refusal(train)
    assert time.perf_counter() - started < 1.0


@pytest.mark.parametrize(("num_bytes", "told"), [(101_000_000, True), (99_000_000, False)])
def test_a_large_capture_is_named_with_its_size(num_bytes: int, told: bool) -> None:
    holder = {"few": 1, "data": bytes(num_bytes)}

    def train(config: dict[str, Any]) -> None:
        print(holder)

    hint = size_hint(train, "train", len(dump_trainable(train, "train")))
    assert hint.startswith("train holds \"holder['data']\", 101 MB, which goes to every node") is told
    assert ("with_parameters(train, ...)" in hint) is told
    assert bool(hint) is told


def test_what_with_parameters_gives_may_be_large() -> None:
    def train(config: dict[str, Any], data: bytes) -> None: ...

    bound = with_parameters(train, data=bytes(101_000_000))
    assert size_hint(bound, "train", len(dump_trainable(bound, "train"))) == ""


def test_where_nothing_is_to_blame_the_error_itself_is_told() -> None:
    class Odd:
        def __call__(self, config: dict[str, Any]) -> None: ...

        def __reduce__(self) -> str:
            raise RuntimeError("not today")

    assert refusal(Odd()) == "Odd cannot be sent to the trials' processes: not today"
