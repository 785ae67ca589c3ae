"""How long a turn is: `quantum="auto"`."""

from __future__ import annotations

from collections import deque
from statistics import median

from gandiva_ray.core.model import JobId

SWITCHES_PER_QUANTUM = 100.0
# The mini-batches after a switch find cold caches. Of small networks on a CPU core they lose four times what the hops
# take: 0.3 ms of hops, and mini-batches of 1.6 ms that are 0.5, 0.5 and 0.2 ms late.
COST_OF_HOPS = 5.0
SHORTEST, LONGEST = 0.02, 60.0
# A change smaller than this is noise of the measurement, and not worth new timers.
NOTICEABLE = 0.2
# Medians over so many turns follow a load that changes, and are not led astray by the crowd at the start of a search.
REMEMBERED, ENOUGH = 31, 5


class QuantumTuner:
    """The larger of one mini-batch and 100 times the cost of a switch, both measured as turns come and go.

    What a device idles between two turns is the hop of "suspended" to the agent and that of "resume" to the next
    trial. On the agent's clock, from saying "resume" to hearing "resumed" is as many hops. A switch costs more than
    that: `COST_OF_HOPS`.
    """

    def __init__(self, fixed: float | None) -> None:
        self.quantum = fixed if fixed is not None else 0.1
        self._fixed = fixed is not None
        self._hops: deque[float] = deque(maxlen=REMEMBERED)
        self._mini_batches: deque[float] = deque(maxlen=REMEMBERED)
        self._asked: dict[JobId, float] = {}
        self._begun: dict[JobId, tuple[float, int]] = {}

    def turn_begins(self, job: JobId, now: float, boundaries: int) -> None:
        """The trial is told to go on; `boundaries` is its count so far."""
        self._asked[job] = now
        self._begun[job] = (now, boundaries)

    def turn_began(self, job: JobId, now: float) -> None:
        """The trial says that it goes on."""
        if (asked := self._asked.pop(job, None)) is not None:
            self._hops.append(now - asked)

    def turn_ended(self, job: JobId, now: float, boundaries: int) -> None:
        if (begun := self._begun.pop(job, None)) is not None:
            since, before = begun
            if boundaries > before:
                self._mini_batches.append((now - since) / (boundaries - before))

    def forget(self, job: JobId) -> None:
        self._asked.pop(job, None)
        self._begun.pop(job, None)

    def tune(self) -> bool:
        """Whether `quantum` changed."""
        if self._fixed or len(self._hops) < ENOUGH:
            return False
        mini_batch = median(self._mini_batches) if self._mini_batches else 0.0
        wanted = max(mini_batch, SWITCHES_PER_QUANTUM * COST_OF_HOPS * median(self._hops))
        wanted = min(max(wanted, SHORTEST), LONGEST)
        if abs(wanted - self.quantum) < NOTICEABLE * self.quantum:
            return False
        self.quantum = wanted
        return True
