"""What a scheduler that Ray restarts goes on from: its will, which names its journal, and what it had ordered there."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path

import ray
from ray.experimental import internal_kv

from gandiva_ray.core.decisions import Decision
from gandiva_ray.core.events import NodeLost
from gandiva_ray.core.model import NodeId
from gandiva_ray.core.scheduler import Scheduler
from gandiva_ray.journal import Journal
from gandiva_ray.runtime.messages import Settings

_NAMESPACE = b"gandiva"


@dataclass(frozen=True, slots=True)
class Will:
    """Kept in Ray's own key-value store for as long as the scheduler's actor id counts. `deaths` are the times, in
    seconds since the epoch, at which it was restarted.
    """

    settings: Settings
    journal: Path
    deaths: tuple[float, ...] = ()

    def make(self) -> None:
        internal_kv._internal_kv_put(_key(), pickle.dumps(self), overwrite=True, namespace=_NAMESPACE)

    @staticmethod
    def read() -> Will | None:
        """That of this actor's life before this one, if it left any."""
        found = internal_kv._internal_kv_get(_key(), namespace=_NAMESPACE)
        will: Will | None = pickle.loads(found) if found is not None else None
        return will

    @staticmethod
    def revoke() -> None:
        internal_kv._internal_kv_del(_key(), namespace=_NAMESPACE)


def recall(journal: Journal, scheduler: Scheduler) -> dict[NodeId, list[Decision]]:
    """Bring a new scheduler to where the journal ends; returns all that each node there was ordered."""
    ordered: dict[NodeId, list[Decision]] = {}
    for entry in journal:
        scheduler.recall(entry.events, entry.decisions)
        for event in entry.events:
            if isinstance(event, NodeLost):
                ordered.pop(event.node, None)
        for decision in entry.decisions:
            ordered.setdefault(decision.node, []).append(decision)
    return ordered


def _key() -> bytes:
    return f"scheduler-{ray.get_runtime_context().get_actor_id()}".encode()
