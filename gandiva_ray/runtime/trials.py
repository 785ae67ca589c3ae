"""What an agent knows of the templates and trials of its node."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from gandiva_ray.core.decisions import Stop
from gandiva_ray.core.model import Assignment, JobId, MultiJobId
from gandiva_ray.runtime.listener import send
from gandiva_ray.runtime.messages import Payload
from gandiva_ray.trial import processes
from gandiva_ray.trial.protocol import NO_MILESTONE, STOP, Message, Page


class Where(enum.Enum):
    """How far a trial's process is, as the agent knows it."""

    UNBORN = enum.auto()  # waits for its template
    BORN = enum.auto()  # forked, and not heard of yet
    WAITING = enum.auto()  # blocked until it is told something
    TURN = enum.auto()
    FROZEN = enum.auto()  # its turn was taken by force, between two boundaries
    OVER = enum.auto()  # it said its last word, or will not be listened to; its process may still be there


@dataclass(eq=False, slots=True)
class Trial:
    """`received` and `told_bytes` are what the scheduler was told of its attained service and its memory, `at_home`
    whether it still takes turns.

    `frozen` are its processes while they are stopped by force, `forced_at` its count of boundaries when that was done
    last, `longest_wait` the most seconds of its own turns that it was seen to take to a boundary.
    """

    job: JobId
    payload: Payload
    assignment: Assignment
    until: int | None
    where: Where = Where.UNBORN
    pid: int = 0
    page: Page | None = None
    template: Template | None = None
    pinned: tuple[int, ...] = ()
    share: float = 1.0
    step: int = 0
    parked: bool = False
    stop: Stop | None = None
    at_home: bool = True
    received: float = 0.0
    private_bytes: int = 0
    told_bytes: int = 0
    measured_at: float = float("-inf")
    exit_code: int | None = None
    frozen: Sequence[int] = ()
    forced_at: int | None = None
    longest_wait: float = 0.0
    noted: bool = False
    _writer: asyncio.StreamWriter | None = None

    @property
    def heard_out(self) -> bool:
        """Nothing more will come from its process: it hung up, or never called."""
        return self._writer is None

    @property
    def may_go_on(self) -> bool:
        """Its milestone is still ahead."""
        return self.until is None or self.step < self.until

    def connect(self, pid: int, page: Page, writer: asyncio.StreamWriter) -> None:
        self.pid, self.page, self._writer = pid, page, writer
        self.set_until(self.until)

    def disconnect(self) -> None:
        self._writer = None

    def set_until(self, until: int | None) -> None:
        self.until = until
        if self.page is not None:
            self.page.until = NO_MILESTONE if until is None else until

    def request(self, what: int) -> None:
        """Ask it for something at its next boundary, or take that back; a stop stands."""
        if self.page is not None and (self.stop is None or what == STOP):
            self.page.request = what

    def thaw(self, *, waits: bool = False) -> None:
        """Let it go on where it was stopped by force; one that `waits` at a boundary keeps what is below it still."""
        processes.thaw(self.frozen[:1] if waits else self.frozen)
        self.frozen = ()

    def say(self, message: Message) -> None:
        send(self._writer, message)


@dataclass(eq=False, slots=True)
class Template:
    """The process that a multi-job's trials are forked from.

    `broken` says why neither it nor another one will fork any; `lost` that it ended, and that another one is to come.
    """

    multi_job: MultiJobId
    writer: asyncio.StreamWriter | None = None
    ready: bool = False
    broken: str = ""
    lost: bool = False
    waiting: list[Trial] = field(default_factory=list)

    def take_waiting(self) -> list[Trial]:
        waiting, self.waiting = self.waiting, []
        return waiting
