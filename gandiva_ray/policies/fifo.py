"""First in, first out: what a plain cluster does."""

from __future__ import annotations

from dataclasses import dataclass

from gandiva_ray.core.plan import Plan
from gandiva_ray.core.state import ClusterView
from gandiva_ray.policies.placement import Layout


@dataclass(frozen=True, slots=True)
class Fifo:
    """Run to completion in order of submission, with head-of-line blocking; nobody else runs on a running job's share.

    A parked job gives its devices up, or a search that compares parked trials would wait for ever. Promoted, it waits
    for devices ahead of all that queue.
    """

    def plan(self, state: ClusterView) -> Plan:
        layout = Layout(state, alone=lambda job: True)
        for job in layout.claimants:
            node = layout.node_of(job)
            devices = node.devices_for(job)
            if devices is not None:
                node.hold(job, devices)
            else:
                node.reserve(job.home, job.spec.share)
        for job in layout.queue:
            roomy = layout.with_room(job)
            free = {node: node.num_free(job) for node in roomy}
            free = {node: number for node, number in free.items() if number >= job.spec.num_devices}
            if not free:
                layout.why[job.id] = "is next, and waits for devices" if roomy else "is next, and waits for memory"
                break
            layout.launch(job, min(free, key=free.__getitem__), "its turn in order of submission")
        return layout.plan()
