"""The agent's machinery on one node, with real templates and trials, and no Ray."""

import asyncio
import os
import pickle
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest

from gandiva_ray.core.decisions import Assign, Launch, Stop
from gandiva_ray.core.events import Event, JobEnded, JobFailed, JobParked, JobProgressed, JobStarted
from gandiva_ray.core.model import Assignment, Device, Outcome
from gandiva_ray.core.search import Noticed, TrialEnded, TrialEvent, TrialReported, TrialStarted
from gandiva_ray.runtime import listener, processes, trial_host, turns
from gandiva_ray.runtime.devices import Hardware
from gandiva_ray.runtime.messages import Payload
from gandiva_ray.runtime.trial_host import TrialHost
from gandiva_ray.trial.protocol import Environment, Page, TemplateArguments
from gandiva_ray.trial.zygote import Zygote
from tests.runtime import trainables
from tests.tiny_disk import tiny_disk

CORES = sorted(os.sched_getaffinity(0))[:2]
ONE, TWO = Device("here", 0), Device("here", 1)
PATIENCE = 30.0


@dataclass
class Bench:
    """A TrialHost with two CPU devices, a template, and all that it said."""

    host: TrialHost
    folder: Path
    facts: list[Event]
    zygote: Zygote
    told: list[TrialEvent] = field(default_factory=list)
    confirmed: int = 0

    def launch(
        self, *jobs: str, on: Device = ONE, until: int | None = None, weight: float = 1.0, **config: Any
    ) -> None:
        for job in jobs:
            payload = Payload("search", job, pickle.dumps(config), str(self.folder / job), seed=0)
            self.host.carry_out(Launch(job, Assignment((on,), weight), until, "test"), payload)

    def assign(self, job: str, on: Device = ONE, until: int | None = None, weight: float = 1.0) -> None:
        self.host.carry_out(Assign(job, Assignment((on,), weight), until, "test"))

    def stop(self, job: str) -> None:
        self.host.carry_out(Stop(job, "here", Outcome.STOPPED, "enough"))

    async def until(self, true: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < deadline, (
                f"waited in vain until {what}; heard {self.told[-5:]}, {self.facts[-5:]}"
            )
            batch = await self.host.take("search", self.confirmed, 0.05)
            self.confirmed = batch.last
            self.told += batch.events

    def steps(self, trial: str) -> int:
        return max((e.step for e in self.told if isinstance(e, TrialReported) and e.trial == trial), default=0)

    def ends(self, trial: str) -> list[TrialEnded]:
        return [e for e in self.told if isinstance(e, TrialEnded) and e.trial == trial]

    @property
    def notices(self) -> list[str]:
        return [e.text for e in self.told if isinstance(e, Noticed)]

    def started(self, trial: str) -> bool:
        return any(isinstance(e, TrialStarted) and e.trial == trial for e in self.told)

    @property
    def template(self) -> int:
        (template,) = psutil.Process(self.zygote.process.pid).children()
        return template.pid

    def pid(self, trial: str) -> int:
        (pid,) = [e.pid for e in self.told if isinstance(e, TrialStarted) and e.trial == trial]
        return pid

    def seconds(self, job: str) -> float:
        return sum(f.device_seconds for f in self.facts if isinstance(f, JobProgressed) and f.job == job)


ENVIRONMENT = Environment(tuple(sys.path), os.getcwd())
zygotes: list[Zygote] = []


@pytest.fixture(scope="module", autouse=True)
def zygote() -> Iterator[None]:
    """One for all, as the searches of a driver have."""
    zygotes.append(Zygote(ENVIRONMENT))
    yield
    zygote = zygotes.pop()
    zygote.hang_up()
    zygote.process.wait(10)


@asynccontextmanager
async def bench(folder: Path, trainable: Any = trainables.count, quantum: float | None = 0.05) -> AsyncIterator[Bench]:
    facts: list[Event] = []

    def notify(news: Sequence[Event]) -> None:
        facts.extend(news)

    host = TrialHost("here", notify, quantum, None)
    address = await host.start()
    host.set_inventory({ONE: Hardware(cores=(CORES[0],)), TWO: Hardware(cores=(CORES[-1],))})
    pickled = trainable if isinstance(trainable, bytes) else cloudpickle.dumps(trainable)
    (zygote,) = zygotes
    zygote.open(TemplateArguments(address, "search", pickled, ENVIRONMENT))
    try:
        yield Bench(host, folder, facts, zygote)
    finally:
        children = psutil.Process(zygote.process.pid).children(recursive=True)
        host.stop()
        zygote.close("search")
        _, alive = await asyncio.to_thread(psutil.wait_procs, children, 10)
        assert not alive


def run(scenario: Any) -> None:
    asyncio.run(asyncio.wait_for(scenario, 120))


def test_trials_of_one_device_take_turns_and_get_their_weights_part(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path) as b:
            b.launch("heavy", weight=3.0)
            b.launch("light", weight=1.0)
            await b.until(lambda: b.steps("heavy") > 0 and b.steps("light") > 0, "both report")
            b.host.progress()
            heavy, light = b.seconds("heavy"), b.seconds("light")
            await asyncio.sleep(4)
            b.host.progress()
            ratio = (b.seconds("heavy") - heavy) / (b.seconds("light") - light)
            assert 2.5 < ratio < 3.5
            assert [f.job for f in b.facts if isinstance(f, JobStarted)] == ["heavy", "light"]

    run(scenario())


def test_a_job_is_pinned_to_its_new_home(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path) as b:
            b.launch("a", "b")
            await b.until(lambda: b.steps("a") > 0 and b.steps("b") > 0, "both report")
            assert os.sched_getaffinity(b.pid("b")) == {CORES[0]}
            b.assign("b", on=TWO)
            await b.until(lambda: os.sched_getaffinity(b.pid("b")) == {CORES[-1]}, "b is on the other core")
            assert {view.name: view.at_home for view in b.host.view()} == {f"cpu {core}": 1 for core in CORES}

    run(scenario())


def test_a_trial_parks_at_its_milestone_and_goes_on_when_promoted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path) as b:
            b.launch("a", until=3)
            await b.until(lambda: any(isinstance(f, JobParked) for f in b.facts), "it parks")
            assert b.steps("a") == 3
            b.assign("a", until=5)
            await b.until(lambda: sum(isinstance(f, JobParked) for f in b.facts) == 2, "it parks again")
            assert b.steps("a") == 5
            b.assign("a", until=None)
            await b.until(lambda: b.steps("a") > 8, "it runs on")

    run(scenario())


