"""Fixtures that several tests share."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from gandiva_ray.search_session import SearchSpec
from tests.fake_search_session import FakeSearchSession

Sessions = list[FakeSearchSession]

# Whoever starts the tests in the background of a shell has them ignore Ctrl-C, and all that they start with them.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nodes", type=int, default=1, help="run the searches of tests/runtime on so many Ray nodes")


@pytest.fixture
def fake_runtime(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Sessions]:
    """Called with a fake session's knobs, it puts such sessions in the place of Ray and lists those that are opened."""

    def install(**knobs: Any) -> Sessions:
        sessions: Sessions = []

        def open_search(spec: SearchSpec) -> FakeSearchSession:
            assert spec == SearchSpec(spec.path.name, spec.trainable, spec.path, spec.seed)
            sessions.append(FakeSearchSession(spec.trainable, spec.path, seed=spec.seed, **knobs))
            return sessions[-1]

        client = ModuleType("gandiva_ray.runtime.client")
        client.open_search = open_search  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "gandiva_ray.runtime.client", client)
        return sessions

    return install
