from __future__ import annotations

import datetime
import json
import math
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gandiva_ray.trial.metrics import plain

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(), VALUES, min_size=1))
def test_plain_metrics_pass_unchanged_and_json_holds_them(metrics: dict[str, Any]) -> None:
    assert plain(metrics) == metrics == json.loads(json.dumps(plain(metrics)))


def test_scalars_of_numpy_become_numbers() -> None:
    found = plain({"a": numpy.float32(0.5), "b": numpy.int64(3), "c": numpy.bool_(True), "d": numpy.array(1.5)})
    assert json.dumps(found) == '{"a": 0.5, "b": 3, "c": true, "d": 1.5}'


def test_nan_and_infinities_pass() -> None:
    found = plain({"a": math.nan, "b": -math.inf})
    assert math.isnan(found["a"])
    assert found["b"] == -math.inf


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (0.5, r"takes a dict of metrics, got float"),
        ({1: 2}, r"got the key 1 \(int\): use str\(1\)"),
        ({"a": {2: 3}}, r"got the key 2 \(int\) in metric 'a'"),
        ({"a": [numpy.ones(2)]}, r"metric 'a/0' is numpy.ndarray of shape \(2,\).*float\(x\).*tolist"),
        ({"a": {1, 2}}, r"metric 'a' is set, which JSON cannot hold"),
        ({"a": datetime.date(2026, 1, 1)}, r"metric 'a' is datetime.date"),
        ({"a": 1j}, r"metric 'a' is complex"),
        ({"a": numpy.datetime64("2026-01-01")}, r"metric 'a' is numpy.datetime64"),
        ({"a": numpy.longdouble(1)}, r"metric 'a' is numpy.longdouble.*float\(x\)"),
    ],
)
def test_what_json_cannot_hold_is_refused_by_name(metrics: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        plain(metrics)


def test_an_empty_report_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one metric"):
        plain({})