def test_a_trial_is_stopped_while_it_has_a_turn_while_it_waits_and_while_it_is_parked(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, quantum=30.0) as b:
            b.launch("running")
            await b.until(lambda: b.steps("running") > 0, "it runs")
            b.launch("waiting")
            await b.until(lambda: b.started("waiting"), "the other waits")
            assert b.host.view()[0].running == ("running",)
            b.launch("parked", on=TWO, until=1)
            await b.until(lambda: any(isinstance(f, JobParked) for f in b.facts), "the third parks")
            for job in ("waiting", "parked", "running"):
                b.stop(job)
            await b.until(lambda: all(b.ends(j) for j in ("waiting", "parked", "running")), "all ended")
            for job in ("waiting", "parked", "running"):
                assert b.ends(job) == [TrialEnded(job, Outcome.STOPPED, "enough")]
            ended = [f for f in b.facts if isinstance(f, JobEnded)]
            assert sorted(f.job for f in ended) == ["parked", "running", "waiting"]
            assert b.steps("waiting") == 0

    run(scenario())


def test_a_trial_stopped_before_its_template_is_ready_never_started(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path) as b:
            b.launch("early", "other")
            b.stop("early")
            await b.until(lambda: b.steps("other") > 0, "the other runs")
            assert b.ends("early") == [TrialEnded("early", Outcome.NEVER_STARTED, "enough")]
            assert not (tmp_path / "early").exists()

    run(scenario())


def test_a_trial_that_is_killed_fails_alone_and_says_by_what(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path) as b:
            b.launch("victim", "other")
            await b.until(lambda: b.steps("victim") > 0 and b.steps("other") > 0, "both run")
            os.kill(b.pid("victim"), signal.SIGKILL)
            await b.until(lambda: bool(b.ends("victim")), "it is missed")
            (end,) = b.ends("victim")
            assert (end.outcome, end.reason) == (Outcome.FAILED, "its process was killed by signal 9 (SIGKILL)")
            before = b.steps("other")
            await b.until(lambda: b.steps("other") > before + 20, "the other goes on")

    run(scenario())


