"""The driver's side of a search, pure: what happened to its trials goes in, what to do with them comes out."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import Any, Literal

from gandiva_ray.core.model import Outcome, TrialId
from gandiva_ray.core.search import (
    Action,
    Algorithm,
    CapacityChanged,
    Config,
    Create,
    Mode,
    Noticed,
    Problem,
    Promote,
    Reweigh,
    SearchStarved,
    SearchStopped,
    StopTrial,
    TrialEnded,
    TrialEvent,
    TrialReported,
    TrialStarted,
)

_NO_LIMIT = 10**9
# New trials at a time. Thousands would take their time, while reports wait, and memory that is never given back.
_MOST_NEW = 64
_MISTAKES_THAT_END_A_SEARCH = 3
# A trial that is lost with its node is tried again whatever FailureConfig says; one that takes nodes down is not.
_MOST_LOSSES = 3
_RESTORED = "the search was restored"


@dataclass(frozen=True, slots=True)
class TimeUp:
    """The search must end now, by its time budget or an interrupt; `reason` says which."""

    reason: str


@dataclass(frozen=True, slots=True)
class Retry:
    """Run the trial once more, in a new process: from a checkpoint that it saved with its report `step`, if any.

    `anew` means that nothing counts any more of what it reported before.
    """

    create: Create
    attempt: int
    step: int
    checkpoint: str | None
    reason: str
    anew: bool = False

    @property
    def trial(self) -> TrialId:
        return self.create.trial


@dataclass(frozen=True, slots=True)
class DropCheckpoint:
    """It is not worth keeping any more."""

    trial: TrialId
    path: str


# A TrialEnded is news for the owner: a trial without a process was stopped.
Effect = Create | Promote | Reweigh | StopTrial | Retry | DropCheckpoint | TrialEnded


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint, and the report that it came with."""

    step: int
    path: str
    metrics: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Keep:
    """Which checkpoints of a trial to keep besides its last one: `count` of them, None all.

    The best by `attribute` of their metrics, in the order `mode`; without it, the latest.
    """

    count: int | None = None
    attribute: str | None = None
    mode: Mode = "max"


@dataclass(frozen=True, slots=True)
class Failures:
    """How often a trial that fails is tried again (-1: without end); whether the first one ends the search."""

    retries: int = 0
    end_search: bool = False


Errored = Literal["leave", "resume", "restart"]


@dataclass(frozen=True, slots=True)
class Resume:
    """How a search goes on whose trials all lost their processes.

    Trials that had not ended run on from their last checkpoints, or, where not `unfinished`, end as they are. Those
    that had failed stay so ("leave"), go on from their last checkpoints ("resume") or begin anew ("restart").
    """

    unfinished: bool = True
    errored: Errored = "leave"


StopRule = Callable[[TrialId, Mapping[str, Any]], str]
"""Why a trial that reported these metrics has done enough; "" where it goes on."""


class TrialState(enum.Enum):
    """Where a trial is, as its search sees it. WAITING is for its first device."""

    WAITING = "waiting"
    RUNNING = "running"
    PARKED = "parked"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(slots=True)
class TrialRecord:
    """What is known of a trial. Written by MultiJob alone; the history of its reports is in the run's log.

    `until` is the milestone it has been given. `best_value` is the best finite value of the metric at any report.
    `attempt` counts its processes, `earlier_seconds` are what those before the present one had received;
    `checkpoints` are those kept, the latest last. A parked trial whose process is `gone` gets a new one when it is
    promoted. One that is not `judged` had ended for its searcher, which hears nothing of it any more. `mistake` is why
    nothing could judge it, be it that it runs to its end before it is stopped. `stop` is how and why it
    is to end, where it was told to.
    """

    trial: TrialId
    config: Config
    until: int | None
    weight: float = 1.0
    exclusive: bool = False
    attempt: int = 1
    failures: int = 0
    losses: int = 0
    earlier_seconds: float = 0.0
    gone: bool = False
    judged: bool = True
    mistake: str = ""
    stop: tuple[Outcome, str] | None = None
    checkpoints: list[Saved] = field(default_factory=list)
    state: TrialState = TrialState.WAITING
    step: int = 0
    metrics: Mapping[str, Any] = field(default_factory=dict)
    best_value: float | None = None
    device_seconds: float = 0.0
    node: str = ""
    path: str = ""
    outcome: Outcome | None = None
    reason: str = ""
    error: str = ""


