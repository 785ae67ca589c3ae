"""What each trial of a search asks for, and whether the cluster can ever give it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Demand:
    """Devices of one node, or a share of one: the part of what is ours of it. `threads` is for torch and OpenMP."""

    num_devices: int = 1
    share: float = 1.0
    threads: int = 1

    def at_once(self, num_devices: int) -> int:
        """How many trials can run at the same moment on a node with so many devices."""
        return num_devices // self.num_devices * math.floor(1 / self.share + _ROUNDING)


def find_demand(
    resources: Mapping[str, float], nodes: Sequence[Mapping[str, float]], devices: int | None, reserve: float
) -> Demand:
    """Turn `resources`, {"cpu": ..., "gpu": ...} as with_resources takes them, into a demand on these nodes of Ray.

    A device is a GPU where any node has one, else a CPU core. `devices` is the most that is taken of a node, `reserve`
    the part that is taken of a GPU. Raises ValueError, naming the largest that would fit, where none ever will.
    """
    any_gpu = any(node.get("GPU", 0) >= 1 for node in nodes)
    if resources.get("gpu", 0) > 0 and not any_gpu:
        raise ValueError(
            f"a trial asks for {resources['gpu']:g} GPU, and no node of the Ray cluster has one: "
            'leave "gpu" out of with_resources'
        )
    if any_gpu and resources.get("gpu") == 0:
        raise ValueError('a trial asks for no GPU, and devices are GPUs here: ask for a part of one, like {"gpu": 0.1}')
    kind, unit = ("gpu", "GPU") if any_gpu else ("cpu", "CPU core")
    amount = resources.get(kind)
    if amount is None:
        num_devices, share = 1, 1.0
    elif amount < 1:
        num_devices, share = 1, _share(amount, reserve if any_gpu else 1.0)
    else:
        num_devices, share = _gang(amount, unit, reserve if any_gpu else 1.0), 1.0
    largest = max((int(node.get(kind.upper(), 0)) for node in nodes), default=0)
    _check_fits(num_devices, unit, largest, devices)
    threads = math.ceil(resources["cpu"]) if "cpu" in resources else num_devices
    return Demand(num_devices, share, threads)


def _share(amount: float, reserve: float) -> float:
    if amount > reserve + _ROUNDING:
        raise ValueError(
            f"a trial asks for {amount:g} of a GPU; the most that fits is {reserve:g}, the part of each GPU that "
            f"init(reserve={reserve:g}) takes"
        )
    return min(1.0, amount / reserve)


def _gang(amount: float, unit: str, reserve: float) -> int:
    if amount != int(amount):
        raise ValueError(f"a trial asks for {amount:g} {unit}s: ask for whole ones, or for a part of one below 1")
    if reserve < 1:
        raise ValueError(
            f"a trial asks for {amount:g} whole {unit}{'s' if amount > 1 else ''}; the most that fits is {reserve:g} "
            f"of one, the part of each that init(reserve={reserve:g}) takes"
        )
    return int(amount)


def _check_fits(num_devices: int, unit: str, largest: int, devices: int | None) -> None:
    limit = largest if devices is None else min(largest, devices)
    if largest and num_devices > limit:
        taken = f", of which init(devices={devices}) takes {limit}" if limit < largest else ""
        raise ValueError(
            f"a trial asks for {num_devices} {unit}s of one node; "
            f"the largest node of the Ray cluster has {largest}{taken}"
        )
