"""Ctrl-C and SIGTERM, taken note of where the loop looks for them, and nowhere in the middle of something."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import NoReturn

# What a shell says of a process that a signal ended.
ENDED_BY_CTRL_C, ENDED_BY_SIGTERM = 128 + signal.SIGINT, 128 + signal.SIGTERM


class Interrupt:
    """Whether Ctrl-C was `pressed`, or SIGTERM came, which is `terminated` too."""

    pressed = False
    terminated = False


@contextmanager
def catch_interrupt(leave: Callable[[], None]) -> Iterator[Interrupt]:
    """Catch the first Ctrl-C, or a SIGTERM as a cloud sends it before it takes a machine away.

    A second Ctrl-C raises KeyboardInterrupt as always. A script that does not catch that calls `leave` and ends at
    once; a notebook or a prompt lives on. Handlers of the user's own are left in place, and outside the main thread
    nothing can be caught.
    """
    interrupt = Interrupt()

    def press(signum: int, frame: FrameType | None) -> None:
        interrupt.pressed = True
        signal.signal(signal.SIGINT, press_again)

    def press_again(signum: int, frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _leave_where_uncaught(leave)
        raise KeyboardInterrupt

    def terminate(signum: int, frame: FrameType | None) -> None:
        interrupt.pressed = interrupt.terminated = True

    ours = {signal.SIGINT: (press, press_again), signal.SIGTERM: (terminate,)}
    former = {number: signal.getsignal(number) for number in ours if _may_catch(number)}
    for number in former:
        signal.signal(number, ours[number][0])
    try:
        yield interrupt
    finally:
        for number, handler in former.items():
            if signal.getsignal(number) in ours[number]:
                signal.signal(number, handler)


def _may_catch(number: signal.Signals) -> bool:
    if threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(number)
    if number is signal.SIGINT:
        return handler is signal.default_int_handler
    # Ray puts a handler there which ends the process; it is nobody's own.
    return handler is signal.SIG_DFL or getattr(handler, "__module__", "").partition(".")[0] == "ray"


def _leave_where_uncaught(leave: Callable[[], None]) -> None:
    """Python's way out takes Ray seconds, and one more Ctrl-C in there may crash it."""
    former = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
        former(kind, error, at)
        if issubclass(kind, KeyboardInterrupt) and not _at_a_prompt():
            leave()
            os._exit(ENDED_BY_CTRL_C)

    sys.excepthook = hook


def _at_a_prompt() -> bool:
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)
