"""Gandiva (OSDI'18), reactive mode: place on arrival, over-subscribe by slicing time, queue as the last resort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gandiva_ray.core.model import Job
from gandiva_ray.core.plan import Plan
from gandiva_ray.core.state import ClusterView
from gandiva_ray.policies.placement import ASSUMED_PRIVATE_BYTES, Layout, NodeLayout


@dataclass(frozen=True, slots=True)
class Gandiva:
    """Every job runs at once, in turns by weight; an exclusive job has devices of its own while it wants turns.

    A job queues only where memory holds no more residents, where exclusive jobs hold the devices, or where no node is
    large enough. Where nodes re-home, no device idles while another has two jobs.
    `assumed_private_bytes` is the size of a job as long as none has been measured.
    """

    assumed_private_bytes: int = ASSUMED_PRIVATE_BYTES

    def plan(self, state: ClusterView) -> Plan:
        layout = Layout(state, lambda job: job.exclusive, self.assumed_private_bytes)
        for job in layout.claimants:
            node = layout.node_of(job)
            devices = node.devices_for(job)
            if devices is not None:
                node.hold(job, devices)
        _place_queued(layout)
        for node in layout.nodes.values():
            if node.node.rehomes:
                node.balance()
        return layout.plan()


def _place_queued(layout: Layout) -> None:
    exclusive_waits = False
    for job in layout.queue:
        gang = job.spec.num_devices
        roomy = layout.with_room(job)
        if not roomy:
            layout.why[job.id] = "is next, and waits for memory"
            return
        open_nodes = [node for node in roomy if len(node.open_devices(job)) >= gang]
        if not open_nodes or (job.exclusive and exclusive_waits):
            layout.put_off(job, "waits for devices that exclusive jobs hold")
            exclusive_waits = exclusive_waits or job.exclusive
            continue
        node, why = algorithm_1(open_nodes, job)
        layout.launch(job, node, why)


def algorithm_1(nodes: Sequence[NodeLayout], job: Job) -> tuple[NodeLayout, str]:
    """The node for a job, out of some that are large enough for its gang, and why (Gandiva, Algorithm 1: getNodes).

    As a server's height is M/N rounded up, the paper's `height < 1` would mean an empty server; what is meant is
    M/N < 1, free devices. Where no server of this affinity is there the paper queues; here any is over-subscribed.
    """
    gang = job.spec.num_devices
    by_load = sorted(nodes, key=lambda node: (node.num_free(job) < gang, node.mean_load))
    same = [node for node in by_load if node.affinity == gang]
    if same and same[0].num_free(job) >= gang:
        return same[0], "free devices where gangs of its size live"
    empty = [node for node in by_load if node.affinity == 0]
    if empty:
        return empty[0], "a node without jobs"
    if by_load[0].num_free(job) >= gang:
        return by_load[0], "free devices where other gangs live"
    if same:
        return same[0], "no free devices; gangs of its size live there"
    return by_load[0], "no free devices; the least load"
