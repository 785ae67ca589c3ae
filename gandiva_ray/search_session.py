"""What the search loop needs of whoever runs its trials: Ray live, an imitation in tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gandiva_ray.core.model import TrialId
from gandiva_ray.core.multi_job import Retry
from gandiva_ray.core.search import Action, Create, TrialEvent


@dataclass(frozen=True, slots=True)
class SearchSpec:
    """What a search asks of whoever runs its trials.

    `trainable` is cloudpickled; the trials' folders are made under `path`; `resources` are what each trial asks for, as
    `with_resources` takes them; `start_method` is RunConfig's.
    """

    name: str
    trainable: bytes
    path: Path
    seed: int
    resources: Mapping[str, float] = field(default_factory=dict)
    start_method: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceView:
    """A device, for the eye: the trials whose turn it is there, and how many have their home there."""

    name: str
    running: tuple[TrialId, ...]
    at_home: int


class SearchSession(Protocol):
    """One search's trials on a cluster."""

    @property
    def num_devices(self) -> int:
        """The devices there are for this search."""

    def submit(self, trials: Sequence[Create]) -> None:
        """Queue new trials."""

    def retry(self, trials: Sequence[Retry]) -> None:
        """Queue trials once more whose process ended."""

    def act(self, actions: Sequence[Action]) -> None:
        """Promote, reweigh or stop trials. One that has ended meanwhile is passed over."""

    def poll(self, timeout: float) -> list[TrialEvent]:
        """What happened since the last call; waits for something to happen, for `timeout` seconds at most."""

    def devices(self) -> list[DeviceView]:
        """Every device that is this search's, in order."""

    def close(self) -> None:
        """End all that is left of this search and wait until it is gone. May be called again."""

    def leave(self) -> None:
        """This process ends at once: what of the cluster is its own ends with it, without ceremony."""
