"""Which jobs of a device run there at the same moment: those whose shares fit together."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from gandiva_ray.core.model import Job, JobId

_ROUNDING = 1e-9  # ten shares of 0.1 fit


def fits(share: float, taken: float) -> bool:
    """Whether a share of a device is left beside those that are taken."""
    return taken + share <= 1 + _ROUNDING


def pack_by_shares(jobs: Iterable[Job]) -> dict[JobId, str]:
    """The pack of each of the jobs that are at home on one device; those that ask for all of it are in none.

    First fit, in order of submission, into as few packs as that gives; but who shares a pack already stays with it,
    unless its pack as a whole fits into another one.
    """
    packs: dict[str, list[Job]] = {}
    homeless: list[Job] = []
    for job in sorted((job for job in jobs if job.spec.share < 1), key=lambda job: job.order):
        kept = job.assignment.pack if job.assignment is not None else None
        if kept is not None and fits(job.spec.share, _taken(packs.get(kept, ()))):
            packs.setdefault(kept, []).append(job)
        else:
            homeless.append(job)
    for job in homeless:
        _put([job], packs)
    for name in sorted(packs, key=lambda name: _taken(packs[name])):
        _put(packs.pop(name), packs, name)
    return {job.id: name for name, members in packs.items() for job in members}


def _put(jobs: list[Job], packs: dict[str, list[Job]], own: str = "") -> None:
    """Into the first pack with room for all of them, or into one of their own."""
    share = _taken(jobs)
    name = next((name for name, members in packs.items() if fits(share, _taken(members))), own)
    name = name or next(str(number) for number in itertools.count() if str(number) not in packs)
    packs.setdefault(name, []).extend(jobs)


def _taken(jobs: Iterable[Job]) -> float:
    return sum(job.spec.share for job in jobs)
