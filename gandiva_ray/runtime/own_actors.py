"""This driver's trial actors, one a node, which its searches there share."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from gandiva_ray.core.model import MultiJobId, NodeId
from gandiva_ray.runtime.actors import Actor, make_actor
from gandiva_ray.runtime.messages import NodeView
from gandiva_ray.runtime.trial_actor import TrialActor
from gandiva_ray.trial.protocol import Environment


@dataclass(frozen=True, slots=True)
class OwnActor:
    """A trial actor of this driver. `address` is that of the agent with which it came, and goes.

    `searches` are those that are open there: threads of a driver may each run one.
    """

    actor: Actor
    address: str
    environment: Environment
    searches: set[MultiJobId] = field(default_factory=set)

    @property
    def lives(self) -> bool:
        """Whether it can open searches."""
        try:
            return bool(ray.get(self.actor.lives.remote()))
        except ray.exceptions.RayActorError:
            return False

    def kill_if_idle(self) -> None:
        if not self.searches:
            ray.kill(self.actor)


_own: dict[NodeId, OwnActor] = {}


def own_actor(view: NodeView) -> OwnActor:
    """This driver's on the node, made if there is none, or none that still fits, from an earlier search.

    It is inside the group of one of the node's devices: the node is ours as long as that is.
    """
    environment = Environment(_sys_path(), os.getcwd())
    own = _own.get(view.node)
    if own is not None and own.address == view.address:
        if own.environment == environment and own.lives:
            return own
        own.kill_if_idle()
    actor = make_actor(
        TrialActor,
        environment,
        num_cpus=0,
        num_gpus=0.001 if view.gpus else 0,
        scheduling_strategy=PlacementGroupSchedulingStrategy(view.group, placement_group_capture_child_tasks=True),
    )
    _own[view.node] = own = OwnActor(actor, view.address, environment)
    return own


def _sys_path() -> tuple[str, ...]:
    return tuple(os.path.abspath(entry or ".") for entry in sys.path)
