"""The trials of one node, from the order to launch them to the end of their processes.

Plain asyncio, no Ray: the NodeAgent is an actor around it. Orders of the cluster's scheduler come in through
`carry_out`, facts go out through `notify`, trial events to their drivers through an Outbox a multi-job.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import heapq
import signal
from collections.abc import Callable, Sequence

from gandiva_ray.core.decisions import Assign, Decision, Launch, Stop
from gandiva_ray.core.events import Event, JobEnded, JobFailed, JobParked, JobProgressed, JobStarted
from gandiva_ray.core.model import Device, JobId, MultiJobId, NodeId, Outcome
from gandiva_ray.core.search import Noticed, TrialEnded, TrialEvent, TrialReported, TrialStarted
from gandiva_ray.runtime import processes
from gandiva_ray.runtime.devices import Inventory, Nvml, gpu_process_bytes
from gandiva_ray.runtime.listener import Listener, Talk, send
from gandiva_ray.runtime.messages import Batch, Outbox, Payload
from gandiva_ray.runtime.trials import Template, Trial, Where
from gandiva_ray.runtime.turns import Turns
from gandiva_ray.search_session import DeviceView
from gandiva_ray.trial.protocol import STOP, LaunchMessage, Message, open_page

# A trial that was told to end has so long to reach a boundary and unwind, then so long to obey SIGTERM.
STOP_GRACE = 5.0
TERM_GRACE = 2.0
# The news that a process ended may overtake the first words of it.
BIRTH_GRACE = 0.5
# Reading smaps_rollup takes ten milliseconds for a fork of a large template; trials of a search are much alike, and a
# trial's memory changes little once it trains.
MEMORY_PERIOD, MEASURED_AT_ONCE = 30.0, 2
# The scheduler is told anew when what it knows of a job is off by so much: some hundred times of one that runs a day.
NEWS = 0.01
# Ray's memory monitor ends workers at 95 %, agents and schedulers among the first: a trial has to go before that.
MEMORY_LIMIT = 0.9

_NOT_FORKED = "Trials are fresh processes, which start slowly, and not forks of a warm one: "
_TEMPLATE_ENDED = "the template process of this search ended"


class TrialHost:
    """`quantum` None tunes it to the measured cost of a switch."""

    def __init__(
        self, node: NodeId, notify: Callable[[Sequence[Event]], None], quantum: float | None, nvml: Nvml | None
    ) -> None:
        self._node = node
        self._notify = notify
        self._nvml = nvml
        self._trials: dict[JobId, Trial] = {}
        self._templates: dict[MultiJobId, Template] = {}
        self._outboxes: dict[MultiJobId, Outbox] = {}
        self._turns = Turns(quantum, self._trials.__getitem__, self._note_force)
        self._listener = Listener(self._greet)
        self._loop = asyncio.get_running_loop()

    async def start(self) -> str:
        """Listen; returns the address for templates and trials."""
        return await self._listener.start()

    def stop(self) -> None:
        """End every process of every trial."""
        for multi_job in list(self._templates):
            self.forget(multi_job)
        self._listener.close()

    def set_inventory(self, inventory: Inventory) -> None:
        self._turns.inventory = dict(inventory)

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
        trial = Trial(order.job, payload, order.assignment, order.until, share=order.share, step=payload.step)
        self._trials[order.job] = trial
        self._turns.place(trial, ready=False)
        template = trial.template = self._template(payload.multi_job)
        if template.broken:
            self._refuse(trial, template.broken)
        elif template.ready:
            self._fork(template, trial)
        else:
            template.waiting.append(trial)

    def _refuse(self, trial: Trial, error: str) -> None:
        self._fail(trial, Outcome.FAILED, error.strip().splitlines()[-1], error)
        del self._trials[trial.job]

    def _fork(self, template: Template, trial: Trial) -> None:
        hardware = self._turns.hardware(trial.assignment.devices)
        trial.where = Where.BORN
        trial.pinned = hardware.cores
        message = LaunchMessage(
            job=trial.job,
            trial=trial.payload.trial,
            config=base64.b64encode(trial.payload.config).decode(),
            path=trial.payload.path,
            until=trial.until,
            seed=trial.payload.seed,
            cores=hardware.cores,
            gpus=hardware.gpus or None,
            threads=trial.payload.threads,
            step=trial.payload.step,
            checkpoint=trial.payload.checkpoint,
        )
        send(template.writer, {"op": "launch", **dataclasses.asdict(message)})

    def _assign(self, order: Assign) -> None:
        trial = self._trials.get(order.job)
        if trial is None or not trial.at_home:
            return
        trial.assignment = order.assignment
        trial.set_until(order.until)
        goes_on = trial.parked and trial.may_go_on
        trial.parked = trial.parked and not goes_on
        self._turns.place(trial, ready=goes_on)

    def _stop(self, order: Stop) -> None:
        trial = self._trials.get(order.job)
        if trial is None or trial.stop is not None or trial.where is Where.OVER:
            return
        trial.stop = order
        if trial.where is Where.UNBORN:
            assert trial.template is not None
            trial.template.waiting.remove(trial)
            self._end(trial, Outcome.NEVER_STARTED, order.why)
            del self._trials[trial.job]
        elif trial.where is Where.WAITING:
            self._tell_stop(trial)
        elif trial.where is Where.FROZEN:
            self._leave_home(trial)
            self._unwind(trial)
        elif trial.where is Where.TURN:
            self._unwind(trial)

    def _tell_stop(self, trial: Trial) -> None:
        """It waits, so it will unwind without a turn."""
        self._leave_home(trial)
        trial.say({"op": "stop"})
        self._escalate(trial)

    def _unwind(self, trial: Trial) -> None:
        """It is between two boundaries, and may have been stopped there by force."""
        trial.request(STOP)
        trial.thaw()
        self._escalate(trial)

    def _escalate(self, trial: Trial) -> None:
        """End by force what does not end by itself."""

        def terminate() -> None:
            if self._trials.get(trial.job) is trial:
                processes.end_softly(trial.pid)
                self._loop.call_later(TERM_GRACE, kill)

        def kill() -> None:
            if self._trials.get(trial.job) is trial:
                processes.end_at_once(trial.pid)

        self._loop.call_later(STOP_GRACE, terminate)

    # --- what processes say

    def _greet(self, hello: Message, pid: int, writer: asyncio.StreamWriter) -> Talk:
        if hello["role"] == "template":
            template = self._template(hello["multi_job"])
            if template.writer is not None:  # the end of the one before it is still to be heard
                template.writer.close()
                self._lose_template(template)
                template = self._template(hello["multi_job"])
            template.writer = writer
            return Talk(lambda m: self._hear_template(template, m), lambda: self._lose_template(template))
        trial = self._trials.get(hello["job"])
        if trial is None:
            raise ConnectionAbortedError(f"job {hello['job']} is over")
        trial.connect(pid, open_page(pid, hello["page"]), writer)
        return Talk(lambda m: self._hear_trial(trial, m), lambda: self._lose_trial(trial))

    def _hear_template(self, template: Template, message: Message) -> None:
        match message["op"]:
            case "ready":
                template.ready = True
                if message["why"]:
                    self._tell_driver(template.multi_job, Noticed(_NOT_FORKED + message["why"]))
                for trial in template.take_waiting():
                    self._fork(template, trial)
            case "broken":
                template.broken = template.broken or message["error"]
                for trial in template.take_waiting():
                    self._refuse(trial, template.broken)
            case "exited":
                if (ended := self._trials.get(message["job"])) is not None:
                    ended.exit_code = message["code"]
                    if ended.where is Where.BORN:
                        self._loop.call_later(BIRTH_GRACE, self._bury, ended)
                    else:
                        self._bury(ended)

    def _lose_template(self, template: Template) -> None:
        """Its trials die with it; what they still had to say comes over their own connections."""
        template.ready, template.lost, template.writer = False, True, None
        if not template.broken and self._templates.get(template.multi_job) is template:
            del self._templates[template.multi_job]
        for trial in self._of(template.multi_job):
            self._bury(trial)

    def _hear_trial(self, trial: Trial, message: Message) -> None:
        if trial.where is Where.OVER:
            return
        match message["op"]:
            case "report":
                self._reported(trial, message)
            case "resumed":
                self._turns.began(trial)
            case "suspended":
                self._give_up(trial, ready=True)
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

    def _reported(self, trial: Trial, message: Message) -> None:
        of, trial.step = trial.payload, message["step"]
        received = self._device_seconds(trial)
        report = TrialReported(of.trial, trial.step, message["metrics"], received, message["checkpoint"], of.attempt)
        self._tell_driver(of.multi_job, report, urgent=not trial.may_go_on)

    def _started(self, trial: Trial) -> None:
        trial.where = Where.WAITING
        self._notify([JobStarted(0.0, trial.job)])
        of = trial.payload
        self._tell_driver(
            of.multi_job, TrialStarted(of.trial, self._node, trial.pid, of.path, of.attempt), urgent=False
        )
        if trial.stop is not None:
            self._tell_stop(trial)
        else:
            self._turns.ready(trial)

    def _park(self, trial: Trial, step: int) -> None:
        trial.step = step
        trial.parked = not trial.may_go_on  # a promotion may have crossed the message
        self._give_up(trial, ready=not trial.parked)
        if trial.parked and trial.stop is None:
            self._notify([JobParked(0.0, trial.job, step)])

    def _give_up(self, trial: Trial, *, ready: bool) -> None:
        """It waits now, and its devices are free."""
        frozen, trial.where = trial.where is Where.FROZEN, Where.WAITING
        if trial.stop is not None:
            self._tell_stop(trial)
        elif frozen:  # somebody else let it go on, or its last word was late
            trial.thaw(waits=True)
        else:
            self._turns.ended(trial, ready=ready)

    def _note_force(self, trial: Trial, waited: float) -> None:
        if not trial.noted:
            trial.noted = True
            news = f"Trial {trial.payload.trial} has not reached a boundary for {waited:.0f} s"
            self._tell_driver(trial.payload.multi_job, Noticed(f"{news}: its turns are taken by force until it does"))

    # --- ends

    def _lose_trial(self, trial: Trial) -> None:
        trial.disconnect()
        processes.end_at_once(trial.pid)  # and what it started, which the template would see to if it is there
        self._bury(trial)

    def _bury(self, trial: Trial) -> None:
        """Once a process has ended and all it said was heard: say how, if it did not say so itself, and forget it."""
        if self._trials.get(trial.job) is not trial or not trial.heard_out:
            return
        abandoned = trial.template is not None and trial.template.lost
        if trial.exit_code is None and not abandoned:
            return
        if trial.where is not Where.OVER:
            if trial.stop is not None:  # it was ended by force
                self._end(trial, trial.stop.outcome, trial.stop.why)
            elif trial.exit_code is None:
                self._fail(trial, Outcome.LOST, _TEMPLATE_ENDED)
            else:
                self._fail(trial, Outcome.FAILED, _exit_reason(trial.exit_code))
        del self._trials[trial.job]

    def _end(self, trial: Trial, outcome: Outcome, reason: str) -> None:
        self._close(trial, outcome, reason, "")
        self._notify([JobEnded(0.0, trial.job, outcome, reason)])

    def _fail(self, trial: Trial, outcome: Outcome, reason: str, error: str = "") -> None:
        self._close(trial, outcome, reason, error)
        self._notify([JobFailed(0.0, trial.job, outcome, reason)])

    def _close(self, trial: Trial, outcome: Outcome, reason: str, error: str) -> None:
        trial.where = Where.OVER
        trial.thaw()
        self._leave_home(trial)
        of = trial.payload
        self._tell_driver(of.multi_job, TrialEnded(of.trial, outcome, reason, error, of.attempt))
        if trial.pid:
            self._escalate(trial)

    def _leave_home(self, trial: Trial) -> None:
        if trial.at_home:
            self._account(trial)
            trial.at_home = False
            self._turns.remove(trial)

    def relieve(self, memory_used: float) -> None:
        """End the largest trial where the node's memory, of which this part is used, is about to run out."""
        here = [trial for trial in self._trials.values() if trial.pid and trial.where is not Where.OVER]
        if memory_used < MEMORY_LIMIT or not here:
            return
        sizes = {trial.job: processes.private_bytes(trial.pid) for trial in here}
        largest = max(here, key=lambda trial: sizes[trial.job])
        processes.end_at_once(largest.pid)
        reason = f"out of memory: {memory_used:.0%} of the node's was used, {sizes[largest.job] / 2**20:.0f} MiB by it"
        self._fail(largest, Outcome.FAILED, reason)

    # --- accounts

    def progress(self) -> None:
        """Tell the scheduler what jobs have received and hold, where that is news to it, and tune the quantum."""
        self._measure()
        for trial in self._trials.values():
            if _differs(self._device_seconds(trial), trial.received) or _differs(trial.private_bytes, trial.told_bytes):
                self._account(trial)
        self._turns.tune()

    def _measure(self) -> None:
        """The memory of a few trials that wait between two turns, those first that were measured longest ago."""
        now = self._loop.time()
        still = (
            t for t in self._trials.values() if t.where in (Where.WAITING, Where.FROZEN) and self._device_seconds(t) > 0
        )
        due = (trial for trial in still if now - trial.measured_at > MEMORY_PERIOD)
        for trial in heapq.nsmallest(MEASURED_AT_ONCE, due, key=lambda trial: trial.measured_at):
            trial.measured_at = now
            trial.private_bytes = self._private_bytes(trial)

    def _account(self, trial: Trial) -> None:
        received = self._device_seconds(trial)
        if received > trial.received:
            since = received - trial.received
            trial.received, trial.told_bytes = received, trial.private_bytes
            self._notify([JobProgressed(0.0, trial.job, since, trial.step, trial.private_bytes)])

    def _device_seconds(self, trial: Trial) -> float:
        return self._turns.device_seconds(trial) if trial.at_home else trial.received

    def _private_bytes(self, trial: Trial) -> int:
        gpus = self._turns.hardware(trial.assignment.devices).gpus
        return gpu_process_bytes(self._nvml, gpus, trial.pid) if gpus else processes.private_bytes(trial.pid)

    def view(self) -> list[DeviceView]:
        """What the devices do, in their order."""
        inventory = self._turns.inventory
        running: dict[Device, list[str]] = {device: [] for device in inventory}
        at_home = dict.fromkeys(inventory, 0)
        for job, devices in self._turns.running().items():
            for device in devices:
                running[device].append(self._trials[job].payload.trial)
        for trial in self._trials.values():
            for device in trial.assignment.devices if trial.at_home else ():
                at_home[device] += 1
        return [
            DeviceView(inventory[device].name, tuple(running[device]), at_home[device]) for device in sorted(inventory)
        ]

    # --- drivers

    async def take(self, multi_job: MultiJobId, confirmed: int, timeout: float) -> Batch:
        return await self._outboxes.setdefault(multi_job, Outbox()).take(confirmed, timeout)

    def forget(self, multi_job: MultiJobId) -> None:
        """The driver of a multi-job is done, or gone: nothing of it is left here."""
        for trial in self._of(multi_job):
            if trial.pid:
                processes.end_at_once(trial.pid)
            if trial.where is not Where.OVER:
                outcome = trial.stop.outcome if trial.stop is not None else Outcome.STOPPED
                self._end(trial, outcome, "its search is over")
            del self._trials[trial.job]
        template = self._templates.pop(multi_job, None)
        if template is not None and template.writer is not None:
            template.writer.close()  # a template without an agent ends its children and itself
        self._outboxes.pop(multi_job, None)

    def _of(self, multi_job: MultiJobId) -> list[Trial]:
        return [trial for trial in self._trials.values() if trial.payload.multi_job == multi_job]

    def _template(self, multi_job: MultiJobId) -> Template:
        return self._templates.setdefault(multi_job, Template(multi_job))

    def _tell_driver(self, multi_job: MultiJobId, event: TrialEvent, *, urgent: bool = True) -> None:
        self._outboxes.setdefault(multi_job, Outbox()).put(event, urgent=urgent)


def _differs(amount: float, known: float) -> bool:
    return abs(amount - known) > NEWS * known


def _exit_reason(code: int) -> str:
    if code < 0:
        return f"its process was killed by signal {-code} ({signal.Signals(-code).name})"
    return f"its process exited with code {code} without a word"
