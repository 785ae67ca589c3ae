"""What is ours on the Ray cluster that this process is connected to."""

import time
from collections.abc import Callable
from typing import Any

import psutil
import ray
from ray.util import list_named_actors, placement_group_table

from gandiva_ray.runtime.actors import NAMESPACE


def scheduler_status() -> dict[str, Any]:
    status: dict[str, Any] = ray.get(ray.get_actor("scheduler", NAMESPACE).status.remote())
    return status


def num_devices() -> int:
    return sum(view.num_devices for view in scheduler_status()["nodes"])


def our_actors() -> list[str]:
    return sorted(a["name"] for a in list_named_actors(all_namespaces=True) if a["namespace"] == NAMESPACE)


def our_groups() -> list[str]:
    groups = placement_group_table().values()
    return sorted(g["name"] for g in groups if g["name"].startswith("gandiva-") and g["state"] != "REMOVED")


def eventually(true: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds} seconds: {what}"
        time.sleep(0.1)


def workers(of: str) -> list[psutil.Process]:
    """The living processes of Ray's actors of this class, below this process."""
    return [p for p in psutil.Process().children(recursive=True) if p.name().startswith(f"ray::{of}"[:15])]
