"""Short ways to make nodes, jobs and states, and a world that carries out decisions in a random order."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from gandiva_ray.core.decisions import Assign, Decision, Launch, Stop
from gandiva_ray.core.events import (
    Event,
    JobEnded,
    JobFailed,
    JobParked,
    JobProgressed,
    JobPromoted,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    StopRequested,
    TimerFired,
    WeightChanged,
)
from gandiva_ray.core.model import Device, Job, JobId, JobSpec, Node, NodeId, Outcome, Status
from gandiva_ray.core.plan import Policy, reconcile
from gandiva_ray.core.scheduler import Scheduler
from gandiva_ray.core.state import ClusterState, ClusterView, Fact

GIB = 2**30


def make_node(name: NodeId = "n", devices: int = 2, *, rehomes: bool = False, free_bytes: int = 1000 * GIB) -> Node:
    return Node(name, tuple(Device(name, index) for index in range(devices)), free_bytes, rehomes)


def submitted(job: JobId, devices: int = 1, *, at: float = 0.0, multi_job: str = "m", weight: float = 1.0,
              exclusive: bool = False, until: int | None = None, share: float = 1.0) -> JobSubmitted:  # fmt: skip
    return JobSubmitted(at, JobSpec(job, multi_job, devices, weight, exclusive, until, share))


def joined(name: NodeId = "n", devices: int = 2, *, rehomes: bool = False, free_bytes: int = 1000 * GIB) -> NodeJoined:
    return NodeJoined(0.0, make_node(name, devices, rehomes=rehomes, free_bytes=free_bytes))


def progressed(job: JobId, private_bytes: int = 0, *, device_seconds: float = 0.0, step: int = 0) -> JobProgressed:
    return JobProgressed(0.0, job, device_seconds, step, private_bytes)


def state_of(*facts: Fact) -> ClusterState:
    state = ClusterState()
    for fact in facts:
        state.apply(fact)
    return state


def scheduler_of(policy: Policy, *events: Event) -> Scheduler:
    """A scheduler to which these have happened, each on its own, and whose launched jobs have all started."""
    scheduler = Scheduler(policy)
    for event in events:
        scheduler.handle(event)
    start_all(scheduler)
    return scheduler


def start_all(scheduler: Scheduler) -> None:
    while launching := [job for job in scheduler.state.placed if job.status is Status.LAUNCHING]:
        scheduler.handle(*(JobStarted(scheduler.state.now, job.id) for job in launching))


def homes(scheduler: Scheduler) -> dict[JobId, tuple[int, ...]]:
    """The indexes of the devices where each placed job lives."""
    return {job.id: tuple(device.index for device in job.home) for job in scheduler.state.placed}


def weights(scheduler: Scheduler) -> dict[JobId, float]:
    return {job.id: job.assignment.weight for job in scheduler.state.placed if job.assignment is not None}


def turn_takers(state: ClusterView, device: Device) -> list[Job]:
    """The jobs that take turns on a device, or would if the node carried out everything at once."""
    active = (Status.LAUNCHING, Status.RUNNING)
    return [job for job in state.jobs_on(device) if job.status in active and job.assignment and job.assignment.weight]


def snapshot(state: ClusterView) -> object:
    """Everything that a state shows, to compare."""
    on = {device: state.jobs_on(device) for node in state.nodes.values() for device in node.devices}
    at = {node: state.jobs_at(node) for node in state.nodes}
    return state.now, dict(state.nodes), dict(state.jobs), state.queued, state.placed, state.unsettled, on, at


@dataclass
class Process:
    """A job as its node sees it: `length` reports long, now after report `step`."""

    launch: Launch
    length: int
    private_bytes: int
    until: int | None
    weight: float
    step: int = 0
    parked: bool = False

    def obey(self, decision: Assign) -> None:
        self.until, self.weight = decision.until, decision.assignment.weight
        self.parked = self.parked and self.at_milestone

    @property
    def at_milestone(self) -> bool:
        return self.until is not None and self.step >= self.until


@dataclass
class World:
    """Nodes, processes and a wire: orders and news of one job stay in order, those of different jobs overtake.

    After each call of the scheduler it is checked that what has been ordered is sound.
    """

    policy: Policy
    chance: random.Random
    scheduler: Scheduler = field(init=False)
    now: float = 0.0
    moves: int = 0
    submissions: int = 0
    history: list[tuple[tuple[Event, ...], list[Decision]]] = field(default_factory=list)
    processes: dict[JobId, Process] = field(default_factory=dict)
    orders: dict[JobId, deque[Decision]] = field(default_factory=dict)
    news: dict[JobId, deque[Event]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.policy)

    @property
    def state(self) -> ClusterView:
        return self.scheduler.state

    # --- the scheduler's side

    def tell(self, *events: Event) -> None:
        """Give the scheduler some news at once, check its answer, and put its orders on the wire."""
        self.now += self.chance.random()
        events = tuple(replace(event, at=self.now) for event in events)
        before = {job.id: job.home for job in self.state.placed}
        decisions = self.scheduler.handle(*events)
        self.history.append((events, decisions))
        self._check(decisions, before)
        for decision in decisions:
            self.orders.setdefault(decision.job, deque()).append(decision)

    def _check(self, decisions: list[Decision], before: dict[JobId, tuple[Device, ...]]) -> None:
        order = [(Stop, Assign, Launch).index(type(decision)) for decision in decisions]
        assert order == sorted(order), "devices are given up before they are given"
        assert len({decision.job for decision in decisions}) == len(decisions), "one order a job"
        assigned = {decision.job for decision in decisions if isinstance(decision, Assign)}
        for job in self.state.placed:
            assert len(job.home) == job.spec.num_devices, "a gang is whole"
            assert len({device.node for device in job.home}) == 1, "a gang is on one node"
            if job.id in before and before[job.id] != job.home:
                assert job.id in assigned, "a job moves by an order alone"
                assert self.state.nodes[job.home[0].node].rehomes, "a job moves where moving is free"
                self.moves += 1
        for node in self.state.nodes.values():
            for device in node.devices:
                self._check_device(device)
        assert reconcile(self.state, self.policy.plan(self.state)) == [], "nothing is left to order"

    def _check_device(self, device: Device) -> None:
        holders = [job for job in self.state.jobs_on(device) if job.assignment and job.assignment.exclusive]
        takers = turn_takers(self.state, device)
        assert len({job.assignment.pack or job.id for job in holders}) <= 1, f"{holders} are all exclusive on {device}"
        assert not holders or set(takers) <= set(holders), f"{takers} take turns on {device}, which {holders} holds"
        for pack in {job.assignment.pack for job in takers}:
            packed = [job.spec.share for job in takers if job.assignment.pack == pack]
            assert (max(packed) < 1) == (pack is not None), "who asks for a share of a device is packed, nobody else"
            assert pack is None or sum(packed) < 1.000001, f"shares of {packed} do not fit at once"

    # --- the nodes' side

    def deliver_order(self, job: JobId) -> None:
        decision = self.orders[job].popleft()
        if not self.orders[job]:
            del self.orders[job]
        process = self.processes.get(job)
        match decision:
            case Launch() if decision.assignment.node in self.state.nodes:
                length, size = self.chance.randint(1, 12), self.chance.randint(1, 3) * GIB
                self.processes[job] = Process(decision, length, size, decision.until, decision.assignment.weight)
                self.send(JobStarted(0.0, job))
            case Assign() if process is not None:
                process.obey(decision)
                self._park_at_milestone(job, process)
            case Stop() if process is not None:
                del self.processes[job]
                self.send(JobEnded(0.0, job, decision.outcome, decision.why))

    def run(self, job: JobId) -> None:
        """One mini-batch and a report, if the job takes turns."""
        process = self.processes[job]
        if process.parked or not process.weight:
            return
        process.step += 1
        self.send(progressed(job, process.private_bytes, device_seconds=1.0, step=process.step))
        if process.step >= process.length:
            del self.processes[job]
            self.send(JobEnded(0.0, job, Outcome.COMPLETED, "returned"))
        else:
            self._park_at_milestone(job, process)

    def _park_at_milestone(self, job: JobId, process: Process) -> None:
        if process.at_milestone and not process.parked and process.step > 0:
            process.parked = True
            self.send(JobParked(0.0, job, process.step))

    def fail(self, job: JobId) -> None:
        del self.processes[job]
        self.send(JobFailed(0.0, job, Outcome.FAILED, "raised"))

    def lose(self, node: NodeId) -> None:
        self.processes = {j: p for j, p in self.processes.items() if p.launch.assignment.node != node}
        self.tell(NodeLost(0.0, node))

    def send(self, event: JobStarted | JobProgressed | JobParked | JobEnded | JobFailed) -> None:
        self.news.setdefault(event.job, deque()).append(event)

    def deliver_news(self, most: int) -> None:
        """Some of the news that wait, of jobs at random, told at once."""
        events: list[Event] = []
        while self.news and len(events) < most:
            job = self.chance.choice(list(self.news))
            events.append(self.news[job].popleft())
            if not self.news[job]:
                del self.news[job]
        self.tell(*events)

    # --- what people, searches and bad luck do

    def disturb(self) -> None:
        """Something happens."""
        happenings = 3 * [self._submit, self._promote, self._reweigh] + [self._stop, self._node, self._nothing]
        wire = [self._deliver_order, self._deliver_news, self._run]
        self.chance.choice(happenings + 8 * wire)()

    def settle(self) -> None:
        """Nothing bad happens any more; every job is to end. Raises AssertionError if one does not."""
        self.tell(joined("last", 4))
        for _ in range(20 * (self.submissions + 5)):
            for job in self._in_order(self.orders):
                while job in self.orders:
                    self.deliver_order(job)
            for job in self._in_order(self.processes):
                self.run(job)
            self.deliver_news(1000)
            wishes: list[Event] = []
            for job in self.state.jobs.values():
                if job.status is Status.PARKED:
                    wishes.append(JobPromoted(0.0, job.id, None))
                if job.weight == 0:
                    wishes.append(WeightChanged(0.0, job.id, 1.0, job.exclusive))
            self.tell(*wishes)
            if all(job.status is Status.ENDED for job in self.state.jobs.values()):
                return
        left = [f"{job.id} is {job.status.value}" for job in self.state.jobs.values() if job.status is not Status.ENDED]
        raise AssertionError(f"{left}; {dict(self.scheduler.plan.why)}")

    def _in_order(self, jobs: dict[JobId, object]) -> Iterator[JobId]:
        yield from self.chance.sample(list(jobs), len(jobs))

    def _submit(self) -> None:
        self.submissions += 1
        devices = self.chance.choice([1, 1, 1, 2, 4])
        self.tell(
            submitted(
                f"{self.submissions:03d}",
                devices,
                share=self.chance.choice([1.0, 0.5, 0.3, 0.1]) if devices == 1 else 1.0,
                multi_job=self.chance.choice("xy"),
                weight=self.chance.choice([1.0, 1.0, 0.1, 3.0, 0.0]),
                exclusive=self.chance.random() < 0.2,
                until=self.chance.choice([None, 1, 3]),
            )
        )

    def _some_job(self) -> JobId | None:
        """One that was ever submitted: news may be late."""
        return f"{self.chance.randint(1, self.submissions):03d}" if self.submissions else None

    def _promote(self) -> None:
        parked = [job for job in self.state.placed if job.status is Status.PARKED]
        chosen = self.chance.sample(parked, min(len(parked), 3)) or [*self.state.placed[:1]]
        self.tell(
            *(JobPromoted(0.0, job.id, self.chance.choice([None, job.step + 1, max(job.step, 1)])) for job in chosen)
        )

    def _reweigh(self) -> None:
        if (job := self._some_job()) is not None:
            weight, exclusive = self.chance.choice([0.0, 0.1, 0.2, 1.0, 5.0]), self.chance.random() < 0.3
            self.tell(WeightChanged(0.0, job, weight, exclusive))

    def _stop(self) -> None:
        if (job := self._some_job()) is not None:
            self.tell(StopRequested(0.0, job, Outcome.STOPPED, "given up"))

    def _node(self) -> None:
        name = self.chance.choice("abc")
        if name in self.state.nodes and self.chance.random() < 0.3:
            self.lose(name)
            return
        rehomes = name != "c"
        known = len(self.state.nodes[name].devices) if name in self.state.nodes else 0
        free_bytes = self.chance.choice([3, 10, 1000]) * GIB
        self.tell(joined(name, known + self.chance.randint(1, 3), rehomes=rehomes, free_bytes=free_bytes))

    def _nothing(self) -> None:
        self.tell(TimerFired(0.0))

    def _deliver_order(self) -> None:
        if self.orders:
            self.deliver_order(self.chance.choice(list(self.orders)))

    def _deliver_news(self) -> None:
        self.deliver_news(self.chance.randint(1, 5))

    def _run(self) -> None:
        if self.processes:
            job = self.chance.choice(list(self.processes))
            if self.chance.random() < 0.03:
                self.fail(job)
            else:
                self.run(job)


def random_world(policy: Policy, seed: int, happenings: int = 150) -> World:
    """A world in which much has happened."""
    world = World(policy, random.Random(seed))
    for _ in range(happenings):
        world.disturb()
    return world
