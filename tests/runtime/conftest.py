import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

import gandiva_ray as tune


@pytest.fixture(scope="session")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal") / "cluster.sqlite"


@pytest.fixture
def embedded_ray(journal: Path) -> None:
    """A Ray of two CPUs that `init` starts, shared by the tests that follow each other; `shut_down_ray` ends it."""
    if not ray.is_initialized():
        os.environ.pop("RAY_ADDRESS", None)
        tune.init(devices=2, journal=journal)


@pytest.fixture(scope="session", autouse=True)
def shut_down_ray() -> Iterator[None]:
    yield
    tune.shutdown()
