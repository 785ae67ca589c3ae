from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_agent import FakeTemplate
from tests.trial import trainables

ROOT = str(Path(__file__).parents[2])


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeTemplate]:
    template = FakeTemplate(trainables.dispatch, tmp_path_factory.mktemp("trials"), sys_path=(ROOT,))
    yield template
    template.close()
