"""How long a turn is: `quantum="auto"`."""

from __future__ import annotations

from gandiva_ray.core.model import JobId

SWITCHES_PER_QUANTUM = 100.0
SHORTEST, LONGEST = 0.02, 60.0
# A change smaller than this is noise of the measurement, and not worth new timers.
NOTICEABLE = 0.2


class QuantumTuner:
    """The larger of one mini-batch and 100 times the cost of a switch, both measured as turns come and go.

    A switch costs what a device idles between two turns: the hop of "suspended" to the agent and that of "resume" to
    the next trial. On the agent's clock, from saying "resume" to hearing "resumed" is as many hops.
    """

    def __init__(self, fixed: float | None) -> None:
        self.quantum = fixed if fixed is not None else 0.1
        self._fixed = fixed is not None
        self._switch = _Average()
        self._mini_batch = _Average()
        self._asked: dict[JobId, float] = {}
        self._begun: dict[JobId, tuple[float, int]] = {}

    def turn_begins(self, job: JobId, now: float, boundaries: int) -> None:
        """The trial is told to go on; `boundaries` is its count so far."""
        self._asked[job] = now
        self._begun[job] = (now, boundaries)

    def turn_began(self, job: JobId, now: float) -> None:
        """The trial says that it goes on."""
        if (asked := self._asked.pop(job, None)) is not None:
            self._switch.add(now - asked)

    def turn_ended(self, job: JobId, now: float, boundaries: int) -> None:
        if (begun := self._begun.pop(job, None)) is not None:
            since, before = begun
            if boundaries > before:
                self._mini_batch.add((now - since) / (boundaries - before))

    def forget(self, job: JobId) -> None:
        self._asked.pop(job, None)
        self._begun.pop(job, None)

    def tune(self) -> bool:
        """Whether `quantum` changed."""
        if self._fixed:
            return False
        wanted = max(self._mini_batch.value, SWITCHES_PER_QUANTUM * self._switch.value)
        wanted = min(max(wanted, SHORTEST), LONGEST)
        if abs(wanted - self.quantum) < NOTICEABLE * self.quantum:
            return False
        self.quantum = wanted
        return True


class _Average:
    """Exponentially weighted, so that it follows a load that changes."""

    def __init__(self) -> None:
        self.value = 0.0
        self._first = True

    def add(self, sample: float) -> None:
        self.value = sample if self._first else 0.9 * self.value + 0.1 * sample
        self._first = False
