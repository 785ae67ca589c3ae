"""The open multi-jobs, and that a successor has them again from the notes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from gandiva_ray.core.decisions import Launch, Stop
from gandiva_ray.core.events import JobEnded, NodeLost, StopRequested
from gandiva_ray.core.model import JobId, Outcome
from gandiva_ray.core.scheduler import Scheduler
from gandiva_ray.core.search import TrialEnded
from gandiva_ray.journal import Journal
from gandiva_ray.policies import Gandiva
from gandiva_ray.runtime.messages import Order, Payload
from gandiva_ray.runtime.multi_jobs import MultiJob, MultiJobs, at_stake
from tests.builders import joined, submitted

NAME = "m"  # the builders' multi-job


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.create(tmp_path / "journal", {}) as journal:
        yield journal


def payload(trial: str) -> Payload:
    return Payload(NAME, trial, b"", f"/run/{trial}", seed=0)


def opened(*jobs: JobId) -> MultiJobs:
    multi_jobs = MultiJobs()
    multi_jobs.open(NAME, "process 1 on host")
    assert multi_jobs.update(NAME, 1, {job: payload(job) for job in jobs})
    return multi_jobs


def seen(multi_jobs: MultiJobs) -> dict[str, object]:
    """All that outlives the process."""

    def parts(entry: MultiJob) -> object:
        return entry.driver, entry.updates, entry.jobs, entry.outbox.content

    return {entry.id: parts(entry) for entry in multi_jobs}


def test_a_successor_has_them_as_they_were(journal: Journal) -> None:
    first = opened("a", "b")
    first.tell(first[NAME], TrialEnded("a", Outcome.LOST, "its node"))
    first.open("other", "process 2 on host")
    journal.note(*first.take_notes())
    assert first.take_notes() == ()
    assert seen(MultiJobs.noted_in(journal)) == seen(first)
    second = MultiJobs.noted_in(journal)
    second.tell(second[NAME], TrialEnded("b", Outcome.LOST, "its node"))
    second.close("other")
    journal.note(*second.take_notes())
    assert seen(MultiJobs.noted_in(journal)) == seen(second)
    second.close(NAME)
    journal.note(*second.take_notes())
    assert len(MultiJobs.noted_in(journal)) == 0
    assert not any(journal.notes(kind) for kind in ("driver", "outbox", "payload"))


def test_an_update_that_comes_twice_is_applied_once(journal: Journal) -> None:
    multi_jobs = opened("a")
    assert not multi_jobs.update(NAME, 1, {"a": payload("another")})
    assert multi_jobs[NAME].jobs == {"a": payload("a")}
    journal.note(*multi_jobs.take_notes())
    successor = MultiJobs.noted_in(journal)
    assert not successor.update(NAME, 1, {}), "nor by a successor"
    assert successor.update(NAME, 2, {})


def test_one_that_is_open_already_is_not_begun_anew() -> None:
    multi_jobs = opened("a")
    assert multi_jobs.open(NAME, "process 1 on host").jobs == {"a": payload("a")}
    with pytest.raises(KeyError, match="the multi-job other is not open"):
        multi_jobs["other"]


def scheduler_with(*jobs: JobId) -> tuple[Scheduler, list[object]]:
    scheduler = Scheduler(Gandiva())
    decisions = scheduler.handle(joined(), *(submitted(job) for job in jobs))
    return scheduler, list(decisions)


def test_a_launch_goes_to_its_node_with_its_payload() -> None:
    multi_jobs = opened("a")
    _, (launch,) = scheduler_with("a")
    assert isinstance(launch, Launch)
    stop = Stop("a", "other", Outcome.CUT, "")
    assert multi_jobs.orders([launch, stop]) == {
        launch.node: [Order(launch, payload("a"))],
        "other": [Order(stop, None)],
    }
    multi_jobs.close(NAME)
    assert multi_jobs.orders([launch]) == {launch.node: [Order(launch, None)]}, "its job is over by now"


def test_drivers_are_told_of_ends_that_their_agents_cannot_tell(journal: Journal) -> None:
    multi_jobs = opened("a", "b", "c")
    scheduler, _ = scheduler_with("a", "b", "c")
    for event in (
        JobEnded(1.0, "a", Outcome.COMPLETED, "it returned"),  # by its agent, which tells the driver too
        NodeLost(2.0, "n"),
    ):
        stake = list(at_stake(event, scheduler.state))
        scheduler.handle(event)
        multi_jobs.book([event], stake, scheduler.state)
    entry = multi_jobs[NAME]
    _, told = entry.outbox.content
    assert [(end.trial, end.outcome) for end in told if isinstance(end, TrialEnded)] == [
        ("b", Outcome.LOST),
        ("c", Outcome.LOST),
    ]
    assert entry.jobs == {}
    assert entry.all_ended.is_set()
    journal.note(*multi_jobs.take_notes())
    assert journal.notes("payload") == {}
    assert pickle.loads(journal.notes("outbox")[NAME]) == entry.outbox.content


def test_a_job_that_was_stopped_before_it_was_launched_ends_at_once() -> None:
    multi_jobs = opened("a")
    scheduler = Scheduler(Gandiva())
    scheduler.handle(submitted("a"))  # no node yet
    event = StopRequested(1.0, "a", Outcome.CUT, "time is up")
    stake = list(at_stake(event, scheduler.state))
    scheduler.handle(event)
    multi_jobs.book([event], stake, scheduler.state)
    assert multi_jobs[NAME].outbox.content == (0, (TrialEnded("a", Outcome.NEVER_STARTED, "time is up", attempt=1),))
