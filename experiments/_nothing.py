"""The trial that does nothing. Its module imports nothing that has threads, or it could not be forked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

METRIC = "score"


def nothing(config: Mapping[str, Any]) -> dict[str, float]:
    return {METRIC: config["x"]}
