"""The driver's loop: what happened to the trials goes into the MultiJob, what it wants done goes to the session."""

from __future__ import annotations

import datetime
import math
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gandiva_ray.core.model import TrialId
from gandiva_ray.core.multi_job import DropCheckpoint, Effect, MultiJob, Resume, Retry, TimeUp, TrialState
from gandiva_ray.core.search import (
    CapacityChanged,
    Create,
    Noticed,
    Promote,
    Reweigh,
    StopTrial,
    TrialEnded,
    TrialEvent,
    TrialReported,
    TrialStarted,
)
from gandiva_ray.interrupt import Interrupt, catch_interrupt
from gandiva_ray.progress import Best, Ended, Progress, Snapshot
from gandiva_ray.run_log import Line, RunLog, line_of, with_joined_names
from gandiva_ray.search_session import SearchSession

_POLL = 0.25
_GRACE = 0.9  # how long trials that were told to stop may take to reach a boundary


class SearchLoop:
    """Runs a search once. `clock` gives the seconds since fit() was called."""

    def __init__(
        self,
        multi_job: MultiJob,
        session: SearchSession,
        log: RunLog,
        progress: Progress,
        clock: Callable[[], float],
        time_budget: float | None,
    ) -> None:
        self._multi_job = multi_job
        self._session = session
        self._log = log
        self._progress = progress
        self._clock = clock
        self._time_budget = math.inf if time_budget is None else time_budget
        self._give_up_at = math.inf
        self._stops: dict[TrialId, StopTrial] = {}  # ordered, and not obeyed yet
        self._noticed: set[str] = set()
        self._reports = 0

    def run(self, resume: Resume | None = None) -> Interrupt:
        """Until every trial has ended, one way or another. Returns what interrupted it, if so. Closes the session.

        With `resume`, the MultiJob has been told what happened before, and nothing of the search runs.
        """
        with catch_interrupt(self._session.leave) as interrupt:
            try:
                if resume is not None:
                    self._resume(resume)
                self._handle(CapacityChanged(self._session.num_devices, {}))
                while not self._multi_job.done and self._clock() < self._give_up_at:
                    self._turn(interrupt)
            except KeyboardInterrupt:
                if interrupt.pressed:
                    raise  # a second one
                interrupt.pressed = True  # by way of a handler of the user's own
                self._end_early("interrupted")
            finally:
                self._session.close()
        # What closing ended, ended as it had been told to.
        self._handle(*map(self._obeyed, self._stops.values()))
        return interrupt

    def _resume(self, how: Resume) -> None:
        effects = self._multi_job.resume(how)
        now = datetime.datetime.now().astimezone().isoformat()
        first = {"what": "restored", "started_at": now, "unfinished": how.unfinished, "errored": how.errored}
        self._log.write(first, *map(line_of, effects))
        self._carry_out(effects)

    def _obeyed(self, stop: StopTrial) -> TrialEnded:
        return TrialEnded(stop.trial, stop.outcome, stop.reason, attempt=self._multi_job.trials[stop.trial].attempt)

    def _turn(self, interrupt: Interrupt) -> None:
        if reason := self._why_end(interrupt):
            self._end_early(reason)
        if self._multi_job.ending:
            self._give_up_at = min(self._give_up_at, self._clock() + _GRACE)
        deadline = self._give_up_at if self._multi_job.ending else self._time_budget
        events = self._session.poll(min(_POLL, max(0.0, deadline - self._clock())))
        self._handle(*map(_with_shared_words, events))
        self._progress.update(self._snapshot)

    def _why_end(self, interrupt: Interrupt) -> str:
        if interrupt.pressed:
            return "interrupted"
        if self._clock() >= self._time_budget:
            return f"the time budget of {self._time_budget:g} seconds is used up"
        return self._multi_job.stuck

    def _end_early(self, reason: str) -> None:
        if not self._multi_job.ending:
            self._handle(TimeUp(reason))

    def _handle(self, *events: TrialEvent | TimeUp) -> None:
        trials = self._multi_job.trials
        before = {event.trial: trials[event.trial].step for event in events if isinstance(event, TrialReported)}
        effects = self._multi_job.handle(*map(with_joined_names, events))
        taken = [self._as_recorded(event) for event in events if self._was_taken(event, before)]
        lines = [line for event in events if (line := self._line(event, before)) is not None]
        if lines or effects:
            self._log.write(*lines, *map(line_of, effects))
        self._stops.update((effect.trial, effect) for effect in effects if isinstance(effect, StopTrial))
        for event in taken:
            self._note(event)
        for effect in effects:
            if isinstance(effect, Retry):
                self._progress.note(_on_retry(effect))
            if isinstance(effect, TrialEnded):
                self._note(effect)
        self._carry_out(effects)

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        creates = [effect for effect in effects if isinstance(effect, Create)]
        retries = [effect for effect in effects if isinstance(effect, Retry)]
        actions = [effect for effect in effects if isinstance(effect, Promote | Reweigh | StopTrial)]
        if retries:  # first, for the actions are about the new attempts
            self._session.retry(retries)
        if actions:
            self._session.act(actions)
        if creates:
            self._session.submit(creates)
        for effect in effects:
            if isinstance(effect, DropCheckpoint):
                shutil.rmtree(effect.path, ignore_errors=True)

    def _line(self, event: TrialEvent | TimeUp, before: Mapping[TrialId, int]) -> Line | None:
        """None for a report that does not count, unless it brought a checkpoint."""
        if self._was_taken(event, before):
            return line_of(self._as_recorded(event))
        assert isinstance(event, TrialReported)
        kept = {saved.path for saved in self._multi_job.trials[event.trial].checkpoints}
        return {**line_of(event), "what": "saved"} if event.checkpoint in kept else None

    def _was_taken(self, event: TrialEvent | TimeUp, before: Mapping[TrialId, int]) -> bool:
        """Whether the report counts: one made again, or after the search was decided, does not."""
        if not isinstance(event, TrialReported):
            return True
        return before[event.trial] < event.step <= self._multi_job.trials[event.trial].step

    def _as_recorded(self, event: TrialEvent | TimeUp) -> TrialEvent | TimeUp:
        """The end of a trial as the search judges it: one that returned without a report failed."""
        if not isinstance(event, TrialEnded) or (record := self._multi_job.trials[event.trial]).outcome is None:
            return event
        return replace(event, outcome=record.outcome, reason=record.reason)

    def _note(self, event: TrialEvent | TimeUp) -> None:
        match event:
            case TrialReported():
                self._reports += 1
            case Noticed(text) if text not in self._noticed:  # several nodes may have the same to say
                self._noticed.add(text)
                self._progress.note(text)
            case TrialEnded(trial, outcome, reason):
                self._stops.pop(trial, None)
                record = self._multi_job.trials[trial]
                if record.state is TrialState.ENDED:
                    value = record.metrics.get(self._multi_job.metric or "")
                    self._progress.ended(Ended(trial, outcome, reason, record.step, value, record.config))

    def _snapshot(self) -> Snapshot:
        record = self._multi_job.best
        best = None
        if record is not None and record.best_value is not None:
            best = Best(record.trial, record.best_value, record.config)
        return Snapshot(self._clock(), self._multi_job.counts, self._reports, best, self._session.devices())


def _with_shared_words(event: TrialEvent) -> TrialEvent:
    """The same event. Thousands of messages hold the same few words, each a copy of its own, and some are kept."""
    match event:
        case TrialStarted():
            return replace(event, node=sys.intern(event.node))
        case TrialReported():
            return replace(event, metrics={sys.intern(name): value for name, value in event.metrics.items()})
        case TrialEnded():
            return replace(event, reason=sys.intern(event.reason))
    return event


def _on_retry(retry: Retry) -> str:
    start = f"from its checkpoint at report {retry.step}" if retry.checkpoint is not None else "from its beginning"
    return f"Trial {retry.trial} is tried again {start} (attempt {retry.attempt}): {retry.reason}"
