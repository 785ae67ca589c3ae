"""The agent's end of the protocol in plain Python, for tests of trials without Ray."""

from __future__ import annotations

import base64
import os
import selectors
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle

from gandiva_ray.trial.protocol import (
    NO_MILESTONE,
    RUN,
    STOP,
    SUSPEND,
    Decoder,
    Environment,
    LaunchMessage,
    Message,
    Page,
    TemplateArguments,
    encode,
    open_page,
)
from gandiva_ray.trial.zygote import Zygote

PATIENCE = 30.0


@dataclass(eq=False)
class Peer:
    """A process that connected, and all that it said."""

    socket: socket.socket
    decoder: Decoder = field(default_factory=Decoder)
    said: list[Message] = field(default_factory=list)
    gone: bool = False

    def ops(self) -> list[str]:
        return [message["op"] for message in self.said]


class FakeAgent:
    """Listens, remembers what was said, and says what a test tells it to. Reads only while a test waits."""

    def __init__(self) -> None:
        self.address = f"gandiva-test-{uuid.uuid4().hex}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind("\0" + self.address)
        self._listener.listen(128)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self.peers: list[Peer] = []

    def close(self) -> None:
        for peer in self.peers:
            peer.socket.close()
        self._listener.close()
        self._selector.close()

    def poll(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            if key.fileobj is self._listener:
                peer = Peer(self._listener.accept()[0])
                self.peers.append(peer)
                self._selector.register(peer.socket, selectors.EVENT_READ, peer)
            else:
                self._read(key.data)

    def _read(self, peer: Peer) -> None:
        try:
            data = peer.socket.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        peer.said += peer.decoder.feed(data)
        if not data:
            peer.gone = True
            self._selector.unregister(peer.socket)

    def until(self, condition: Callable[[], Any], what: str = "") -> Any:
        """Read until the condition holds, and return what it returned."""
        deadline = time.monotonic() + PATIENCE
        while not (result := condition()):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"waited for {what or condition} in vain; said: {[peer.said for peer in self.peers]}"
                )
            self.poll(0.05)
        return result

    def peer(self, **hello: Any) -> Peer:
        """The process whose hello holds these values, once it has said it."""

        def find() -> Peer | None:
            return next((peer for peer in self.peers if peer.said and hello.items() <= peer.said[0].items()), None)

        found: Peer = self.until(find, f"a hello with {hello}")
        return found


class FakeTemplate:
    """A real template, fork of a real zygote, under a fake agent, and the trials that it starts."""

    def __init__(
        self,
        trainable: Any,
        folder: Path,
        *,
        sys_path: tuple[str, ...] = (),
        start_method: str | None = None,
    ) -> None:
        self.agent = FakeAgent()
        self._folder = folder
        blob = trainable if isinstance(trainable, bytes) else cloudpickle.dumps(trainable)
        environment = Environment(sys_path, os.getcwd())
        self.zygote = Zygote(environment)
        self.zygote.open(TemplateArguments(self.agent.address, "search", blob, environment, start_method))
        self.zygote.hang_up()
        self.peer = self.agent.peer(role="template")
        self.pid: int = self.peer.said[0]["pid"]
        self.agent.until(lambda: self.peer.gone or {"ready", "broken"} & set(self.peer.ops()), "ready")

    def close(self) -> None:
        self.agent.close()
        self.zygote.process.wait(PATIENCE)

    def launch(
        self,
        config: Any = None,
        *,
        job: str = "",
        path: Path | None = None,
        trial: str = "00000",
        until: int | None = None,
        seed: int = 0,
        cores: tuple[int, ...] = (),
        gpus: tuple[str, ...] | None = None,
        threads: int = 1,
        step: int = 0,
        checkpoint: str | None = None,
    ) -> FakeTrial:
        job = job or uuid.uuid4().hex[:8]
        blob = base64.b64encode(cloudpickle.dumps(config)).decode()
        path = path or self._folder / job
        launch = LaunchMessage(job, trial, blob, str(path), until, seed, cores, gpus, threads, step, checkpoint)
        self.peer.socket.sendall(encode({"op": "launch", **asdict(launch)}))
        return FakeTrial(self, job, path)

    def run(self, config: Any = None, **options: Any) -> FakeTrial:
        """Launch a trial and let it run to its end."""
        trial = self.launch(config, **options)
        trial.resume()
        trial.exit_code()
        return trial


class FakeTrial:
    """A real trial as its agent sees it."""

    def __init__(self, template: FakeTemplate, job: str, path: Path) -> None:
        self._template = template
        self._agent = template.agent
        self._seen = 0
        self.job = job
        self.path = path
        self.peer = self._agent.peer(role="trial", job=job)
        self.pid: int = self.peer.said[0]["pid"]
        self.page: Page = open_page(self.pid, self.peer.said[0]["page"])

    def say(self, op: str) -> None:
        self.peer.socket.sendall(encode({"op": op}))

    def next(self, *ops: str) -> Message:
        """The next message of these kinds that no test has seen yet. Fails if the trial ends without."""

        def find() -> Message | None:
            for index in range(self._seen, len(self.peer.said)):
                if self.peer.said[index]["op"] in ops:
                    self._seen = index + 1
                    return self.peer.said[index]
            assert not self.peer.gone, f"no {ops} among {self.peer.said}"
            return None

        message: Message = self._agent.until(find, f"{ops} of {self.job}")
        return message

    def resume(self) -> None:
        """Give it its first turn, or a further one."""
        if "started" not in self.peer.ops()[: self._seen]:
            self.next("started")
        self.page.request = RUN
        self.say("resume")
        self.next("resumed")

    def suspend(self) -> None:
        self.page.request = SUSPEND
        self.next("suspended")

    def ask_to_stop(self) -> None:
        self.page.request = STOP

    def promote(self, until: int | None) -> None:
        self.page.until = NO_MILESTONE if until is None else until

    def exit_code(self) -> int:
        """Wait for the end of its process."""

        def find() -> list[Message]:
            return [message for message in self._template.peer.said if message.get("job") == self.job]

        code: int = self._agent.until(find, f"the end of {self.job}")[0]["code"]
        self._agent.until(lambda: self.peer.gone, f"the last words of {self.job}")
        return code

    def ops(self) -> list[str]:
        return self.peer.ops()

    def metrics(self) -> list[dict[str, Any]]:
        return [message["metrics"] for message in self.peer.said if message["op"] == "report"]

    def last(self) -> Message:
        return self.peer.said[-1]

    def stdout(self) -> str:
        return (self.path / "stdout").read_text()

    def stderr(self) -> str:
        return (self.path / "stderr").read_text()
