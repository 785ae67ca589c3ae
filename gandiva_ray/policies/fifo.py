"""First in, first out: what a plain cluster does."""

from __future__ import annotations

from dataclasses import dataclass

from gandiva_ray.core.plan import Plan
from gandiva_ray.core.state import ClusterView
from gandiva_ray.policies.placement import Layout


@dataclass(frozen=True, slots=True)
class Fifo:
    """Run to completion in order of submission, one running job a device, with head-of-line blocking.

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
                node.reserve(job.home)
        for job in layout.queue:
            roomy = layout.with_room(job)
            free = [node for node in roomy if node.num_free >= job.spec.num_devices]
            if not free:
                layout.why[job.id] = "is next, and waits for devices" if roomy else "is next, and waits for memory"
                break
            layout.launch(job, min(free, key=lambda node: node.num_free), "its turn in order of submission")
        return layout.plan()
