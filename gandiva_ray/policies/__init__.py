"""Policies: who gets which devices. Pure, the same live and simulated; chosen by name or given as an object."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping

from gandiva_ray.core.plan import Policy
from gandiva_ray.policies.fifo import Fifo
from gandiva_ray.policies.gandiva import Gandiva

__all__ = ["POLICIES", "Fifo", "Gandiva", "make_policy"]

POLICIES: Mapping[str, type[Policy]] = {"fifo": Fifo, "gandiva": Gandiva}
"""By the name that a user writes."""


def make_policy(policy: str | Policy) -> Policy:
    """The policy of that name with its defaults, or the one that is given.

    Raises ValueError for an unknown name and TypeError for what is no policy; both say what would do.
    """
    if not isinstance(policy, str):
        plans = callable(getattr(policy, "plan", None)) and dataclasses.is_dataclass(policy)
        if isinstance(policy, type) or not plans:
            raise TypeError(
                f"a policy is one of {', '.join(POLICIES)}, or a frozen dataclass with a method plan "
                f"such as Gandiva(), got {policy!r}"
            )
        return policy
    if policy not in POLICIES:
        near = difflib.get_close_matches(policy.lower(), POLICIES, n=1, cutoff=0.0)
        raise ValueError(f"no policy is called {policy!r}; did you mean {near[0]!r}? There are {', '.join(POLICIES)}.")
    return POLICIES[policy]()
