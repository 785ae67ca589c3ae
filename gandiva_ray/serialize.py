"""The trainable as bytes; where that cannot be, which variable is to blame."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

_DEPTH = 4
LARGE = 100_000_000
"""Bytes of a trainable from which on its user is told what takes them."""
_READS = ("GLOBAL", "GLOBALS", "NAME", "DEREF")  # ends of the names of instructions, which versions of Python vary


def dump_trainable(trainable: Callable[..., Any], name: str) -> bytes:
    """The trainable, pickled by value where it cannot be imported. `name` is what its user calls it.

    Raises TypeError naming the variable that cannot be pickled, its type, and the line that refers to it.
    """
    try:
        return bytes(cloudpickle.dumps(trainable))
    except Exception as error:
        raise TypeError(_explain(trainable, name, error)) from None


def size_hint(trainable: Callable[..., Any], name: str, num_bytes: int) -> str:
    """What a person should know of a trainable that takes so many bytes; nothing where that is little or meant to be.

    What was bound to it, as `with_parameters` does, is meant to be.
    """
    function: object = trainable
    while isinstance(function, functools.partial):
        function = function.func
    if num_bytes <= LARGE:
        return ""
    trail, largest, size = "", function, _size(function)
    for _ in range(_DEPTH):
        sizes = [(_size(part.value), part) for part in _parts(largest)]
        found = max(((s, p) for s, p in sizes if s > LARGE), key=lambda pair: pair[0], default=None)
        if found is None:
            break
        size, largest, trail = found[0], found[1].value, trail + found[1].label
    if not trail:
        return ""
    return (
        f"{name} holds {trail.lstrip('.')!r}, {size / 1e6:.0f} MB, which goes to every node: leave it out "
        f"if trials do not need it; if they do, make it an argument and say so by with_parameters({name}, ...)"
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """Something that a value holds: how to name it in a message, and the function whose code refers to it."""

    label: str
    value: object
    function: types.FunctionType | None = None
    variable: str = ""


def _explain(trainable: Callable[..., Any], name: str, error: Exception) -> str:
    trail = _blame(trainable, _DEPTH)
    head = f"{name} cannot be sent to the trials' processes"
    if not trail:
        return f"{head}: {error}"
    culprit = trail[-1]
    label = "".join(part.label for part in trail).lstrip(".")
    kind = type(culprit.value)
    kind_name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    place = next((line for part in reversed(trail) if (line := _line_of(part))), "")
    return (
        f"{head}: it holds {label!r}, a {kind_name}{place}, which cannot be pickled "
        f"({_reason(culprit.value) or error}). Create it inside {name} instead, or leave it out"
    )


def _blame(value: object, depth: int) -> list[_Part]:
    """The way from the value down to the first part that cannot be pickled; empty where no part is to blame."""
    if depth == 0:
        return []
    for part in _parts(value):
        if _reason(part.value) is not None:
            return [part, *_blame(part.value, depth - 1)]
    return []


def _reason(value: object) -> str | None:
    """Why the value cannot be pickled; None if it can be."""
    try:
        cloudpickle.Pickler(_Nowhere()).dump(value)
    except Exception as error:
        return str(error)
    return None


class _Nowhere:
    """A file that counts and keeps nothing, so that a large array costs no second copy."""

    def __init__(self) -> None:
        self.num_bytes = 0

    def write(self, data: object) -> int:
        num_bytes = memoryview(data).nbytes  # type: ignore[arg-type]
        self.num_bytes += num_bytes
        return num_bytes


def _size(value: object) -> int:
    """Bytes of the value, pickled; 0 if it cannot be by itself."""
    nowhere = _Nowhere()
    try:
        cloudpickle.Pickler(nowhere).dump(value)
    except Exception:
        return 0
    return nowhere.num_bytes


def _parts(value: object) -> Iterator[_Part]:
    match value:
        case types.FunctionType():
            yield from _function_parts(value)
        case types.MethodType():
            yield _Part(".__self__", value.__self__)
        case functools.partial():
            yield _Part(".func", value.func)
            yield from (_Part(f" argument {i}", argument) for i, argument in enumerate(value.args))
            yield from (_Part(f".{name}", argument) for name, argument in value.keywords.items())
        case dict():
            yield from (_Part(f"[{key!r}]", item) for key, item in value.items())
        case list() | tuple():
            yield from (_Part(f"[{i}]", item) for i, item in enumerate(value))
        case _:
            yield from (_Part(f".{name}", item) for name, item in getattr(value, "__dict__", {}).items())


def _function_parts(function: types.FunctionType) -> Iterator[_Part]:
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield _Part(f".{variable}", cell.cell_contents, function, variable)
        except ValueError:  # the cell is still empty
            continue
    defaults = function.__defaults__ or ()
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    for variable, default in zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True):
        yield _Part(f".{variable}", default)
    for variable, default in (function.__kwdefaults__ or {}).items():
        yield _Part(f".{variable}", default)
    for variable in dict.fromkeys(name for name, _ in _references(function.__code__)):
        if variable in function.__globals__:
            yield _Part(f".{variable}", function.__globals__[variable], function, variable)


def _references(code: types.CodeType) -> Iterator[tuple[str, int]]:
    """The globals and captured variables that the code and the functions inside it read, with the line."""
    for instruction in dis.get_instructions(code):
        if instruction.opname.startswith("LOAD_") and instruction.opname.endswith(_READS):
            line = instruction.positions.lineno if instruction.positions else None
            yield str(instruction.argval), line or code.co_firstlineno
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _references(constant)


def _line_of(part: _Part) -> str:
    if part.function is None:
        return ""
    code = part.function.__code__
    line = next((line for name, line in _references(code) if name == part.variable), code.co_firstlineno)
    return f" (used in {Path(code.co_filename).name}, line {line})"
