"""The cluster as a plan would leave it: what a policy starts from, changes, and turns into a plan."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from gandiva_ray.core.model import Assignment, Device, Job, JobId, Kind, Node, Status
from gandiva_ray.core.plan import Plan
from gandiva_ray.core.state import ClusterView
from gandiva_ray.policies.packing import fits, pack_by_shares

RESIDENT_SHARE = 0.8
"""The part of a node's free memory that resident jobs may fill."""
RESIDENTS_PER_DEVICE = 256
"""Parked jobs fill memory, but no such place: a search may wait for the jobs that come after them."""
ASSUMED_PRIVATE_BYTES = 64 * 2**20
"""The size of a job where none has been measured."""

_HELD = "held"  # those that hold shares of a device fit together in any case

Devices = tuple[Device, ...]


class NodeLayout:
    """One node. A job that wants turns there holds its devices alone, or shares them, or is set aside with weight 0."""

    def __init__(self, node: Node, alone: Callable[[Job], bool]) -> None:
        self.node = node
        self._alone = alone
        self.affinity = 0
        """Gang size of the first of the jobs at home here; 0 where there is none (Gandiva, Algorithm 1)."""
        self.load: dict[Device, float] = dict.fromkeys(node.devices, 0.0)
        """What the jobs that share a device weigh there: the sum of their weights times their shares of it."""
        self.homes: dict[JobId, Devices] = {}
        self.holding: dict[JobId, Job] = {}
        self.sharing: dict[JobId, Job] = {}
        self.leaving: dict[JobId, Job] = {}
        """Jobs that were told to stop, and may still be in a turn."""
        self._weights: dict[Device, dict[JobId, float]] = {device: {} for device in node.devices}
        self._shares: dict[Device, float] = dict.fromkeys(node.devices, 0.0)  # of those that share the device
        self._held: dict[Device, float] = dict.fromkeys(node.devices, 0.0)  # the shares held
        self._residents: dict[Device, int] = dict.fromkeys(node.devices, 0)
        self._resident_bytes = 0.0

    # --- residency

    def admit(self, job: Job, home: Devices, private_bytes: float) -> None:
        """Count a job that is, or will be, resident here."""
        self.affinity = self.affinity or job.spec.num_devices
        self._resident_bytes += private_bytes
        self._move(job, home)

    def has_room(self, gang: int, private_bytes: float) -> bool:
        """Whether one more job may be resident. Memory never refuses the first: it would wait for ever."""
        if sum(count < RESIDENTS_PER_DEVICE for count in self._residents.values()) < gang:
            return False
        return not self.homes or self._resident_bytes + private_bytes <= RESIDENT_SHARE * self.node.free_bytes

    # --- devices

    def is_open(self, job: Job, devices: Devices) -> bool:
        """Whether no one who holds these devices is in the job's way."""
        needed = job.spec.share if self._alone(job) else 1.0
        return all(fits(needed, self._held[device]) for device in devices)

    def open_devices(self, job: Job) -> list[Device]:
        """Where a job might go: nobody who holds them is in its way, and they are not full of residents."""
        home = self.homes.get(job.id, ())
        return [
            device
            for device in self.node.devices
            if self.is_open(job, (device,)) and (device in home or self._residents[device] < RESIDENTS_PER_DEVICE)
        ]

    def num_free(self, job: Job) -> int:
        """On how many devices the job could run now, beside those that want turns there."""
        return sum(fits(job.spec.share, self._shares[device]) for device in self.open_devices(job))

    @property
    def mean_load(self) -> float:
        """Gandiva's M/N, with weights."""
        held = (min(share, 1.0) for share in self._held.values())
        return (math.fsum(self.load.values()) + math.fsum(held)) / len(self.node.devices)

    def least_loaded(self, job: Job) -> Devices | None:
        """The best devices for a gang, or None. What it weighs itself is not counted; at par it stays at home."""
        home = self.homes.get(job.id, ())

        def rank(device: Device) -> tuple[float, float, bool, int]:
            held = self._held[device]  # beside holders the tightest fit, so that larger shares find a place later
            return self._load_without(job, device), 1 - held if held else 0.0, device not in home, device.index

        best = sorted(self.open_devices(job), key=rank)[: job.spec.num_devices]
        if len(best) < job.spec.num_devices:
            return None
        return home if set(best) == set(home) else tuple(sorted(best))

    def devices_for(self, job: Job) -> Devices | None:
        """Where a job that lives here could hold devices alone: at home, or elsewhere if the node re-homes."""
        if self.node.rehomes:
            return self.least_loaded(job)
        return self.homes[job.id] if self.is_open(job, self.homes[job.id]) else None

    # --- who takes turns

    def hold(self, job: Job, devices: Devices) -> None:
        """Give it these devices alone. Those that share them go elsewhere on the node, or are set aside."""
        self._move(job, devices)
        self.holding[job.id] = job
        self.reserve(devices, job.spec.share)

    def reserve(self, devices: Iterable[Device], share: float) -> None:
        """Let nobody else have that share of these devices."""
        for device in devices:
            self._held[device] += share
        for job in list(self.sharing.values()):
            if not self.is_open(job, self.homes[job.id]):
                self._unshare(job)
                self.seat(job)

    def seat(self, job: Job) -> None:
        """Let a job that lives here share: at home if nobody holds it, else where the node re-homes it, else not."""
        if self.is_open(job, self.homes[job.id]):
            self.share(job, self.homes[job.id])
        elif self.node.rehomes and (devices := self.least_loaded(job)) is not None:
            self.share(job, devices)

    def share(self, job: Job, devices: Devices) -> None:
        """Let it take turns on these devices with others."""
        self._move(job, devices)
        self.sharing[job.id] = job
        for device in devices:
            self._weights[device][job.id] = _pull(job)
            self._weigh(device)

    def balance(self) -> None:
        """Move jobs until no move would lower the load of the busiest device that the moved job is on.

        So no device idles while another has two jobs, and with equal weights their numbers differ by one at most. Each
        move lowers the sum of the squared loads, so it ends; then nothing is left to move until something changes.
        """
        while (move := self._best_move()) is not None:
            job, devices = move
            self._unshare(job)
            self.share(job, devices)

    def packs(self) -> dict[JobId, str]:
        """The pack of each job that asks for a share of its device, with those that run beside it."""
        at: dict[Device, list[Job]] = {}
        for job in (*self.sharing.values(), *self.leaving.values()):
            if job.spec.share < 1:
                at.setdefault(self.homes[job.id][0], []).append(job)
        packs = {job: pack for jobs in at.values() for job, pack in pack_by_shares(jobs).items()}
        return packs | {job.id: _HELD for job in self.holding.values() if job.spec.share < 1}

    def _best_move(self) -> tuple[Job, Devices] | None:
        """Off the busiest device that can be relieved, the move that evens loads most; at par the latest comer's."""
        least = min((load for device, load in self.load.items() if not self._held[device]), default=0.0)
        busiest = {
            job.id: max((self.load[device], device) for device in self.homes[job.id]) for job in self.sharing.values()
        }
        movable = [job for job in self.sharing.values() if _less(least + _pull(job), busiest[job.id][0])]
        best: tuple[float, Job, Devices] | None = None
        for job in sorted(movable, key=lambda job: (busiest[job.id], job.order), reverse=True):
            if best is not None and busiest[job.id] != busiest[best[1].id]:
                break
            devices = self.least_loaded(job)
            if devices is None:
                continue
            there = max(self._load_without(job, device) + _pull(job) for device in devices)
            left = max(self._load_without(job, device) for device in self.homes[job.id])
            if _less(there, busiest[job.id][0]) and (best is None or max(there, left) < best[0]):
                best = max(there, left), job, devices
        return None if best is None else best[1:]

    def _unshare(self, job: Job) -> None:
        del self.sharing[job.id]
        for device in self.homes[job.id]:
            del self._weights[device][job.id]
            self._weigh(device)

    def _weigh(self, device: Device) -> None:
        # fsum is exact: the load does not depend on the order in which jobs came, so equal loads compare as equal.
        self.load[device] = math.fsum(self._weights[device].values())
        self._shares[device] = math.fsum(self.sharing[job].spec.share for job in self._weights[device])

    def _load_without(self, job: Job, device: Device) -> float:
        if job.id not in self._weights[device]:
            return self.load[device]
        return math.fsum(weight for other, weight in self._weights[device].items() if other != job.id)

    def _move(self, job: Job, devices: Devices) -> None:
        if job.status is not Status.PARKED:
            for device in self.homes.get(job.id, ()):
                self._residents[device] -= 1
            for device in devices:
                self._residents[device] += 1
        self.homes[job.id] = devices


