"""Joining Ray, asking our scheduler there, and leaving; each way in which that fails is one sentence."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
from typing import Any

import ray

from gandiva_ray.trial.processes import descendants, send_signal

_VERSIONS = re.compile(r"Ray: (\S+)\s+Python: (\S+).*Ray: (\S+)\s+Python: (\S+)", re.DOTALL)
_START = "start one with `ray start --head`"

_joined = False  # by us, and not by the user


def join_ray(address: str | None) -> None:
    """Join Ray, or start one, unless this process has done so.

    Raises ConnectionError where no Ray answers, RuntimeError where it is of other versions, ValueError for what is no
    address.
    """
    global _joined
    if ray.is_initialized():
        return
    asked = address or os.environ.get("RAY_ADDRESS", "")
    _check_address(asked)
    try:
        ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError:
        raise ConnectionError(f"no Ray cluster answers at {asked!r}: {_START}") from None
    except ValueError as error:
        raise ValueError(f"the address {asked!r} does not work: {one_line(error)}") from None
    except RuntimeError as error:
        raise RuntimeError(_other_versions(str(error)) or f"Ray cannot be joined: {one_line(error)}") from None
    _joined = True


def leave_ray() -> None:
    """One that `join_ray` started stops."""
    global _joined
    if _joined and ray.is_initialized():
        ray.shutdown()
    _joined = False


def kill_own_ray() -> None:
    """This process ends at once; a Ray that `join_ray` started would take seconds to say goodbye."""
    node: Any = ray._private.worker._global_node
    if _joined and node is not None:
        own = [part.process.pid for kind in node.all_processes.values() for part in kind]
        below = [pid for part in own for pid in descendants(part)]  # they would miss it only after a while
        send_signal([*own, *below], signal.SIGKILL)


def ask_scheduler(answer: ray.ObjectRef[Any]) -> Any:
    """What the cluster's scheduler says. Raises RuntimeError, without Ray's traceback, where it refuses or is gone."""
    try:
        return ray.get(answer)
    except ray.exceptions.RayTaskError as error:
        raise RuntimeError(f"the cluster's scheduler refused: {error.cause}") from None
    except ray.exceptions.RayActorError:
        raise RuntimeError("the cluster's scheduler died; the search cannot go on") from None


def one_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _other_versions(text: str) -> str:
    """The sentence for what Ray's `check_version_info` raises; empty for anything else."""
    found = _VERSIONS.search(text)
    if found is None:
        return ""
    ray_there, python_there, ray_here, python_here = found.groups()
    return (
        f"the Ray cluster runs Ray {ray_there} on Python {python_there}, and this process Ray {ray_here} on Python "
        f"{python_here}: both must be the same"
    )


def _check_address(address: str) -> None:
    """Ray itself would try for minutes."""
    if address.startswith("ray://"):
        raise ValueError(
            f"{address!r} is an address of Ray Client, which is not supported: run the script on a node of the "
            "cluster, as `ray job submit` does"
        )
    if address in ("", "auto", "local"):
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise ValueError(f'{address!r} is no address of a Ray cluster: give "auto" or one like "10.0.0.1:6379"')
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise ConnectionError(
            f"no Ray cluster answers at {address!r} ({error}): {_START}, or mend RAY_ADDRESS"
        ) from None
