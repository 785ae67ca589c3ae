"""Background work of an actor: a fault in it ends the actor, so that it is seen and dealt with like any other loss."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def _reraise(task: asyncio.Future[Any]) -> None:
    """A done callback: what the task raised goes to the loop's exception handler."""
    if not task.cancelled():
        task.result()


def crash_on_faults() -> None:
    """Whatever escapes a callback or a kept task of this loop ends the process, its traceback in the actor's log."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is None:
            loop.default_exception_handler(context)
            return
        traceback.print_exception(error)
        sys.stderr.flush()
        os._exit(1)

    asyncio.get_running_loop().set_exception_handler(handle)


class Tasks:
    """Keeps background tasks alive; asyncio itself holds them weakly."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()

    def keep(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_reraise)

    def cancel(self) -> None:
        for task in list(self._tasks):
            task.cancel()


class Line(Generic[T]):
    """An ordered line to an actor: one delivery at a time, and what comes meanwhile goes with the next.

    Ray may run the calls to an asyncio actor in another order than they were made in. Items are numbered from 1 on, and
    a delivery goes with the number of its first: Ray makes a call again where the actor died before it answered.
    """

    def __init__(
        self, tasks: Tasks, deliver: Callable[[int, Sequence[T]], Awaitable[object]], *, delivered: int = 0
    ) -> None:
        self._tasks = tasks
        self._deliver = deliver
        self._delivered = delivered
        self._waiting: list[T] = []
        self._busy = False

    def send(self, items: Iterable[T]) -> None:
        self._waiting += items
        if self._waiting and not self._busy:
            self._busy = True
            self._tasks.keep(self._flush())

    async def _flush(self) -> None:
        try:
            while self._waiting:
                items, self._waiting = self._waiting, []
                await self._deliver(self._delivered + 1, items)
                self._delivered += len(items)
        finally:
            self._busy = False


@dataclass(slots=True)
class Taken:
    """How many items of a `Line` its receiver has taken."""

    count: int = 0

    def news(self, first: int, items: Sequence[T]) -> Sequence[T]:
        """What of a delivery was not taken before; it counts as taken now."""
        news = items[max(0, self.count + 1 - first) :]
        self.count += len(news)
        return news
