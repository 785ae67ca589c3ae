"""The least agent that a trial can live under: it measures one trial at a time, without Ray and without a scheduler."""

from __future__ import annotations

import base64
import os
import pickle
import socket
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gandiva_ray.trial.protocol import (
    RUN,
    SUSPEND,
    Decoder,
    Environment,
    LaunchMessage,
    Message,
    TemplateArguments,
    encode,
    open_page,
)
from gandiva_ray.trial.zygote import Zygote

PATIENCE = 60.0  # seconds that a message may take; a zygote imports torch before its template's first one


class Peer:
    """A template or a trial that connected, and what it says next."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(PATIENCE)
        self._connection = connection
        self._decoder = Decoder()
        self._heard: list[Message] = []

    def tell(self, message: Message) -> None:
        self._connection.sendall(encode(message))

    def wait_for(self, *ops: str) -> Message:
        """The next message of these kinds; others are skipped. Raises RuntimeError on bad news and at the end."""
        while True:
            while not self._heard:
                data = self._connection.recv(1 << 16)
                if not data:
                    raise RuntimeError(f"the process ended before it said {' or '.join(ops)}")
                self._heard = self._decoder.feed(data)
            message = self._heard.pop(0)
            if message["op"] in ops:
                return message
            if message["op"] in ("broken", "failed"):
                raise RuntimeError(message["error"])

    def close(self) -> None:
        self._connection.close()


class Trial:
    """A trial that waits for its first turn."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        hello = peer.wait_for("hello")
        self.pid: int = hello["pid"]
        self._page = open_page(self.pid, hello["page"])
        peer.wait_for("started")

    def resume(self) -> None:
        self._page.request = RUN
        self._peer.tell({"op": "resume"})

    def suspend(self) -> None:
        self._page.request = SUSPEND
        self._peer.wait_for("suspended")

    def next_report(self) -> dict[str, Any]:
        metrics: dict[str, Any] = self._peer.wait_for("report")["metrics"]
        return metrics

    def wait_for_end(self) -> None:
        self._peer.wait_for("ended")


class Template:
    """A template of a training function, and the trials that it forks, each pinned to `core`."""

    def __init__(self, trainable: Callable[[Mapping[str, Any]], None], folder: Path, core: int) -> None:
        self._folder = folder
        self._core = core
        address = f"gandiva-experiment-{uuid.uuid4().hex}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind("\0" + address)
        self._listener.listen()
        self._listener.settimeout(PATIENCE)
        environment = Environment(tuple(sys.path), os.getcwd())
        self._zygote = Zygote(environment)
        self._zygote.open(TemplateArguments(address, "overheads", pickle.dumps(trainable), environment))
        self._zygote.hang_up()
        self._peers: list[Peer] = []
        self._peer = self._next_peer()
        self._peer.wait_for("ready")

    def launch(self, config: Mapping[str, Any]) -> Trial:
        job = uuid.uuid4().hex
        pickled = base64.b64encode(pickle.dumps(dict(config))).decode()
        message = LaunchMessage(job, job, pickled, str(self._folder / job), None, 0, (self._core,), None, 1)
        self._peer.tell({"op": "launch", **asdict(message)})
        return Trial(self._next_peer())

    def _next_peer(self) -> Peer:
        self._peers.append(Peer(self._listener.accept()[0]))
        return self._peers[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """A template ends its trials and itself when its agent is gone."""
        self._listener.close()
        for peer in self._peers:
            peer.close()
        self._zygote.process.wait(PATIENCE)
