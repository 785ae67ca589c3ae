"""Ctrl-C, taken note of where the loop looks for it, and nowhere in the middle of something."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Whether Ctrl-C was pressed."""

    pressed = False


@contextmanager
def catch_interrupt() -> Iterator[Interrupt]:
    """Catch the first Ctrl-C; a second one raises KeyboardInterrupt as always.

    A handler of the user's own is left in place, and outside the main thread nothing can be caught.
    """
    interrupt = Interrupt()

    def press(signum: int, frame: FrameType | None) -> None:
        interrupt.pressed = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, press)
    try:
        yield interrupt
    finally:
        if ours and signal.getsignal(signal.SIGINT) is press:
            signal.signal(signal.SIGINT, signal.default_int_handler)
