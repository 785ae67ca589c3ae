"""Making Ray actors."""

from __future__ import annotations

from typing import Any

import ray

NAMESPACE = "gandiva"

# Ray types a handle's methods as those of the class itself, which lack `.remote`.
Actor = Any


def make_actor(cls: type[Any], *arguments: Any, **options: Any) -> Actor:
    """A new actor of the class; of the same name, if there is one already and `get_if_exists` is given."""
    remote: Any = ray.remote(cls)
    return remote.options(**options).remote(*arguments)


def make_detached(cls: type[Any], *arguments: Any, name: str, **options: Any) -> Actor:
    """One that outlives its driver, found by name, and takes nothing from the devices."""
    return make_actor(
        cls, *arguments, name=name, namespace=NAMESPACE, lifetime="detached", get_if_exists=True, num_cpus=0, **options
    )