def test_a_trial_that_ends_before_its_agent_looks_is_heard_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = trial_host.open_page

    def look_late(pid: int, fd: int) -> Page:
        psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], 10)
        return look(pid, fd)

    monkeypatch.setattr(trial_host, "open_page", look_late)

    async def scenario() -> None:
        async with bench(tmp_path) as b:
            (tmp_path / "hasty").write_text("a file where its folder is to be")
            b.launch("hasty")
            await b.until(lambda: bool(b.ends("hasty")), "it is missed")
            (end,) = b.ends("hasty")
            assert end.outcome is Outcome.FAILED
            assert end.reason.startswith("OSError: the trial's folder cannot be written on this node ([Errno 17]")

    run(scenario())


def test_a_trial_that_never_comes_to_a_boundary_is_stopped_by_force(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(trial_host, "STOP_GRACE", 0.2)

    async def scenario() -> None:
        async with bench(tmp_path, trainables.never_at_a_boundary) as b:
            b.launch("deaf")
            await b.until(lambda: b.steps("deaf") == 1, "it reported")
            b.stop("deaf")
            await b.until(lambda: bool(b.ends("deaf")), "it ended")
            assert b.ends("deaf") == [TrialEnded("deaf", Outcome.STOPPED, "enough")]
            await b.until(lambda: not psutil.pid_exists(b.pid("deaf")), "its process is gone")

    run(scenario())


@pytest.fixture
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 0.5)
    monkeypatch.setattr(turns, "QUANTA", 1.0)


def cpu_seconds(pid: int) -> float:
    process = psutil.Process(pid)
    times = [p.cpu_times() for p in (process, *process.children(recursive=True))]
    return sum(t.user + t.system for t in times)


@pytest.mark.usefixtures("little_patience")
@pytest.mark.parametrize("how", ["loop", "pause", "child"])
def test_turns_of_a_trial_that_hangs_are_taken_by_force_and_that_is_said_once(tmp_path: Path, how: str) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, trainables.hang, quantum=0.2) as b:
            b.launch("deaf", how=how)
            b.launch("other", how="loop")
            await b.until(lambda: len(b.notices) == 2, "both were taken by force")
            await asyncio.sleep(2)  # and have had the same
            b.host.progress()
            before = [(b.seconds(job), cpu_seconds(b.pid(job))) for job in ("deaf", "other")]
            await asyncio.sleep(4)
            b.host.progress()
            after = [(b.seconds(job), cpu_seconds(b.pid(job))) for job in ("deaf", "other")]
            turns_of, cpu_of = zip(*[(t - s, d - c) for (s, c), (t, d) in zip(before, after, strict=True)], strict=True)
            assert sum(turns_of) == pytest.approx(4, abs=0.3)
            assert abs(turns_of[0] - turns_of[1]) < 1, "one turn, and the patience that it takes"
            # Each has the core in its own turns alone, whatever it does there.
            assert all(cpu < seconds + 0.3 for cpu, seconds in zip(cpu_of, turns_of, strict=True)), (cpu_of, turns_of)
            assert len(b.notices) == 2
            assert b.notices[0].startswith("Trial ")
            assert b.notices[0].endswith(" s: its turns are taken by force until it does")

    run(scenario())


@pytest.mark.usefixtures("little_patience")
def test_a_trial_whose_turns_are_taken_by_force_is_stopped_wherever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_host, "STOP_GRACE", 0.3)

    async def scenario() -> None:
        async with bench(tmp_path, trainables.hang, quantum=1.0) as b:
            b.launch("a", "b", how="loop")
            await b.until(lambda: len(b.notices) == 2, "both are taken by force")
            (running,) = b.host.view()[0].running
            for job in sorted("ab", key=running.__eq__):  # the one that is frozen first
                b.stop(job)
                await b.until(lambda job=job: bool(b.ends(job)), "it ended")  # type: ignore[misc]
                assert b.ends(job) == [TrialEnded(job, Outcome.STOPPED, "enough")]
            await b.until(lambda: not any(map(psutil.pid_exists, map(b.pid, "ab"))), "their processes are gone")

    run(scenario())


