"""The processes of one node: templates and trials that talk over a socket, and whose turn it is among them.

Plain asyncio, no Ray: the NodeAgent is an actor around it. Orders of the cluster's scheduler come in through
`carry_out`, facts go out through `notify`, trial events to their drivers through an Outbox a multi-job.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import enum
import os
import secrets
import signal
import socket
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from gandiva_ray.core import slicer as turns
from gandiva_ray.core.decisions import Assign, Decision, Launch, Stop
from gandiva_ray.core.events import Event, JobEnded, JobFailed, JobParked, JobProgressed, JobStarted
from gandiva_ray.core.model import Assignment, Device, JobId, MultiJobId, NodeId, Outcome
from gandiva_ray.core.search import TrialEnded, TrialReported, TrialStarted
from gandiva_ray.runtime import processes
from gandiva_ray.runtime.devices import Hardware, Inventory, Nvml, gpu_process_bytes
from gandiva_ray.runtime.messages import Batch, Outbox, Payload
from gandiva_ray.runtime.quantum import QuantumTuner
from gandiva_ray.search_session import DeviceView
from gandiva_ray.trial import protocol
from gandiva_ray.trial.protocol import LaunchMessage, Message

# A trial that was told to end has so long to reach a boundary and unwind, then so long to obey SIGTERM.
STOP_GRACE = 5.0
TERM_GRACE = 2.0
BIRTH_GRACE = 0.5
# Reading smaps_rollup costs a millisecond or two, and a trial's memory changes little once it trains.
MEMORY_PERIOD = 30.0

_PEER = struct.Struct("3i")


class _Where(enum.Enum):
    """What a trial's process is doing, as far as the agent knows."""

    UNBORN = enum.auto()  # waits for its template
    BORN = enum.auto()  # forked, not heard of yet
    WAITING = enum.auto()  # blocked until it is told
    TURN = enum.auto()
    OVER = enum.auto()  # it said its last word, or was stopped for good; the process may still be there


@dataclass(slots=True)
class _Trial:
    job: JobId
    payload: Payload
    assignment: Assignment
    until: int | None
    where: _Where = _Where.UNBORN
    pid: int = 0
    writer: asyncio.StreamWriter | None = None
    page: protocol.Page | None = None
    pinned: tuple[int, ...] = ()
    step: int = 0
    parked: bool = False
    stop: Stop | None = None
    at_home: bool = True  # the slicer knows it
    received: float = 0.0  # device-seconds that the scheduler was told of
    private_bytes: int = 0
    measured_at: float = float("-inf")
    exit_code: int | None = None
    closed: bool = True  # its connection: nothing more will be heard on it


@dataclass(slots=True)
class _Template:
    multi_job: MultiJobId
    writer: asyncio.StreamWriter | None = None
    ready: bool = False
    broken: str = ""
    waiting: list[JobId] = field(default_factory=list)


