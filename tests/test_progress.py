"""What the user sees: nothing, a few lines, or a panel."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gandiva_ray.progress import Best, Heading, Lines, LivePanel, Silence, Snapshot, open_progress, render
from gandiva_ray.search_session import DeviceView
from tests.conftest import Sessions
from tests.test_tuner import climb, crash, search

HEADING = Heading("train_1", "Hyperband(max_t=27)", "max accuracy, at least 0.99", "/results/train_1")
SNAPSHOT = Snapshot(
    elapsed=75.2,
    trials={"waiting": 40, "running": 12, "failed": 1},
    reports=752,
    best=Best("00012", 0.973123, {"lr": 0.00312345, "optimizer": {"name": "adam"}, "width": 32}),
    devices=[DeviceView("node-1 cpu 0", ("00012",), 8), DeviceView("node-1 cpu 1", (), 0)],
)


def console(*, terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), width=100, force_terminal=terminal, highlight=False)


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_panel_shows_everything_at_a_glance() -> None:
    printed = console()
    printed.print(render(HEADING, SNAPSHOT))
    for words in (
        "train_1",
        "Hyperband(max_t=27)",
        "max accuracy, at least 0.99",
        "40 waiting, 12 running, 1 failed",
        "0.9731 trial 00012: lr=0.003123 optimizer/name=adam width=32",
        "752 reports, 10 a second, 0:01:15 elapsed",
        "00012 and 7 waiting for a turn",
        "idle",
        "/results/train_1",
    ):
        assert words in text(printed)


def test_many_devices_are_counted_instead_of_shown() -> None:
    printed = console()
    devices = [DeviceView(f"gpu {i}", (f"{i:05}",), 1) for i in range(40)]
    printed.print(render(HEADING, Snapshot(1.0, {}, 0, None, devices)))
    assert "gpu 15" in text(printed)
    assert "gpu 16" not in text(printed)
    assert "and 24 more devices" in text(printed)
    assert "Best" not in text(printed)


def test_brackets_in_names_and_values_are_no_markup() -> None:
    printed = console()
    best = Best("00000", 1.0, {"layers": "[bold]"})
    printed.print(render(Heading("[red]", "[blue]", "[i]", "/[b]"), Snapshot(1.0, {}, 1, best, [])))
    for words in ("[red]", "[blue]", "[i]", "/[b]", "layers=[bold]"):
        assert words in text(printed)


def test_long_values_are_cut_short() -> None:
    printed = console()
    printed.print(render(HEADING, Snapshot(1.0, {}, 1, Best("00000", 1.0, {"data": "x" * 1000}), [])))
    assert "x" * 39 + "…" in text(printed)
    assert "x" * 41 not in text(printed)


def test_the_kind_of_display_follows_verbosity_and_terminal() -> None:
    assert isinstance(open_progress(0, HEADING, console(terminal=True)), Silence)
    assert isinstance(open_progress(1, HEADING, console(terminal=True)), LivePanel)
    assert isinstance(open_progress(1, HEADING, console()), Lines)


def test_a_notebook_without_ipywidgets_gets_lines() -> None:
    notebook = Console(file=io.StringIO(), force_jupyter=True)
    assert isinstance(open_progress(1, HEADING, notebook), Lines)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_lines_are_printed_when_it_is_time_and_something_changed() -> None:
    clock, printed = Clock(), console()
    lines = Lines(HEADING, printed, clock)
    taken = 0

    def take() -> Snapshot:
        nonlocal taken
        taken += 1
        return SNAPSHOT if clock.now < 12 else Snapshot(80.0, {"completed": 53}, 800, SNAPSHOT.best, [])

    for second in range(20):
        clock.now = float(second)
        lines.update(take)
    assert taken == 3
    assert text(printed).splitlines() == [
        "[0:01:15] 40 waiting, 12 running, 1 failed; 752 reports, 10 a second; best 0.9731 trial 00012: "
        "lr=0.003123 optimizer/name=adam width=32",
        "[0:01:20] 53 completed; 800 reports, 10 a second; best 0.9731 trial 00012: "
        "lr=0.003123 optimizer/name=adam width=32",
    ]


def test_the_panel_is_redrawn_four_times_a_second_at_most() -> None:
    clock = Clock()
    panel = LivePanel(HEADING, console(terminal=True), clock)
    taken: list[float] = []

    def take() -> Snapshot:
        taken.append(clock.now)
        return SNAPSHOT

    panel.start()
    try:
        for i in range(100):
            clock.now = i / 100
            panel.update(take)
    finally:
        panel.close()
    assert taken == [0.0, 0.25, 0.5, 0.75]


def test_verbose_0_prints_nothing_at_all(
    tmp_path: Path, fake_runtime: Callable[..., Sessions], capfd: pytest.CaptureFixture[str]
) -> None:
    fake_runtime()
    search(tmp_path / "a", climb, num_samples=50)
    search(tmp_path / "b", crash, num_samples=5)
    assert capfd.readouterr() == ("", "")


def lines_of_a_search(capfd: pytest.CaptureFixture[str], folder: Path, trainable: Any, **tune: Any) -> list[str]:
    search(folder, trainable, verbose=1, **tune)
    out, err = capfd.readouterr()
    assert err == ""
    return out.splitlines()


def test_without_a_terminal_a_search_prints_a_few_lines_and_a_summary(
    tmp_path: Path, fake_runtime: Callable[..., Sessions], capfd: pytest.CaptureFixture[str]
) -> None:
    fake_runtime()
    lines = lines_of_a_search(capfd, tmp_path, climb, num_samples=50)
    assert lines[0].startswith("run: RandomSearch(")
    assert lines[0].endswith(f"max score, in {tmp_path / 'run'}")
    assert len(lines) < 18
    assert [line.split()[2] for line in lines if line.startswith("trial ")] == ["completed"] * 10
    assert "and 40 more trials ended: 40 completed" in lines
    best, ended, trials, folder = lines[-4:]
    assert best.startswith("Best:    0.")
    assert "model/width=" in best
    assert ended == "Ended:   all trials ended, after 0:00:00"
    assert trials == "Trials:  50 completed"
    assert folder == f"Folder:  {tmp_path / 'run'}"


def test_a_failed_trial_is_one_line_and_the_first_error_ends_the_summary(
    tmp_path: Path, fake_runtime: Callable[..., Sessions], capfd: pytest.CaptureFixture[str]
) -> None:
    fake_runtime()
    lines = lines_of_a_search(capfd, tmp_path, crash, num_samples=3)
    failures = [line for line in lines if line.startswith("trial ")]
    assert len(failures) == 3
    assert all("failed: ValueError: cannot train 0." in line for line in failures)
    summary = "\n".join(lines[lines.index("Trials:  3 failed") :])
    assert "Error:   trial 00000: ValueError: cannot train" in summary
    assert "Traceback (most recent call last):" in summary