@pytest.mark.usefixtures("little_patience")
def test_a_trial_with_long_mini_batches_is_soon_left_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, trainables.sleep_and_count) as b:
            b.launch("slow", seconds=1.5)
            b.launch("other", seconds=0.01)
            await b.until(lambda: b.steps("slow") == 2, "it comes to boundaries")
            slow = b.host._trials["slow"]
            forced_at = slow.forced_at
            assert forced_at is not None
            await b.until(lambda: b.steps("slow") == 5, "it goes on")
            assert slow.forced_at == forced_at
            assert len(b.notices) == 1

    run(scenario())


@pytest.mark.usefixtures("little_patience")
def test_a_trial_that_somebody_lets_go_on_after_its_turn_was_taken_parks_and_is_promoted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, trainables.hang, quantum=1.0) as b:
            until = tmp_path / "until"
            b.launch("a", how="loop", until=2, file=str(until))
            b.launch("b", how="loop")
            await b.until(lambda: len(b.notices) == 2 and b.host.view()[0].running == ("b",), "a is frozen")
            until.touch()
            os.kill(b.pid("a"), signal.SIGCONT)
            await b.until(lambda: any(isinstance(f, JobParked) for f in b.facts), "it parks")
            assert b.steps("a") == 2
            b.assign("a", until=4)
            await b.until(lambda: sum(isinstance(f, JobParked) for f in b.facts) == 2, "it parks again")
            assert b.steps("a") == 4

    run(scenario())


def test_when_the_template_is_killed_its_trials_are_lost_and_later_ones_have_another(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path) as b:
            b.launch("a", "b")
            await b.until(lambda: b.steps("a") > 0 and b.steps("b") > 0, "both run")
            os.kill(b.template, signal.SIGKILL)
            await b.until(lambda: bool(b.ends("a") and b.ends("b")), "both are missed")
            assert {e.outcome for e in (*b.ends("a"), *b.ends("b"))} == {Outcome.LOST}
            lost = [f for f in b.facts if isinstance(f, JobFailed)]
            assert sorted(f.job for f in lost) == ["a", "b"]
            b.launch("late")
            await b.until(lambda: b.steps("late") > 0, "a later one runs")

    run(scenario())


def test_a_trainable_that_does_not_unpickle_fails_its_trials_with_the_traceback(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, trainable=b"cno_such_module_anywhere\nthing\n.") as b:
            b.launch("a")
            await b.until(lambda: bool(b.ends("a")), "it failed")
            (end,) = b.ends("a")
            assert end.outcome is Outcome.FAILED
            assert end.reason == "ModuleNotFoundError: No module named 'no_such_module_anywhere'"
            assert "Traceback" in end.error

    run(scenario())


def test_nothing_is_left_of_a_forgotten_search(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path) as b:
            b.launch("a", "b", on=ONE)
            b.launch("c", on=TWO, until=1)
            await b.until(lambda: all(b.steps(j) > 0 for j in "abc"), "all run")
            pids, template = [b.pid(j) for j in "abc"], b.template
            b.host.forget("search")
            assert [view.at_home for view in b.host.view()] == [0, 0]
            for pid in (*pids, template):
                with suppress(psutil.NoSuchProcess):
                    await asyncio.to_thread(psutil.Process(pid).wait, 10)

    run(scenario())


def test_what_a_trial_holds_is_measured_once_it_waits(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path) as b:
            b.launch("a", "b")
            await b.until(lambda: b.steps("a") > 20 and b.steps("b") > 20, "both ran")
            b.host.progress()
            measured = [f.private_bytes for f in b.facts if isinstance(f, JobProgressed) and f.private_bytes]
            assert measured
            assert all(2**20 < size < 2**28 for size in measured)

    run(scenario())