class Layout:
    """All the nodes, with the placed jobs as they are now, and the jobs that still have to be decided on.

    `alone` says which jobs hold their devices alone. `claimants` are those of them that want turns and live somewhere
    without holding their devices yet, in order of submission.
    """

    def __init__(
        self, state: ClusterView, alone: Callable[[Job], bool], assumed_private_bytes: int = ASSUMED_PRIVATE_BYTES
    ) -> None:
        self.nodes = {node.id: NodeLayout(node, alone) for node in state.nodes.values()}
        self.claimants: list[Job] = []
        self.why: dict[JobId, str] = {}
        self._state = state
        self._alone = alone
        self._assumed_private_bytes = assumed_private_bytes
        self._launched: list[tuple[Job, NodeLayout]] = []
        self._seat_placed()
        self._queues = self._placeable()

    @property
    def queue(self) -> Iterator[Job]:
        """The queued jobs that some node is large enough for, in order of submission; none that is `put_off`."""
        heads = [(jobs[0].order, 0, kind) for kind, jobs in self._queues.items()]
        heapq.heapify(heads)
        while heads:
            _, index, kind = heapq.heappop(heads)
            if kind in self._queues:
                yield self._queues[kind][index]
                jobs = self._queues.get(kind, ())
                if len(jobs) > index + 1:
                    heapq.heappush(heads, (jobs[index + 1].order, index + 1, kind))

    def put_off(self, job: Job, why: str) -> None:
        """There is no room for this queued job now, nor for those behind it that ask for the same."""
        del self._queues[job.kind]
        self.why[job.id] = why

    def node_of(self, job: Job) -> NodeLayout:
        """Where a placed job lives."""
        return self.nodes[job.home[0].node]

    def with_room(self, job: Job) -> list[NodeLayout]:
        """The nodes where a queued job may become resident."""
        size = self._private_bytes(job)
        return [node for node in self.nodes.values() if node.has_room(job.spec.num_devices, size)]

    def launch(self, job: Job, node: NodeLayout, why: str) -> None:
        """Give a queued job its home, on a node with enough open devices."""
        devices = node.least_loaded(job)
        assert devices is not None, f"node {node.node.id!r} has no {job.spec.num_devices} open devices"
        node.admit(job, devices, self._private_bytes(job))
        if self._alone(job):
            node.hold(job, devices)
        else:
            node.share(job, devices)
        self._launched.append((job, node))
        self.why[job.id] = why

    def plan(self) -> Plan:
        """The plan that leads here from the present: it names the jobs that change."""
        packs = {job: pack for node in self.nodes.values() for job, pack in node.packs().items()}
        assignments: dict[JobId, Assignment] = {}
        for job in self._state.placed:
            if job.stopping:
                continue
            wished = _assignment(job, self.node_of(job), packs)
            if wished != job.assignment:
                assignments[job.id] = wished
                self.why[job.id] = _reason(job, wished)
        assignments |= {job.id: _assignment(job, node, packs) for job, node in self._launched}
        return Plan(assignments, why=self.why)

    def _seat_placed(self) -> None:
        sharers: list[Job] = []
        for job in self._state.placed:
            node = self.node_of(job)
            node.admit(job, job.home, self._private_bytes(job))
            holds = job.assignment is not None and job.assignment.exclusive
            if not job.wants_turns:
                if job.stopping and holds:
                    node.reserve(job.home, job.spec.share)
                elif job.stopping:
                    node.leaving[job.id] = job
            elif not self._alone(job):
                sharers.append(job)
            elif holds:
                node.hold(job, job.home)
            else:
                self.claimants.append(job)
        self.claimants.sort(key=lambda job: job.order)
        # Those that can stay at home first, so that the others see the true loads.
        for job in sorted(sharers, key=lambda job: not self.node_of(job).is_open(job, job.home)):
            self.node_of(job).seat(job)

    def _placeable(self) -> dict[Kind, Sequence[Job]]:
        largest = max((len(node.node.devices) for node in self.nodes.values()), default=0)
        placeable: dict[Kind, Sequence[Job]] = {}
        for kind, jobs in self._state.queues.items():
            first = jobs[0]
            if first.spec.num_devices > largest:
                self.why[first.id] = (
                    f"needs {first.spec.num_devices} devices on one node; the largest node has {largest}"
                )
            elif first.weight == 0:
                self.why[first.id] = "has weight 0, so it would get no turns"
            else:
                placeable[kind] = jobs
        return placeable

    def _private_bytes(self, job: Job) -> float:
        mean = self._state.mean_private_bytes(job.spec.multi_job)
        return job.private_bytes or (self._assumed_private_bytes if mean is None else mean)


