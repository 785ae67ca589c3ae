"""A trial's side of time-slicing: reports go out, and at a boundary the device is given up when that is asked for."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from typing import Any, NoReturn

from gandiva_ray.trial import processes
from gandiva_ray.trial.metrics import plain
from gandiva_ray.trial.protocol import NO_MILESTONE, RUN, STOP, Channel, Message, Page


class TrialStopped(BaseException):
    """The trial was told to end. It passes through the training function so that `finally` and `with` do their work."""


class Session:
    """The one trial of this process, and its line to the node's agent."""

    def __init__(self, channel: Channel, page: Page) -> None:
        self._channel = channel
        self._page = page
        self._step = 0
        self._stopping = False
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

    def report(self, metrics: Mapping[str, Any], *, last: bool = False) -> None:
        """Send one report; then a boundary, unless it is the last thing that the trial does. Errors as in `plain`."""
        values = plain(metrics)
        with self._lock:
            if self._stopping:
                raise TrialStopped
            self._step += 1
            step = self._page.steps = self._step
            values.setdefault("training_iteration", step)
            self.say({"op": "report", "step": step, "metrics": values})
        if not last:
            self.boundary(step)

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
        frozen = processes.freeze_descendants()
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


def report(metrics: Mapping[str, Any], **unsupported: object) -> None:
    """Report metrics from a training function, as with Ray Tune's `report`. The n-th call is step n, from 1.

    `metrics` is a dict of names and numbers (also numpy and torch scalars), strings, None, and lists and dicts of
    these. `training_iteration`, the step, is added unless it is there. Raises RuntimeError outside a trial's process,
    TypeError or ValueError on other metrics or arguments. The trial may be suspended, parked or stopped in here.
    """
    if unsupported:
        names = ", ".join(unsupported)
        raise TypeError(f"report() takes the metrics and no {names}; checkpoints are not supported yet")
    if _session is not None:
        _session.report(metrics)
    elif _left_behind:
        raise RuntimeError(
            "report() was called in a child process of a trial: send the metrics to the trial, and report there"
        )
    else:
        raise RuntimeError("report() was called outside a trial: call it in the training function that a Tuner runs")


def boundary() -> None:
    """Say that here, between two mini-batches, the trial may be suspended. Does nothing outside a trial's process."""
    if _session is not None:
        _session.boundary()