class TrialHost:
    """All trials of one node. `quantum` None tunes it to the measured cost of a switch."""

    def __init__(
        self, node: NodeId, notify: Callable[[Sequence[Event]], None], quantum: float | None, nvml: Nvml | None
    ) -> None:
        self._node = node
        self._notify = notify
        self._nvml = nvml
        self._inventory: Inventory = {}
        self._trials: dict[JobId, _Trial] = {}
        self._templates: dict[MultiJobId, _Template] = {}
        self._outboxes: dict[MultiJobId, Outbox] = {}
        self._tuner = QuantumTuner(quantum)
        self._slicer = turns.TimeSlicer(self._tuner.quantum)
        self._timer: asyncio.TimerHandle | None = None
        self._server: asyncio.AbstractServer | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.get_running_loop()

    async def start(self) -> str:
        """Listen; returns the address for templates and trials."""
        address = f"gandiva-{secrets.token_hex(8)}"
        self._server = await asyncio.start_unix_server(self._accept, path="\0" + address)
        return address

    def set_inventory(self, inventory: Inventory) -> None:
        self._inventory = dict(inventory)

    async def stop(self) -> None:
        """End every process of every trial."""
        if self._server is not None:
            self._server.close()
        for multi_job in list(self._templates):
            self.forget(multi_job)
        for writer in self._connections:
            writer.close()

    # --- orders

    def carry_out(self, decision: Decision, payload: Payload | None = None) -> None:
        """A Launch needs its payload."""
        match decision:
            case Launch():
                assert payload is not None
                self._launch(decision, payload)
            case Assign():
                self._assign(decision)
            case Stop():
                self._stop(decision)

    def _launch(self, order: Launch, payload: Payload) -> None:
        if order.job in self._trials:
            return
        trial = _Trial(order.job, payload, order.assignment, order.until)
        self._trials[order.job] = trial
        self._turn(turns.JobPlaced(self._now(), order.job, order.assignment))
        template = self._template(payload.multi_job)
        if template.broken:
            self._fail(trial, Outcome.FAILED, _last_line(template.broken), template.broken)
            self._trials.pop(trial.job)
        elif template.ready:
            self._fork(template, trial)
        else:
            template.waiting.append(order.job)

    def _fork(self, template: _Template, trial: _Trial) -> None:
        cores = self._cores(trial.assignment.devices)
        gpus = tuple(h.gpu for h in self._hardware(trial.assignment.devices) if h.gpu is not None)
        trial.where = _Where.BORN
        trial.pinned = cores
        message = LaunchMessage(
            job=trial.job,
            trial=trial.payload.trial,
            config=base64.b64encode(trial.payload.config).decode(),
            path=trial.payload.path,
            until=trial.until,
            seed=trial.payload.seed,
            cores=cores,
            gpus=gpus or None,
            threads=len(trial.assignment.devices),
        )
        _send(template.writer, {"op": "launch", **dataclasses.asdict(message)})

    def _assign(self, order: Assign) -> None:
        trial = self._trials.get(order.job)
        if trial is None or trial.where is _Where.OVER:
            return
        trial.assignment, trial.until = order.assignment, order.until
        if trial.page is not None:
            trial.page.until = protocol.NO_MILESTONE if order.until is None else order.until
        facts: list[turns.NodeEvent] = [turns.JobPlaced(self._now(), order.job, order.assignment)]
        if trial.parked and self._may_go_on(trial):
            trial.parked = False
            facts.append(turns.JobReady(self._now(), order.job))
        self._turn(*facts)

    def _stop(self, order: Stop) -> None:
        trial = self._trials.get(order.job)
        if trial is None or trial.stop is not None or trial.where is _Where.OVER:
            return
        trial.stop = order
        if trial.where is _Where.UNBORN:
            self._template(trial.payload.multi_job).waiting.remove(order.job)
            self._end(trial, Outcome.NEVER_STARTED, order.why)
            self._trials.pop(order.job)
        elif trial.where is _Where.WAITING:
            self._tell_stop(trial)
            self._escalate(trial)
        elif trial.where is _Where.TURN:
            assert trial.page is not None
            trial.page.request = protocol.STOP
            self._escalate(trial)

    def _tell_stop(self, trial: _Trial) -> None:
        """It waits, so it will unwind without a turn."""
        self._leave_home(trial)
        _send(trial.writer, {"op": "stop"})

    def _escalate(self, trial: _Trial) -> None:
        """End by force what does not end by itself."""

        def terminate() -> None:
            if self._trials.get(trial.job) is trial:
                processes.end_softly(trial.pid)
                self._loop.call_later(TERM_GRACE, kill)

        def kill() -> None:
            if self._trials.get(trial.job) is trial:
                processes.end_at_once(trial.pid)

        self._loop.call_later(STOP_GRACE, terminate)

    # --- turns

    def _turn(self, *facts: turns.NodeEvent) -> None:
        """Tell the slicer, carry out the turns it gives, and wake it when it wants to be."""
        for turn in self._slicer.handle(*facts):
            trial = self._trials[turn.job]
            if isinstance(turn, turns.Resume):
                self._resume(trial, turn.devices)
            elif trial.stop is None and trial.page is not None:
                trial.page.request = protocol.SUSPEND
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._slicer.wake_at != float("inf"):
            self._timer = self._loop.call_at(self._slicer.wake_at, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._turn(turns.TimerFired(self._now()))

    def _resume(self, trial: _Trial, devices: tuple[Device, ...]) -> None:
        assert trial.page is not None
        cores = self._cores(devices)
        if cores != trial.pinned:
            processes.pin(trial.pid, cores)
            trial.pinned = cores
        trial.where = _Where.TURN
        trial.page.request = protocol.RUN
        self._tuner.turn_begins(trial.job, self._now(), trial.page.boundaries)
        _send(trial.writer, {"op": "resume"})

    def _turn_ended(self, trial: _Trial, ready: bool) -> None:
        assert trial.page is not None
        now = self._now()
        trial.where = _Where.WAITING
        self._tuner.turn_ended(trial.job, now, trial.page.boundaries)
        if trial.stop is not None:
            self._tell_stop(trial)
            return
        self._turn(turns.TurnEnded(now, trial.job, ready))
        if now - trial.measured_at > MEMORY_PERIOD:
            trial.measured_at = now
            trial.private_bytes = self._memory(trial)

    def _memory(self, trial: _Trial) -> int:
        gpus = [h.gpu for h in self._hardware(trial.assignment.devices) if h.gpu is not None]
        return gpu_process_bytes(self._nvml, gpus, trial.pid) if gpus else processes.private_bytes(trial.pid)

    # --- what processes say

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            await self._converse(reader, writer)
        except ConnectionError:
            pass
        except Exception as error:
            self._loop.call_exception_handler({"message": "a fault in what was heard", "exception": error})
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pid, uid = _peer(writer)
        if uid != os.geteuid():
            return  # an abstract socket has no permissions of its own
        decoder = protocol.Decoder()
        hear: Callable[[Message], None] | None = None
        silence: Callable[[], None] = lambda: None  # noqa: E731
        try:
            while data := await reader.read(65536):
                for message in decoder.feed(data):
                    if hear is None:
                        hear, silence = self._greet(message, pid, writer)
                    else:
                        hear(message)
        finally:
            silence()

    def _greet(
        self, hello: Message, pid: int, writer: asyncio.StreamWriter
    ) -> tuple[Callable[[Message], None], Callable[[], None]]:
        if hello["role"] == "template":
            template = self._template(hello["multi_job"])
            template.writer = writer
            return (lambda m: self._hear_template(template, m)), (lambda: self._lose_template(template))
        trial = self._trials.get(hello["job"])
        if trial is None:
            raise ConnectionAbortedError(f"job {hello['job']} is over")
        try:
            trial.page = protocol.open_page(pid, hello["page"])
        except FileNotFoundError as error:
            raise ConnectionAbortedError(f"job {trial.job} ended as soon as it began") from error
        trial.pid, trial.writer, trial.closed = pid, writer, False
        trial.page.until = protocol.NO_MILESTONE if trial.until is None else trial.until
        return (lambda m: self._hear_trial(trial, m)), (lambda: self._lose_trial(trial))

    def _hear_template(self, template: _Template, message: Message) -> None:
        match message["op"]:
            case "ready":
                template.ready = True
                waiting, template.waiting = template.waiting, []
                for job in waiting:
                    self._fork(template, self._trials[job])
            case "broken":
                template.broken = message["error"]
                waiting, template.waiting = template.waiting, []
                for job in waiting:
                    self._fail(self._trials.pop(job), Outcome.FAILED, _last_line(template.broken), template.broken)
            case "exited":
                if (trial := self._trials.get(message["job"])) is not None:
                    trial.exit_code = message["code"]
                    if trial.where is _Where.BORN:  # its own connection may be waiting to be accepted
                        self._loop.call_later(BIRTH_GRACE, self._bury, trial)
                    else:
                        self._bury(trial)

    def _lose_template(self, template: _Template) -> None:
        """Its children die with it; what they still had to say comes over their own connections."""
        template.ready, template.writer = False, None
        if template.broken:
            return
        template.broken = "the template process of this search ended"
        for trial in [t for t in self._trials.values() if t.payload.multi_job == template.multi_job]:
            if trial.closed:
                self._fail(trial, Outcome.LOST, template.broken)
                self._trials.pop(trial.job)

    def _hear_trial(self, trial: _Trial, message: Message) -> None:
        if trial.where is _Where.OVER:
            return
        match message["op"]:
            case "report":
                trial.step = message["step"]
                report = TrialReported(trial.payload.trial, trial.step, message["metrics"], self._device_seconds(trial))
                self._outbox(trial).put(report)
            case "resumed":
                self._tuner.turn_began(trial.job, self._now())
            case "suspended":
                self._turn_ended(trial, ready=True)
            case "parked":
                self._park(trial, message["step"])
            case "started":
                self._started(trial)
            case "ended":
                self._end(trial, Outcome.COMPLETED, "it returned")
            case "stopped":
                assert trial.stop is not None
                self._end(trial, trial.stop.outcome, trial.stop.why)
            case "failed":
                self._fail(trial, Outcome.FAILED, message["reason"], message["error"])

    def _started(self, trial: _Trial) -> None:
        trial.where = _Where.WAITING
        self._notify([JobStarted(0.0, trial.job)])
        self._outbox(trial).put(TrialStarted(trial.payload.trial, self._node, trial.pid, trial.payload.path))
        if trial.stop is not None:
            self._tell_stop(trial)
            self._escalate(trial)
        else:
            self._turn(turns.JobReady(self._now(), trial.job))

    def _park(self, trial: _Trial, step: int) -> None:
        trial.step = step
        if self._may_go_on(trial):  # a promotion crossed the message
            self._turn_ended(trial, ready=True)
            return
        trial.parked = True
        self._turn_ended(trial, ready=False)
        if trial.stop is None:
            self._notify([JobParked(0.0, trial.job, step)])

    def _may_go_on(self, trial: _Trial) -> bool:
        return trial.until is None or trial.step < trial.until

    def _lose_trial(self, trial: _Trial) -> None:
        trial.closed = True
        processes.end_at_once(trial.pid)  # and what it started: it has nobody to end it where the template is gone
        if self._template(trial.payload.multi_job).writer is None:
            if trial.where is not _Where.OVER:
                self._fail(trial, Outcome.LOST, "the template process of this search ended")
            self._trials.pop(trial.job, None)
        else:
            self._bury(trial)

    def _bury(self, trial: _Trial) -> None:
        """Once a process has ended and all it said was heard: say how, if it did not say so itself, and forget it."""
        if trial.exit_code is None or not trial.closed:
            return
        if trial.where is not _Where.OVER:
            if trial.stop is not None:  # it was ended by force
                self._end(trial, trial.stop.outcome, trial.stop.why)
            else:
                self._fail(trial, Outcome.FAILED, _exit_reason(trial.exit_code))
        self._trials.pop(trial.job, None)

    # --- ends

    def _end(self, trial: _Trial, outcome: Outcome, reason: str) -> None:
        self._over(trial, outcome, reason, "")
        self._notify([JobEnded(0.0, trial.job, outcome, reason)])

    def _fail(self, trial: _Trial, outcome: Outcome, reason: str, error: str = "") -> None:
        self._over(trial, outcome, reason, error)
        self._notify([JobFailed(0.0, trial.job, outcome, reason)])

    def _over(self, trial: _Trial, outcome: Outcome, reason: str, error: str) -> None:
        trial.where = _Where.OVER
        self._leave_home(trial)
        self._outbox(trial).put(TrialEnded(trial.payload.trial, outcome, reason, error))
        if trial.pid:
            self._escalate(trial)

    def _leave_home(self, trial: _Trial) -> None:
        if trial.at_home:
            self._account(trial)
            trial.at_home = False
            self._tuner.forget(trial.job)
            self._turn(turns.JobRemoved(self._now(), trial.job))

    # --- accounts

    def progress(self) -> None:
        """Tell the scheduler what each job received since the last time, and tune the quantum."""
        for trial in self._trials.values():
            self._account(trial)
        if self._tuner.tune():
            self._turn(turns.QuantumChanged(self._now(), self._tuner.quantum))

    def _account(self, trial: _Trial) -> None:
        received = self._device_seconds(trial)
        if received > trial.received:
            since = received - trial.received
            trial.received = received
            self._notify([JobProgressed(0.0, trial.job, since, trial.step, trial.private_bytes)])

    def _device_seconds(self, trial: _Trial) -> float:
        if not trial.at_home:
            return trial.received
        return self._slicer.time_of_turns(trial.job, self._now()) * len(trial.assignment.devices)

    @property
    def quantum(self) -> float:
        return self._tuner.quantum

    def view(self) -> list[DeviceView]:
        running: dict[Device, list[str]] = {device: [] for device in self._inventory}
        at_home = dict.fromkeys(self._inventory, 0)
        for job, devices in self._slicer.running().items():
            for device in devices:
                running[device].append(self._trials[job].payload.trial)
        for trial in self._trials.values():
            if trial.where is not _Where.OVER:
                for device in trial.assignment.devices:
                    at_home[device] += 1
        return [
            DeviceView(_device_name(device, hardware), tuple(running[device]), at_home[device])
            for device, hardware in sorted(self._inventory.items())
        ]

    # --- drivers

    async def take(self, multi_job: MultiJobId, confirmed: int, timeout: float) -> Batch:
        return await self._outboxes.setdefault(multi_job, Outbox()).take(confirmed, timeout)

    def forget(self, multi_job: MultiJobId) -> None:
        """The driver of a multi-job is done, or gone: nothing of it is left here."""
        for trial in [t for t in self._trials.values() if t.payload.multi_job == multi_job]:
            trial.where = _Where.OVER
            self._leave_home(trial)
            if trial.pid:
                processes.end_at_once(trial.pid)
            self._trials.pop(trial.job)
        if (template := self._templates.pop(multi_job, None)) is not None:
            template.broken = "its search is over"
            if template.writer is not None:
                template.writer.close()  # a template without an agent ends its children and itself
        self._outboxes.pop(multi_job, None)

    # --- small things

    def _now(self) -> float:
        return self._loop.time()

    def _template(self, multi_job: MultiJobId) -> _Template:
        return self._templates.setdefault(multi_job, _Template(multi_job))

    def _outbox(self, trial: _Trial) -> Outbox:
        return self._outboxes.setdefault(trial.payload.multi_job, Outbox())

    def _hardware(self, devices: Iterable[Device]) -> list[Hardware]:
        return [self._inventory[device] for device in devices]

    def _cores(self, devices: Iterable[Device]) -> tuple[int, ...]:
        return tuple(sorted({core for hardware in self._hardware(devices) for core in hardware.cores}))


def _send(writer: asyncio.StreamWriter | None, message: Message) -> None:
    """Never blocks: asyncio keeps what a stopped process does not read."""
    if writer is not None and not writer.is_closing():
        with contextlib.suppress(ConnectionError):
            writer.write(protocol.encode(message))


def _peer(writer: asyncio.StreamWriter) -> tuple[int, int]:
    """Process id and user id of the other end, as the kernel knows them."""
    sock = writer.get_extra_info("socket")
    pid, uid, _ = _PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return pid, uid


def _exit_reason(code: int) -> str:
    if code < 0:
        return f"its process was killed by signal {-code} ({signal.Signals(-code).name})"
    return f"its process exited with code {code} without a word"


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def _device_name(device: Device, hardware: Hardware) -> str:
    if hardware.gpu is not None:
        return f"gpu {hardware.gpu}"
    return f"cpu {','.join(map(str, hardware.cores))}"