def _assignment(job: Job, node: NodeLayout, packs: Mapping[JobId, str]) -> Assignment:
    home = node.homes[job.id]
    if job.id in node.holding or job.id in node.sharing:
        return Assignment(home, job.weight, job.id in node.holding, packs.get(job.id))
    if job.status is Status.PARKED and job.assignment is not None and not job.assignment.exclusive:
        return job.assignment  # it takes no turns whatever its weight is; its promotion will say more
    return Assignment(home, 0.0)


def _reason(job: Job, wished: Assignment) -> str:
    """Why a placed job changes."""
    if not job.wants_turns:
        return "gives its devices up, for it wants no turns now"
    if wished.weight == 0:
        return "is set aside, for its devices are held by an exclusive job"
    if wished.exclusive and job.assignment is not None and not job.assignment.exclusive:
        return "gets devices of its own"
    if wished.devices != job.home:
        return "moves to the least loaded devices"
    if job.assignment is not None and wished.pack != job.assignment.pack:
        return "runs beside others whose shares fit"
    return f"takes turns with weight {wished.weight:g}"


def _pull(job: Job) -> float:
    """What a job that takes turns weighs on each of its devices."""
    return job.weight * job.spec.share


def _less(a: float, b: float) -> bool:
    """Whether it is less by more than rounding."""
    return a < b * (1 - 1e-9)
