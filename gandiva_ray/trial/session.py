"""A trial's side of time-slicing: reports go out, and at a boundary the device is given up when that is asked for."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from gandiva_ray.arguments import explain_unknown
from gandiva_ray.trial import processes
from gandiva_ray.trial.checkpoint import Checkpoint
from gandiva_ray.trial.metrics import plain
from gandiva_ray.trial.protocol import NO_MILESTONE, RUN, STOP, Channel, LaunchMessage, Message, Page


class TrialStopped(BaseException):
    """The trial was told to end. It passes through the training function so that `finally` and `with` do their work."""


@dataclass(frozen=True, slots=True)
class TrialContext:
    """What a training function may ask about its trial; the names are Ray Tune's."""

    _trial: str
    _folder: str
    _run: str

    def get_trial_id(self) -> str:
        return self._trial

    def get_trial_name(self) -> str:
        return self._trial

    def get_trial_dir(self) -> str:
        """The trial's folder, which is its working directory too."""
        return self._folder

    def get_experiment_name(self) -> str:
        """The name of the run."""
        return self._run


class Session:
    """The one trial of this process, and its line to the node's agent."""

    def __init__(self, channel: Channel, page: Page, launch: LaunchMessage) -> None:
        self._channel = channel
        self._page = page
        self._folder = Path(launch.path)
        self.context = TrialContext(launch.trial, launch.path, Path(launch.path).parent.name)
        self._step = launch.step
        self.checkpoint = Checkpoint(launch.checkpoint) if launch.checkpoint is not None else None
        self._stopping = False
        self._last: Message = {}
        self._lock = threading.RLock()  # a signal handler may report while its thread is in here

    @property
    def stopping(self) -> bool:
        return self._stopping

    def say(self, message: Message) -> None:
        """Tell the agent. Ends the process if there is no agent any more."""
        with self._lock:
            try:
                self._channel.send(message)
            except OSError:
                self._end_alone()

    def hang_up(self) -> None:
        """Close this process's copy of the line, so that the agent sees the trial itself end."""
        self._channel.close()

    def wait_for_first_turn(self) -> None:
        """Raises TrialStopped if the trial is stopped before."""
        with self._lock:
            self._wait({"op": "started"})

    def report(self, metrics: Mapping[str, Any], checkpoint: Checkpoint | None = None, *, last: bool = False) -> None:
        """Send one report; then a boundary, unless it is the last thing that the trial does. Errors as in `plain`.

        The checkpoint is on the disk before the report is sent.
        """
        values = plain(metrics)
        with self._lock:
            if self._stopping:
                raise TrialStopped
            step = self._step + 1
            if checkpoint is not None:
                checkpoint.save(self._folder / f"checkpoint_{step:06d}")
                self.checkpoint = Checkpoint(checkpoint.path)
            self._step = self._page.steps = step
            values.setdefault("training_iteration", step)
            saved = checkpoint.path if checkpoint is not None else None
            self._last = {"op": "report", "step": step, "metrics": values, "checkpoint": saved}
            self.say(self._last)
        if not last:
            self.boundary(step)

    def save_last(self, checkpoint: Checkpoint) -> None:
        """A checkpoint for the report that was made last, by a trial that was told to stop there."""
        with self._lock:
            checkpoint.save(self._folder / f"checkpoint_{self._step:06d}")
            self.say({**self._last, "checkpoint": checkpoint.path})

    def boundary(self, step: int = 0) -> None:
        """Where a trial is suspended, parked or stopped. `step` is the report that was just made, 0 between reports."""
        page = self._page
        page.boundaries += 1
        if page.request != RUN or step or self._stopping:
            self._answer(step)

    def _answer(self, step: int) -> None:
        page = self._page
        with self._lock:  # what another thread has answered meanwhile is asked for no more
            if self._stopping or page.request == STOP:
                self._stop()
            if step and NO_MILESTONE < page.until <= step:
                self._wait({"op": "parked", "step": step})
            elif page.request != RUN:
                self._wait({"op": "suspended"})

    def _wait(self, message: Message) -> None:
        """Give the device up, with all processes below; say so; go on when told to."""
        frozen = processes.freeze_descendants(os.getpid())
        try:
            self.say(message)
            reply = self._receive()
        finally:
            processes.thaw(frozen)
        if reply["op"] == "stop":
            self._stop()
        self.say({"op": "resumed"})

    def _receive(self) -> Message:
        try:
            message = self._channel.receive()
        except OSError:
            message = None
        return message if message is not None else self._end_alone()

    def _stop(self) -> NoReturn:
        self._stopping = True
        raise TrialStopped

    def _end_alone(self) -> NoReturn:
        print("gandiva: the agent of this node is gone, and so the trial ends", file=sys.stderr)
        processes.leave(1)


_session: Session | None = None
_left_behind = False


def begin(session: Session) -> None:
    """Make it the session of this process. What the process forks must leave the socket and the page alone."""
    global _session
    _session = session
    os.register_at_fork(after_in_child=_leave_behind)


def _leave_behind() -> None:
    global _session, _left_behind
    if _session is not None:
        _session.hang_up()
    _session, _left_behind = None, True


@explain_unknown({"checkpoint_dir_name": "leave it out: checkpoints are numbered by their reports"})
def report(metrics: Mapping[str, Any], *, checkpoint: Checkpoint | None = None) -> None:
    """Report metrics from a training function, as with Ray Tune's `report`. The n-th call is step n, from 1.

    `metrics` is a dict of names and numbers (also numpy and torch scalars), strings, None, and lists and dicts of
    these. `training_iteration`, the step, is added unless it is there. `checkpoint` is copied into the trial's folder:
    a trial that fails and is tried again finds it by `get_checkpoint`. Raises RuntimeError outside a trial's process,
    TypeError or ValueError on other metrics or arguments, OSError where the checkpoint cannot be written. The trial may
    be suspended, parked or stopped in here.
    """
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        raise TypeError(
            f"checkpoint is a gandiva_ray.Checkpoint, got {checkpoint!r}: use Checkpoint.from_directory(path) or "
            "Checkpoint.from_dict({...})"
        )
    _here("report").report(metrics, checkpoint)


def save_last(checkpoint: Checkpoint) -> None:
    """Send a checkpoint after the last report, from a trial that was told to stop in it."""
    _here("save_last").save_last(checkpoint)


def get_checkpoint() -> Checkpoint | None:
    """The last checkpoint of this trial: what to go on from. None where it starts anew.

    Raises RuntimeError outside a trial's process.
    """
    return _here("get_checkpoint").checkpoint


def get_context() -> TrialContext:
    """Which trial this is. Raises RuntimeError outside a trial's process."""
    return _here("get_context").context


def _here(function: str) -> Session:
    if _session is not None:
        return _session
    if _left_behind:
        raise RuntimeError(
            f"{function}() was called in a child process of a trial: send the values to the trial, and call it there"
        )
    raise RuntimeError(f"{function}() was called outside a trial: call it in the training function that a Tuner runs")


def boundary() -> None:
    """Say that here, between two mini-batches, the trial may be suspended. Does nothing outside a trial's process."""
    if _session is not None:
        _session.boundary()