def test_the_scheduler_is_told_what_is_news_to_it_and_all_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_host, "NEWS", 0.5)

    async def scenario() -> None:
        async with bench(tmp_path) as b:
            b.launch("a")
            await b.until(lambda: b.steps("a") > 0, "it runs")
            for _ in range(100):
                b.host.progress()
                await asyncio.sleep(0.02)
            told = [f.device_seconds for f in b.facts if isinstance(f, JobProgressed)]
            assert 2 <= len(told) < 20
            assert all(since > 0.5 * sum(told[:count]) for count, since in enumerate(told) if count)
            known = b.seconds("a")
            b.stop("a")
            await b.until(lambda: b.ends("a") != [], "it ends")
            received = max(event.device_seconds for event in b.told if isinstance(event, TrialReported))
            assert b.seconds("a") >= received > known

    run(scenario())


def test_a_process_of_another_user_is_not_listened_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with bench(tmp_path) as b:
            b.launch("a")
            await b.until(lambda: b.steps("a") > 0, "it runs")
            monkeypatch.setattr(listener.os, "geteuid", lambda: 4711)
            b.launch("foreign")
            await asyncio.sleep(1)
            assert b.steps("foreign") == 0
            monkeypatch.undo()

    run(scenario())


def test_the_largest_trial_goes_when_memory_runs_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, trainables.hold) as b:
            b.launch("small", "other", megabytes=1)
            b.launch("large", megabytes=300)
            await b.until(lambda: all(b.steps(j) > 0 for j in ("small", "other", "large")), "all run")
            b.host.relieve(0.5)
            await asyncio.sleep(0.2)
            b.host.relieve(0.95)
            await b.until(lambda: bool(b.ends("large")), "one has to go")
            (end,) = b.ends("large")
            assert end.outcome is Outcome.FAILED
            assert end.reason.startswith("out of memory: 95% of the node's was used, 3")
            assert not b.ends("small")
            assert not b.ends("other")

    run(scenario())


def test_a_trial_that_takes_ever_more_memory_fails_before_the_node_has_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, trainables.grow) as b:
            b.launch("greedy", megabytes=5)
            b.launch("other", megabytes=0)
            await b.until(lambda: bool(b.steps("greedy") and b.steps("other")), "both run")
            node_bytes, used = 300 * 2**20, 0.0

            def relieve() -> bool:
                nonlocal used
                if not b.ends("greedy"):
                    used = sum(map(processes.private_bytes, map(b.pid, ("greedy", "other")))) / node_bytes
                    b.host.relieve(used)
                return bool(b.ends("greedy"))

            await b.until(relieve, "it has to go")
            assert 0.9 <= used < 1.0
            (end,) = b.ends("greedy")
            assert (end.outcome, end.reason[:15]) == (Outcome.FAILED, "out of memory: ")
            before = b.steps("other")
            await b.until(lambda: b.steps("other") > before + 20, "the other goes on")
            steps = [e.step for e in b.told if isinstance(e, TrialReported) and e.trial == "other"]
            assert steps == list(range(1, steps[-1] + 1))

    run(scenario())


def test_a_trial_whose_prints_fill_the_disk_fails_alone_and_says_why(tmp_path: Path) -> None:
    async def scenario() -> None:
        with tiny_disk(tmp_path / "disk") as disk:
            async with bench(disk, trainables.print_a_lot) as b:
                b.launch("other", lines=0)
                b.launch("loud", lines=10_000)
                b.launch("saving", lines=0, checkpoint_bytes=10**6)
                await b.until(lambda: bool(b.ends("loud") and b.ends("saving")), "they fail")
                for job in ("loud", "saving"):
                    assert b.ends(job)[0].outcome is Outcome.FAILED
                    assert "No space left on device" in b.ends(job)[0].reason
                before = b.steps("other")
                await b.until(lambda: b.steps("other") > before + 20, "the other goes on")

    run(scenario())


def test_it_is_said_once_that_trials_are_not_forked(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, trainables.STARTS_A_THREAD) as b:
            b.launch("a", "b", steps=3)
            await b.until(lambda: bool(b.ends("a") and b.ends("b")), "both end")
            notices = [e.text for e in b.told if isinstance(e, Noticed)]
            assert len(notices) == 1
            assert notices[0].startswith("Trials are fresh processes")
            assert (b.steps("a"), b.steps("b")) == (3, 3)

    run(scenario())
