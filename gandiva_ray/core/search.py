"""A search: an algorithm that suggests configurations and acts on early feedback, and the events it lives on.

A `Searcher` is pure and seeded; it never sees a clock, a thread or Ray. The same suggestions, reports and ends give the
same actions, so that replaying a run's log into a fresh searcher restores it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from gandiva_ray.core.model import Outcome, TrialId

Mode = Literal["min", "max"]
Config = Mapping[str, Any]


# --- actions: what a searcher wants done


@dataclass(frozen=True, slots=True)
class Create:
    """A new trial. It parks after the report `until` (None: it runs to its end); ids are padded counts: "00007"."""

    trial: TrialId
    config: Config
    until: int | None = None
    weight: float = 1.0
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Promote:
    """Let the trial go on to the report `until` (None: to its end)."""

    trial: TrialId
    until: int | None


@dataclass(frozen=True, slots=True)
class Reweigh:
    trial: TrialId
    weight: float
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class StopTrial:
    """End the trial. `outcome` is STOPPED for one given up, COMPLETED for one that used its whole budget."""

    trial: TrialId
    reason: str
    outcome: Outcome = Outcome.STOPPED


Action = Promote | Reweigh | StopTrial


class Searcher(Protocol):
    """A search under way."""

    @property
    def acts_on_feedback(self) -> bool:
        """Whether it ever stops or promotes. If not, slicing time cannot help: its trials run in order, exclusive."""

    @property
    def finished(self) -> bool:
        """No trial will be suggested any more. (Those that run may still be acted upon.)"""

    def suggest(self, n: int) -> Sequence[Create]:
        """At most `n` new trials; fewer, or none, where it waits for feedback first or has no more."""

    def report(self, trial: TrialId, step: int, values: Mapping[str, float]) -> Sequence[Action]:
        """The trial's `step`-th report (from 1) held these numbers. A repeated or late report changes nothing."""

    def ended(self, trial: TrialId, outcome: Outcome) -> Sequence[Action]:
        """The trial ended, in whatever way: by itself, stopped by this searcher, failed or lost."""

    def capacity(self, devices: int, step_costs: Mapping[TrialId, float]) -> Sequence[Action]:
        """There are so many devices, and a step of these trials costs so many device-seconds."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is searched: a space in Ray Tune's terms, a metric to make small or large, how many samples of the space.

    `num_samples` counts samples of the random part; each grid_search multiplies them, as in Ray Tune. -1 is endless.
    Without a metric (None) trials just run: nothing is judged.
    """

    space: Mapping[str, Any]
    metric: str | None
    mode: Mode
    num_samples: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.metric == "":
            raise ValueError('metric must be the key of the reports to judge by, such as "loss", or None')
        if self.mode not in ("min", "max"):
            raise ValueError(f'mode must be "min" or "max", got {self.mode!r}')
        if self.num_samples < 1 and self.num_samples != -1:
            raise ValueError(f"num_samples must be at least 1, or -1 for no end, got {self.num_samples!r}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be from 0 to 2**32 - 1, got {self.seed!r}")


class Algorithm(Protocol):
    """The knobs of a search, as a user writes them (`Hyperband(max_t=27)`). Frozen; memory lives in the Searcher."""

    def start(self, problem: Problem) -> Searcher:
        """A fresh search. Raises ValueError, naming the thing and the fix, where problem and knobs do not fit."""


# --- events: what happened to trials, as the driver hears of it


# `attempt` counts the processes that a trial has had, from 1: one that failed may be tried again.


@dataclass(frozen=True, slots=True)
class TrialStarted:
    trial: TrialId
    node: str
    pid: int
    path: str
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class TrialReported:
    """The `step`-th report of the trial. `device_seconds` is what this attempt had received by then, in all.

    `checkpoint` is the folder of the checkpoint that came with it.
    """

    trial: TrialId
    step: int
    metrics: Mapping[str, Any]
    device_seconds: float
    checkpoint: str | None = None
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """`reason` is one line; `error` is the traceback of one that raised."""

    trial: TrialId
    outcome: Outcome
    reason: str
    error: str = field(default="")
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class CapacityChanged:
    """The devices there are for this search, and what a step of each trial costs in device-seconds."""

    devices: int
    step_costs: Mapping[TrialId, float]


@dataclass(frozen=True, slots=True)
class SearchStarved:
    """Trials wait, and nothing that runs on the cluster will change that. `reason` says what they wait for."""

    reason: str


@dataclass(frozen=True, slots=True)
class Noticed:
    """Something that the user should know of, and that changes nothing."""

    text: str


@dataclass(frozen=True, slots=True)
class SearchStopped:
    """Somebody other than the driver wants the search to end now; `reason` says who."""

    reason: str


TrialEvent = TrialStarted | TrialReported | TrialEnded | CapacityChanged | SearchStarved | Noticed | SearchStopped
