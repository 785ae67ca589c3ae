"""A space as a tree of dicts, lists and constants with slots for its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Slot:
    """A parameter's place in the space."""

    name: str


class NotYet(Exception):
    """A sample_from parameter was looked at before it was known."""


class View(Mapping[Any, Any]):
    """The configuration as sample_from functions see it: `config["lr"]`, `config.lr` and `spec.config.lr` alike."""

    def __init__(self, tree: dict[Any, Any]) -> None:
        self._tree = tree

    def __getitem__(self, key: Any) -> Any:
        if key == "config" and key not in self._tree:
            return self
        return _seen(self._tree[key])

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._tree)

    def __len__(self) -> int:
        return len(self._tree)

    def settled(self) -> dict[Any, Any]:
        """The plain dict behind the view."""
        if has_slot(self._tree):
            raise NotYet
        return self._tree


def _seen(value: Any) -> Any:
    if isinstance(value, Slot) or (type(value) in (list, tuple) and has_slot(value)):
        raise NotYet
    return View(value) if isinstance(value, dict) else value


def fill(tree: Any, values: Mapping[str, Any]) -> Any:
    """The tree with values in the slots that have one."""
    if isinstance(tree, Slot):
        return values.get(tree.name, tree)
    if isinstance(tree, dict):
        return {key: fill(child, values) for key, child in tree.items()}
    if type(tree) in (list, tuple) and has_slot(tree):
        return type(tree)(fill(child, values) for child in tree)
    return tree


def has_slot(tree: Any) -> bool:
    if isinstance(tree, dict):
        return any(map(has_slot, tree.values()))
    return isinstance(tree, Slot) or (type(tree) in (list, tuple) and any(map(has_slot, tree)))


def join(path: str, key: Any) -> str:
    return f"{path}/{key}" if path else str(key)
