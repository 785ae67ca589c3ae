"""Searches that are really killed and restored, and what is said of them."""

from __future__ import annotations

import pytest

from experiments import restored
from experiments.restored import Round


@pytest.mark.slow
def test_a_killed_search_ends_as_if_nobody_had_disturbed_it(capfd: pytest.CaptureFixture[str]) -> None:
    restored.main(["--times", "1", "--seed", "3"])
    out = capfd.readouterr().out
    assert "the same suggestions, ends and metrics: 1 of 1" in out
    assert "in the log twice: 0" in out
    assert "reported steps that were trained again: 0" in out


@pytest.mark.parametrize(
    "bad", [Round(1.0, False, 0, 0, 0), Round(1.0, True, 1, 0, 0), Round(1.0, True, 0, 1, 0)], ids=str
)
def test_what_is_not_the_same_is_said_loudly(bad: Round, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restored, "run", lambda times, seed: (5.0, [Round(2.0, True, 0, 0, 7), bad]))
    with pytest.raises(SystemExit, match="NOT what an undisturbed one is"):
        restored.main([])
