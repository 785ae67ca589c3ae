"""Unknown keyword arguments, refused with what to write instead."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

_Called = TypeVar("_Called", bound=Callable[..., Any])


def explain_unknown(instead: Mapping[str, str] | None = None) -> Callable[[_Called], _Called]:
    """Decorate a class or a function: a keyword that it lacks raises a TypeError that says what to use instead.

    `instead` holds the advice for keywords that Ray Tune has; for any other the nearest known one is named.
    """
    advice = instead or {}

    def decorate(called: _Called) -> _Called:
        known = [name for name in inspect.signature(called).parameters if name not in ("self", "cls")]
        own: Any = vars(called)["__init__"] if isinstance(called, type) else called

        @functools.wraps(own)
        def checked(*args: Any, **keywords: Any) -> Any:
            if keywords:
                _check_keywords(called.__qualname__, keywords, known, advice)
            return own(*args, **keywords)

        if isinstance(called, type):
            called.__init__ = checked  # type: ignore[misc]
            return called
        return checked  # type: ignore[return-value]

    return decorate


def _check_keywords(owner: str, given: Iterable[str], known: list[str], instead: Mapping[str, str]) -> None:
    for keyword in given:
        if keyword in known:
            continue
        if keyword in instead:
            raise TypeError(f"{owner} has no {keyword!r} (Ray Tune has it): {instead[keyword]}")
        nearest = get_close_matches(keyword, known, n=1, cutoff=0.5)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise TypeError(f"{owner} has no {keyword!r}: {hint}It takes {', '.join(known) or 'none'}")
