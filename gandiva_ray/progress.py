"""What the user sees of a search under way: a live panel on a terminal, else a line now and then, or nothing."""

from __future__ import annotations

import importlib.util
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gandiva_ray.core.model import Outcome, TrialId
from gandiva_ray.results import ResultGrid
from gandiva_ray.run_log import flatten
from gandiva_ray.search_session import DeviceView

_REDRAW_EVERY = 0.25
_LINE_EVERY = 5.0
_ENDS_EVERY, _MOST_ENDS = 5.0, 10  # seconds, and how many trials that ended are named in them
_MAX_DEVICES = 16
_MAX_VALUE_LENGTH = 40
_STYLES = {  # of a trial's state, in the order in which states are shown
    "waiting": "",
    "running": "cyan",
    "parked": "blue",
    "stopping": "",
    "completed": "green",
    "stopped": "yellow",
    "failed": "bold red",
    "lost": "bold red",
    "cut": "",
    "never started": "dim",
}


@dataclass(frozen=True, slots=True)
class Best:
    trial: TrialId
    value: float
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """A trial that ended, with its last `value` of the metric, if it reported one."""

    trial: TrialId
    outcome: Outcome
    reason: str
    steps: int
    value: object
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A search at one moment: `elapsed` seconds, its trials counted by state, the reports so far."""

    elapsed: float
    trials: Mapping[str, int]
    reports: int
    best: Best | None
    devices: Sequence[DeviceView]


@dataclass(frozen=True, slots=True)
class Heading:
    """What stays the same during a run. `goal` says what is searched for: "max accuracy"."""

    run: str
    searcher: str
    goal: str
    folder: str


class Progress(Protocol):
    def start(self) -> None:
        """The search begins."""

    def update(self, take: Callable[[], Snapshot]) -> None:
        """Something may have happened. Cheap: a snapshot is taken only when it is time to show one."""

    def ended(self, trial: Ended) -> None:
        """A trial ended."""

    def note(self, text: str) -> None:
        """Something that the user should know of."""

    def close(self) -> None:
        """The search is over, or was broken off; may be called again."""

    def finish(self, results: ResultGrid, elapsed: float) -> None:
        """What was found, after `close`."""


def open_progress(verbose: int, heading: Heading, console: Console | None = None) -> Progress:
    """The one that fits: nothing at verbose 0, a panel where it can be redrawn (a terminal, a notebook), else lines."""
    if verbose == 0:
        return Silence()
    console = console or Console(highlight=False)
    redraws = console.is_terminal and not console.is_dumb_terminal
    if console.is_jupyter:
        redraws = importlib.util.find_spec("ipywidgets") is not None  # without it rich only warns
    return LivePanel(heading, console) if redraws else Lines(heading, console)


class Silence:
    def start(self) -> None: ...

    def update(self, take: Callable[[], Snapshot]) -> None: ...

    def ended(self, trial: Ended) -> None: ...

    def note(self, text: str) -> None: ...

    def close(self) -> None: ...

    def finish(self, results: ResultGrid, elapsed: float) -> None: ...


class _Ends:
    """One line a trial that ended by itself or was judged; of many at once, the first, and how many more."""

    def __init__(self, show: Callable[[Text], None], clock: Callable[[], float]) -> None:
        self._show = show
        self._clock = clock
        self._due_at = -1.0
        self._named = 0
        self._others: Counter[Outcome] = Counter()

    def add(self, trial: Ended) -> None:
        if trial.outcome in (Outcome.CUT, Outcome.NEVER_STARTED):
            return
        self.catch_up()
        if self._named < _MOST_ENDS:
            self._named += 1
            self._show(_ended(trial))
        else:
            self._others[trial.outcome] += 1

    def catch_up(self, *, at_once: bool = False) -> None:
        """Count those that were not named, once it is time to."""
        if self._clock() < self._due_at and not at_once:
            return
        if self._others:
            counts = _counts({outcome.value: count for outcome, count in self._others.items()})
            self._show(Text(f"and {self._others.total()} more trials ended: ").append(counts))
        self._due_at, self._named = self._clock() + _ENDS_EVERY, 0
        self._others.clear()


class Lines:
    """One line at the start, one every few seconds if something changed, one a trial that ended, and a summary."""

    def __init__(self, heading: Heading, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._heading = heading
        self._console = console
        self._clock = clock
        self._due_at = clock() + _LINE_EVERY
        self._ends = _Ends(self._print, clock)
        self._shown: tuple[Mapping[str, int], int] | None = None

    def start(self) -> None:
        heading = self._heading
        self._print(Text(f"{heading.run}: {heading.searcher}, {heading.goal}, in {heading.folder}"))

    def update(self, take: Callable[[], Snapshot]) -> None:
        self._ends.catch_up()
        if self._clock() < self._due_at:
            return
        self._due_at = self._clock() + _LINE_EVERY
        snapshot = take()
        line = f"{_counts(snapshot.trials).plain}; {_speed(snapshot).plain}"
        if snapshot.best is not None:
            line += f"; best {_best(snapshot.best).plain}"
        if self._shown != (snapshot.trials, snapshot.reports):
            self._shown = (snapshot.trials, snapshot.reports)
            self._print(Text(f"[{_duration(snapshot.elapsed)}] {line}"))

    def ended(self, trial: Ended) -> None:
        self._ends.add(trial)

    def note(self, text: str) -> None:
        self._print(Text(text))

    def close(self) -> None:
        self._ends.catch_up(at_once=True)

    def finish(self, results: ResultGrid, elapsed: float) -> None:
        for name, value in _summary(results, elapsed):
            self._print(Text(f"{name + ':':<9}" if name else "").append(value))

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)


class LivePanel:
    """One panel, redrawn in place; what is printed meanwhile goes above it."""

    def __init__(self, heading: Heading, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._heading = heading
        self._console = console
        self._clock = clock
        self._due_at = clock()
        self._ends = _Ends(self._print, clock)
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def start(self) -> None:
        self._live.start()
        rows = [("Goal", Text(self._heading.goal)), ("Trials", Text("starting", style="dim"))]
        self._live.update(_panel(self._heading.run, self._heading.searcher, rows), refresh=True)

    def update(self, take: Callable[[], Snapshot]) -> None:
        self._ends.catch_up()
        if self._clock() >= self._due_at:
            self._live.update(render(self._heading, take()), refresh=True)
            self._due_at = self._clock() + _REDRAW_EVERY

    def ended(self, trial: Ended) -> None:
        self._ends.add(trial)

    def note(self, text: str) -> None:
        self._print(Text(text, style="yellow"))

    def close(self) -> None:
        self._ends.catch_up(at_once=True)
        self._live.stop()

    def finish(self, results: ResultGrid, elapsed: float) -> None:
        self._console.print(_panel(self._heading.run, self._heading.searcher, _summary(results, elapsed)))

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)


def render(heading: Heading, snapshot: Snapshot) -> RenderableType:
    """The panel of a search under way."""
    rows = [
        ("Goal", Text(heading.goal)),
        ("Trials", _counts(snapshot.trials)),
        *([("Best", _best(snapshot.best))] if snapshot.best is not None else []),
        ("Speed", _speed(snapshot).append(f", {_duration(snapshot.elapsed)} elapsed")),
        *((device.name, _device(device)) for device in snapshot.devices[:_MAX_DEVICES]),
    ]
    if len(snapshot.devices) > _MAX_DEVICES:
        rows.append(("", Text(f"and {len(snapshot.devices) - _MAX_DEVICES} more devices", style="dim")))
    rows.append(("Folder", Text(heading.folder, style="dim")))
    return _panel(heading.run, heading.searcher, rows)


def _panel(title: str, subtitle: str, rows: Sequence[tuple[str, Text]]) -> Panel:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    return Panel(table, title=Text(title), title_align="left", subtitle=Text(subtitle), subtitle_align="left")


def _summary(results: ResultGrid, elapsed: float) -> list[tuple[str, Text]]:
    counts = {outcome.value: count for outcome, count in results.counts.items()}
    rows = [("Ended", Text(f"{results.stop_reason}, after {_duration(elapsed)}")), ("Trials", _counts(counts))]
    if results.metric is not None:
        rows.insert(0, ("Best", _best_result(results, results.metric)))
    failure = next((result for result in results if result.error is not None), None)
    if failure is not None:
        rows.append(("Error", Text(f"trial {failure.trial_id}: {failure.reason}", style="red")))
        if failure.error != failure.reason:
            rows.append(("", Text((failure.error or "").rstrip(), style="dim")))
    rows.append(("Folder", Text(results.path)))
    return rows


def _best_result(results: ResultGrid, metric: str) -> Text:
    try:
        result = results.get_best_result()
    except RuntimeError as nothing_found:
        return Text(str(nothing_found), style="red")
    return _best(Best(result.trial_id, flatten(result.metrics)[metric], result.config))


def _counts(trials: Mapping[str, int]) -> Text:
    parts = [Text(f"{trials[state]} {state}", style=style) for state, style in _STYLES.items() if trials.get(state)]
    return Text(", ").join(parts) if parts else Text("none yet")


def _best(best: Best) -> Text:
    return Text.assemble((_short(best.value), "bold green"), f" trial {best.trial}: {_config(best.config)}")


def _config(config: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_short(value)}" for name, value in flatten(config).items())


def _speed(snapshot: Snapshot) -> Text:
    rate = snapshot.reports / snapshot.elapsed if snapshot.elapsed > 0 else 0.0
    return Text(f"{snapshot.reports} reports, {rate:.3g} a second")


def _device(device: DeviceView) -> Text:
    running = (" ".join(device.running), "cyan") if device.running else ("idle", "dim")
    others = device.at_home - len(device.running)
    return Text.assemble(running, (f" and {others} waiting for a turn", "dim") if others > 0 else "")


def _ended(trial: Ended) -> Text:
    after = f" after {trial.steps} report{'s' if trial.steps > 1 else ''}" if trial.steps else ""
    if trial.outcome in (Outcome.FAILED, Outcome.LOST):
        return Text(f"trial {trial.trial} {trial.outcome.value}{after}: {trial.reason}", style="red")
    value = f" at {_short(trial.value)}" if trial.value is not None else ""
    head = f"trial {trial.trial} {trial.outcome.value}{after}{value}: {_config(trial.config)}"
    return Text.assemble((head, _STYLES[trial.outcome.value]), (f" ({trial.reason})", "dim"))


def _short(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else text[: _MAX_VALUE_LENGTH - 1] + "…"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
