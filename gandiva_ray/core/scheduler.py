"""The cluster level: events in, decisions out. It never asks the time; its driver keeps the clock."""

from __future__ import annotations

from collections.abc import Iterable

from gandiva_ray.core.decisions import Decision
from gandiva_ray.core.events import Event
from gandiva_ray.core.plan import Plan, Policy, reconcile
from gandiva_ray.core.state import ClusterState, ClusterView


class Scheduler:
    """Says where jobs live and with what weight, and speaks only when something changes."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._state = ClusterState()
        self._plan = Plan({})

    @property
    def policy(self) -> Policy:
        return self._policy

    @property
    def state(self) -> ClusterView:
        return self._state

    @property
    def plan(self) -> Plan:
        """The latest plan; its `why` says what each waiting job waits for."""
        return self._plan

    @property
    def wake_at(self) -> float:
        """When to send TimerFired if nothing else happens first; infinity if never."""
        return self._plan.until

    def handle(self, *events: Event) -> list[Decision]:
        """What to do now that all this has happened. It is planned once, so give together what has one cause.

        A job that ends in here is known until the next call. Raises IllegalFact for an event that cannot have happened;
        those before it stay noted.
        """
        self._state.forget_ended()
        for event in events:
            self._state.apply(event)
        self._plan = self._policy.plan(self._state)
        decisions = reconcile(self._state, self._plan)
        for decision in decisions:
            self._state.apply(decision)
        return decisions

    def recall(self, events: Iterable[Event], decisions: Iterable[Decision]) -> None:
        """Take note of a call of `handle` in an earlier life, and of what was decided then; it is not planned again."""
        self._state.forget_ended()
        for fact in (*events, *decisions):
            self._state.apply(fact)
