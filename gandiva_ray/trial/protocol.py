"""What a node's agent and the processes of its trials say to each other, and the page of memory they share.

The agent listens on an abstract Unix socket. Two kinds of process connect: a **template**, which forks trials when
told to, and a **trial**. (Where a template ends before it could say so, its parent connects in its place.) Each message
is one JSON object behind its length (4 bytes, big-endian); `op` says which.

    template -> agent   hello    {multi_job, pid, role: "template"}
                        ready    {fork_safe, why}          `why` trials are not forked, unless that was asked for
                        broken   {error}                   no trial can be started from it: traceback, or how it ended
                        exited   {job, code}               a trial's process ended; a signal is a negative code
    agent -> template   launch   LaunchMessage's fields
    trial -> agent      hello    {job, pid, page, role: "trial"}   `page` is a file descriptor of the trial's own
                        started  {}                        it waits for its first turn
                        report   {step, metrics, checkpoint}   the checkpoint's folder, or null
                        resumed  {}                        a turn began
                        suspended {}                       it gave the device up at a boundary, as asked
                        parked   {step}                    it gave the device up at its milestone
                        ended    {}                        the trainable returned
                        stopped  {}                        it obeyed a stop
                        failed   {reason, error}           it raised: one line, and the traceback
    agent -> trial      resume   {}                        your turn
                        stop     {}                        end at this boundary (it is waiting)

A trial looks at nothing but its page while it runs. The agent writes `request` and `until` there; the trial writes its
counters, for the agent to read without a message. A request is left standing until the trial has answered it; the agent
clears it before it says `resume`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

RUN, SUSPEND, STOP = 0, 1, 2
NO_MILESTONE = -1
PAGE_BYTES = mmap.PAGESIZE
_LENGTH = struct.Struct(">I")

Message = dict[str, Any]


class Page(ctypes.Structure):
    """The shared page. One writer a field: the agent the first two, the trial the rest."""

    request: int
    until: int
    boundaries: int
    steps: int
    _fields_ = (
        ("request", ctypes.c_uint8),
        ("until", ctypes.c_int64),
        ("boundaries", ctypes.c_uint64),
        ("steps", ctypes.c_uint64),
    )


def create_page() -> tuple[Page, int]:
    """A fresh page and the file descriptor that another process can map it by."""
    fd = os.memfd_create("gandiva-page")
    os.ftruncate(fd, PAGE_BYTES)
    page = map_page(fd)
    page.until = NO_MILESTONE
    return page, fd


def map_page(fd: int) -> Page:
    """The page behind a file descriptor; the mapping lives as long as the object."""
    return Page.from_buffer(mmap.mmap(fd, PAGE_BYTES))


def open_page(pid: int, fd: int) -> Page:
    """The page of another process of the same user; a blank one where that has ended, as what it said still counts."""
    try:
        own = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR)
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # until it is reaped, what it had is root's
        _, own = create_page()
    try:
        return map_page(own)
    finally:
        os.close(own)


@dataclass(frozen=True, slots=True)
class LaunchMessage:
    """What a template needs to fork a trial.

    `config` is the pickled configuration in base64; `path` the trial's folder; `cores` the CPU cores it is pinned to
    (none leaves it unpinned); `gpus` the ids for CUDA_VISIBLE_DEVICES (None leaves it alone); `threads` what torch and
    OpenMP may use. `checkpoint` is the folder of the checkpoint to go on from, made with the report `step`.
    """

    job: str
    trial: str
    config: str
    path: str
    until: int | None
    seed: int
    cores: Sequence[int]
    gpus: Sequence[str] | None
    threads: int
    step: int = 0
    checkpoint: str | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """Where a zygote works: the driver's `sys.path` and working directory."""

    sys_path: tuple[str, ...]
    working_dir: str


@dataclass(frozen=True, slots=True)
class TemplateArguments:
    """What a trial actor tells a zygote to fork a template for a search.

    `address` is the agent's socket without its leading NUL; `trainable` is cloudpickled.
    `start_method` is "fork", "spawn", "actor", or None: fork where that is safe.
    """

    address: str
    multi_job: str
    trainable: bytes
    environment: Environment
    start_method: str | None = None


@dataclass(frozen=True, slots=True)
class CloseTemplate:
    """The search is over."""

    multi_job: str


def encode(message: Message) -> bytes:
    """The message as it goes over the socket. Raises TypeError or ValueError on what JSON cannot hold."""
    body = json.dumps(message).encode()
    return _LENGTH.pack(len(body)) + body


class Decoder:
    """Bytes in, whole messages out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        self._buffer += data
        messages: list[Message] = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            messages.append(json.loads(self._buffer[_LENGTH.size : end]))
            del self._buffer[:end]
        return messages


class Channel:
    """The blocking end of the socket, for templates and trials."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect("\0" + address)
        self._decoder = Decoder()
        self._ready: list[Message] = []

    def send(self, message: Message) -> None:
        self._socket.sendall(encode(message))

    def receive(self) -> Message | None:
        """The next message; None when the agent is gone."""
        while not self._ready:
            messages = self.read()
            if messages is None:
                return None
            self._ready += messages
        return self._ready.pop(0)

    def read(self) -> list[Message] | None:
        """Read once, for who waits on the file descriptor: the messages now whole; None when the agent is gone."""
        data = self._socket.recv(65536)
        return self._decoder.feed(data) if data else None

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


def tell_broken(arguments: TemplateArguments, error: str) -> None:
    """Say for a template that it can start no trial."""
    with contextlib.suppress(OSError):  # the agent is gone, and with it all that waits
        channel = Channel(arguments.address)
        channel.send({"op": "hello", "multi_job": arguments.multi_job, "pid": os.getpid(), "role": "template"})
        channel.send({"op": "broken", "error": error})
        channel.close()