class MultiJob:
    """A search under way. Its owner carries out the effects in order, and sends what became of them.

    `max_concurrent_trials` bounds those that wait for a device or run; parked ones do not count. None creates all that
    the searcher has. `target` ends the search at the first report that reaches it, `stop` says which trials have done
    enough.

    Raises ValueError where the algorithm refuses the problem; RuntimeError, later, where a searcher does what it must
    not.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        problem: Problem,
        *,
        max_concurrent_trials: int | None = None,
        target: float | None = None,
        failures: Failures = Failures(),
        keep: Keep = Keep(),
        stop: StopRule | None = None,
    ) -> None:
        if max_concurrent_trials is not None and max_concurrent_trials < 1:
            raise ValueError(f"max_concurrent_trials must be at least 1, or None, got {max_concurrent_trials!r}")
        if problem.num_samples == -1 and max_concurrent_trials is None:
            raise ValueError("num_samples=-1 creates trials without end; give max_concurrent_trials")
        if target is not None and (problem.metric is None or not math.isfinite(target)):
            raise ValueError(f"target must be a finite value of the metric {problem.metric!r}, got {target!r}")
        self.trials: dict[TrialId, TrialRecord] = {}
        self.best: TrialRecord | None = None
        self.error = ""
        self.ending = ""  # why the search ends before its searcher has finished
        self._problem = problem
        self._name = type(algorithm).__name__
        self._searcher = algorithm.start(problem)
        self._longest: int | None = getattr(algorithm, "max_t", None)
        self._limit = max_concurrent_trials or _NO_LIMIT
        self._target = target
        self._failures = failures
        self._keep = keep
        self._stop_rule = stop
        self._promoted: dict[TrialId, None] = {}  # parked ones that may go on as soon as there is room
        self._in_state: Counter[TrialState] = Counter()
        self._ended_as: Counter[Outcome] = Counter()
        self._starved = ""
        self._measured = False  # whether any report held the metric
        self._mistaken = 0  # trials whose report lacked it

    @property
    def metric(self) -> str | None:
        """What its trials are judged by."""
        return self._problem.metric

    @property
    def done(self) -> bool:
        """Every trial has ended, and there will be no more."""
        return (bool(self.ending) or self._searcher.finished) and self._in_state[TrialState.ENDED] == len(self.trials)

    @property
    def stuck(self) -> str:
        """Why nothing can happen any more, the search not being done. Empty while something can."""
        if self.done or self._in_state[TrialState.RUNNING] or self._in_state[TrialState.STOPPING]:
            return ""
        if self._in_state[TrialState.WAITING]:
            return self._starved
        return (
            f"no trial runs and the searcher {self._name} waits: it suggests none, and neither promotes nor stops "
            f"any of the {self._in_state[TrialState.PARKED]} that are parked"
        )

    @property
    def counts(self) -> dict[str, int]:
        """How many trials are in which state, those that ended by their outcome; without the zeros."""
        states = {state.value: n for state, n in self._in_state.items() if state is not TrialState.ENDED}
        return {name: n for name, n in (*states.items(), *((o.value, n) for o, n in self._ended_as.items())) if n}

    def resume(self, how: Resume = Resume()) -> list[Effect]:
        """What to do when nothing of the search runs any more.

        The searcher has dropped the trials that failed, and hears nothing of those that go on: they run to its `max_t`
        if it has one, else to their end. A search that was over (`ending`) stays so.
        """
        records = list(self.trials.values())
        unended = [record for record in records if record.state is not TrialState.ENDED]
        failed = [record for record in records if record.outcome in (Outcome.FAILED, Outcome.LOST)]
        effects: list[Effect] = []
        for record in unended:
            effects += self._lose(record, _RESTORED) if how.unfinished else self._leave(record)
        if how.errored != "leave" and not self.ending:
            effects += [effect for record in failed for effect in self._revive(record, anew=how.errored == "restart")]
        return self._in_force(effects)

    def handle(self, *events: TrialEvent | TimeUp) -> list[Effect]:
        """What to do about all that happened. Without events, what to begin with."""
        effects = [effect for event in events for effect in self._on(event)]
        if not self.ending:
            effects += self._fill()
        return self._in_force(effects)

    def _in_force(self, effects: Iterable[Effect]) -> list[Effect]:
        """Without those for trials that ended meanwhile."""
        return [
            effect
            for effect in effects
            if isinstance(effect, TrialEnded) or self.trials[effect.trial].state is not TrialState.ENDED
        ]

    @property
    def _active(self) -> int:
        return self._in_state[TrialState.WAITING] + self._in_state[TrialState.RUNNING]

    def _on(self, event: TrialEvent | TimeUp) -> Iterable[Effect]:
        match event:
            case TrialStarted():
                return self._started(event)
            case TrialReported():
                return self._reported(event)
            case TrialEnded():
                return self._ended(event)
            case CapacityChanged(devices, step_costs):
                return [] if self.ending else self._act(self._searcher.capacity(devices, step_costs))
            case Noticed():
                return []
            case SearchStarved(reason):
                waiting, parked = self._in_state[TrialState.WAITING], self._in_state[TrialState.PARKED]
                self._starved = (
                    f"{waiting} trials wait ({reason}) for the {parked} that are parked, and those wait for them: "
                    "use fewer trials at once, smaller ones, or a searcher without rungs that all must reach"
                )
                return []
            case TimeUp(reason) | SearchStopped(reason):
                return self._end(reason, _cut)

    def _started(self, event: TrialStarted) -> list[Effect]:
        record = self.trials[event.trial]
        if event.attempt != record.attempt:
            return []
        record.node, record.path = event.node, event.path
        self._starved = ""
        if record.state is TrialState.WAITING:
            self._move(record, TrialState.RUNNING)
        return []

    def _reported(self, event: TrialReported) -> list[Effect]:
        record = self.trials[event.trial]
        if record.state is TrialState.ENDED or event.attempt != record.attempt:
            return []
        if self.ending and event.step > record.step:
            return []  # so the trial that reached the target keeps that report as its last
        return [*self._saved(record, event), *self._judged(record, event)]

    def _saved(self, record: TrialRecord, event: TrialReported) -> list[Effect]:
        """Note the checkpoint; drop the one that it pushes out."""
        if event.checkpoint is None:
            return []
        kept = [saved for saved in record.checkpoints if saved.path != event.checkpoint]
        record.checkpoints = [*kept, Saved(event.step, event.checkpoint, event.metrics)]
        if self._keep.count is None or len(record.checkpoints) <= self._keep.count:
            return []
        worst = min(record.checkpoints[:-1], key=self._worth_keeping)
        record.checkpoints.remove(worst)
        return [DropCheckpoint(record.trial, worst.path)]

    def _worth_keeping(self, saved: Saved) -> tuple[float, int]:
        value = None if self._keep.attribute is None else _number(saved.metrics.get(self._keep.attribute))
        if value is None or math.isnan(value):
            return (-math.inf if self._keep.attribute is not None else 0.0, saved.step)
        return (value if self._keep.mode == "max" else -value, saved.step)

    def _judged(self, record: TrialRecord, event: TrialReported) -> list[Effect]:
        if event.step <= record.step:  # repeated, or made once more by another attempt
            active = record.state in (TrialState.WAITING, TrialState.RUNNING)
            return self._rest(record) if event.step == record.step and active and _at_milestone(record) else []
        record.step, record.metrics = event.step, event.metrics
        record.device_seconds = record.earlier_seconds + event.device_seconds
        value = None if self._problem.metric is None else _number(event.metrics.get(self._problem.metric))
        if value is not None:
            self._measure(record, value)
        if value is not None and self._reaches_target(value):
            return self._qualified(record, value)
        if record.state is TrialState.STOPPING:
            return []
        if value is None and self._problem.metric is not None:
            record.mistake = _what_is_wrong(self._problem.metric, record.metrics)
            return [self._stop(record, record.mistake, Outcome.FAILED), *self._count_mistake(record)]
        if self._stop_rule is not None and (reason := self._stop_rule(record.trial, event.metrics)):
            return [self._stop(record, reason, Outcome.COMPLETED)]
        effects = self._rest(record) if _at_milestone(record) else self._run(record)
        if not record.judged:
            return effects
        numbers = {key: number for key, raw in event.metrics.items() if (number := _number(raw)) is not None}
        return self._act(self._searcher.report(event.trial, event.step, numbers))

    def _run(self, record: TrialRecord) -> list[Effect]:
        self._move(record, TrialState.RUNNING)
        return []

    def _rest(self, record: TrialRecord) -> list[Effect]:
        """At its milestone: it waits there for its searcher's word, if that has any to say."""
        if record.judged:
            self._move(record, TrialState.PARKED)
            return []
        return [self._stop(record, f"reached {record.until} reports, the most there are", Outcome.COMPLETED)]

    def _ended(self, event: TrialEnded) -> list[Effect]:
        record = self.trials[event.trial]
        if record.state is TrialState.ENDED or event.attempt != record.attempt:
            return []
        if self._goes_on(record, event.outcome):
            if event.outcome is Outcome.LOST:
                record.losses += 1
            else:
                record.failures += 1
            return self._lose(record, event.reason)
        metric = self._problem.metric
        mute = event.outcome is Outcome.COMPLETED and not record.step and record.state is not TrialState.STOPPING
        if mute and metric is not None:
            record.mistake = f"returned without a report; call report({{{metric!r}: ...}}) in the training function"
        if event.outcome is Outcome.LOST and record.stop is not None:  # it has got its wish
            event = replace(event, outcome=record.stop[0], reason=record.stop[1])
        if event.outcome is Outcome.COMPLETED and record.mistake:
            event = replace(event, outcome=Outcome.FAILED, reason=record.mistake)
        record.outcome, record.reason, record.error = event.outcome, event.reason, event.error
        self._move(record, TrialState.ENDED)
        self._ended_as[event.outcome] += 1
        self._promoted.pop(event.trial, None)
        effects = self._tell_end(record, event.outcome)
        if self._failures.end_search and event.outcome in (Outcome.FAILED, Outcome.LOST):
            effects += self._end(f"trial {record.trial} failed: {event.reason}", _cut)
        return [*effects, *self._count_mistake(record)] if mute and metric is not None else effects

    def _tell_end(self, record: TrialRecord, outcome: Outcome) -> list[Effect]:
        if self.ending or not record.judged:
            return []
        return self._act(self._searcher.ended(record.trial, outcome))

    def _goes_on(self, record: TrialRecord, outcome: Outcome) -> bool:
        """Whether the trial, which ended by itself, is to be tried once more."""
        if self.ending or record.state is TrialState.STOPPING:
            return False
        if outcome is Outcome.LOST:
            return record.losses < _MOST_LOSSES
        retries = self._failures.retries
        return outcome is Outcome.FAILED and (retries == -1 or record.failures < retries)

    def _lose(self, record: TrialRecord, reason: str) -> list[Effect]:
        """Its process ended, and it shall go on: at once, or where it was parked, when it is promoted."""
        if record.state is TrialState.PARKED:
            record.gone, record.reason = True, reason
            return []
        return [self._retry(record, reason)]

    def _retry(self, record: TrialRecord, reason: str) -> Retry:
        """Back into the queue. Its searcher hears nothing of it."""
        record.attempt += 1
        record.gone = False
        record.earlier_seconds = record.device_seconds
        self._promoted.pop(record.trial, None)
        self._move(record, TrialState.WAITING)
        last = record.checkpoints[-1] if record.checkpoints else None
        create = Create(record.trial, record.config, record.until, record.weight, record.exclusive)
        step, checkpoint = (last.step, last.path) if last is not None else (0, None)
        return Retry(create, record.attempt, step, checkpoint, reason)

    def _leave(self, record: TrialRecord) -> list[Effect]:
        """It had not ended, and shall not go on."""
        end = self._end_without_process(record, _RESTORED, _cut(record))
        return [end, *self._tell_end(record, end.outcome)]

    def _revive(self, record: TrialRecord, *, anew: bool) -> list[Effect]:
        """It failed, and shall go on outside of its searcher's judgement."""
        drops = self._forget(record) if anew else []
        if record.outcome is not None:
            self._ended_as[record.outcome] -= 1
        record.outcome, record.error, record.mistake, record.stop, record.judged = None, "", "", None, False
        record.failures = record.losses = 0
        record.until = self._longest
        return [*drops, replace(self._retry(record, _RESTORED), anew=anew)]

    def _forget(self, record: TrialRecord) -> list[DropCheckpoint]:
        """All that it reported and saved."""
        drops = [DropCheckpoint(record.trial, saved.path) for saved in record.checkpoints]
        record.checkpoints, record.step, record.metrics, record.best_value = [], 0, {}, None
        if self.best is record:
            self.best = None
            for other in self.trials.values():
                self._compare(other)
        return drops

    def _fill(self) -> list[Effect]:
        """Let trials run up to the limit: those that were promoted first, then new ones."""
        effects: list[Effect] = []
        while self._promoted and self._active < self._limit:
            record = self.trials[next(iter(self._promoted))]
            del self._promoted[record.trial]
            if record.gone:
                effects.append(self._retry(record, record.reason))
            else:
                self._move(record, TrialState.RUNNING)
                effects.append(Promote(record.trial, record.until))
        room = min(self._limit - self._active, _MOST_NEW)
        if room > 0 and not self._searcher.finished:
            creates = self._searcher.suggest(room)
            if len(creates) > room:
                raise RuntimeError(f"the searcher {self._name} suggested {len(creates)} trials when asked for {room}")
            effects += map(self._create, creates)
        return effects

    def _create(self, create: Create) -> Create:
        if create.trial in self.trials:
            raise RuntimeError(f"the searcher {self._name} created trial {create.trial} twice")
        if not self._searcher.acts_on_feedback:
            create = replace(create, exclusive=True)
        record = self.trials[create.trial] = TrialRecord(
            create.trial, create.config, create.until, create.weight, create.exclusive
        )
        self._in_state[record.state] += 1
        return create

    def _act(self, actions: Iterable[Action]) -> list[Effect]:
        effects: list[Effect] = []
        for action in actions:
            record = self.trials.get(action.trial)
            if record is None or record.state is TrialState.ENDED:
                what = "never created" if record is None else "knows to have ended"
                raise RuntimeError(f"the searcher {self._name} wants {action}, a trial that it {what}")
            if record.state is not TrialState.STOPPING:
                effects += self._act_on(record, action)
        return effects

    def _act_on(self, record: TrialRecord, action: Action) -> list[Effect]:
        if isinstance(action, StopTrial):
            stop = self._stop(record, action.reason, action.outcome)
            gone = isinstance(stop, TrialEnded)
            return [stop, *(self._act(self._searcher.ended(record.trial, action.outcome)) if gone else ())]
        if isinstance(action, Reweigh):
            record.weight, record.exclusive = action.weight, action.exclusive
        if isinstance(action, Promote):
            record.until = action.until
            if record.state is TrialState.PARKED:
                if not _at_milestone(record):
                    self._promoted[record.trial] = None
                return []
        return [action]

    def _stop(self, record: TrialRecord, reason: str, outcome: Outcome) -> StopTrial | TrialEnded:
        self._promoted.pop(record.trial, None)
        if not record.gone:
            record.stop = outcome, reason
            self._move(record, TrialState.STOPPING)
            return StopTrial(record.trial, reason, outcome)
        return self._end_without_process(record, reason, outcome)

    def _end_without_process(self, record: TrialRecord, reason: str, outcome: Outcome) -> TrialEnded:
        self._promoted.pop(record.trial, None)
        record.outcome, record.reason = outcome, reason
        self._move(record, TrialState.ENDED)
        self._ended_as[outcome] += 1
        return TrialEnded(record.trial, outcome, reason, attempt=record.attempt)

    def _end(self, reason: str, outcome_of: Callable[[TrialRecord], Outcome]) -> list[Effect]:
        """Stop all that has not been stopped; nothing more will be suggested."""
        if self.ending:
            return []
        self.ending = reason
        ended = (TrialState.STOPPING, TrialState.ENDED)
        return [self._stop(r, reason, outcome_of(r)) for r in self.trials.values() if r.state not in ended]

    def _measure(self, record: TrialRecord, value: float) -> None:
        self._measured = True
        if not math.isfinite(value):
            return
        if record.best_value is None or self._better(value, record.best_value):
            record.best_value = value
            self._compare(record)

    def _compare(self, record: TrialRecord) -> None:
        """It may be the best one now."""
        value = record.best_value
        if value is None:
            return
        if self.best is None or self.best.best_value is None or self._better(value, self.best.best_value):
            self.best = record

    def _better(self, value: float, other: float) -> bool:
        return value > other if self._problem.mode == "max" else value < other

    def _reaches_target(self, value: float) -> bool:
        return self._target is not None and math.isfinite(value) and not self._better(self._target, value)

    def _qualified(self, record: TrialRecord, value: float) -> list[Effect]:
        reached = f"reached the target {self._target} with {value} at report {record.step}"
        stop = self._stop(record, reached, Outcome.COMPLETED)
        rest = self._end(f"the target {self._target} was reached by trial {record.trial}", lambda _: Outcome.STOPPED)
        return [stop, *rest]

    def _count_mistake(self, record: TrialRecord) -> list[Effect]:
        """A trial could not be judged: where none can, the search is over."""
        self._mistaken += 1
        enough = _MISTAKES_THAT_END_A_SEARCH
        if self._searcher.finished:
            enough = min(enough, len(self.trials))
        if self.ending or self._measured or self._mistaken < enough:
            return []
        self.error = f"no trial can be judged: trial {record.trial} {record.mistake}"
        return self._end(f"no trial reports a usable {self._problem.metric!r}", _cut)

    def _move(self, record: TrialRecord, state: TrialState) -> None:
        self._in_state[record.state] -= 1
        self._in_state[state] += 1
        record.state = state


def _cut(record: TrialRecord) -> Outcome:
    return Outcome.NEVER_STARTED if record.state is TrialState.WAITING else Outcome.CUT


def _at_milestone(record: TrialRecord) -> bool:
    return record.until is not None and record.step >= record.until


def _number(raw: Any) -> float | None:
    if not isinstance(raw, int | float):
        return None
    try:
        return float(raw)
    except OverflowError:
        return None


def _what_is_wrong(metric: str, metrics: Mapping[str, Any]) -> str:
    if metric in metrics:
        return f"reported {metrics[metric]!r} as {metric!r}, which is not a number; report a float"
    if not metrics:
        return f"reported nothing; report the metric {metric!r}"
    nearest = sorted(metrics, key=lambda key: -SequenceMatcher(None, metric, key).ratio())
    known = ", ".join(map(repr, nearest))
    return f"reported no {metric!r}, only {known}; report {metric!r}, or search by metric={nearest[0]!r}"
