"""What goes wrong in a search on real Ray: it ends whole, and who is not struck does not notice."""

import errno
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import gandiva_ray as tune
from gandiva_ray.core.model import Outcome
from gandiva_ray.run_log import read_log
from tests.runtime import trainables
from tests.runtime.cluster_state import eventually, scheduler_status
from tests.tiny_disk import tiny_disk

pytestmark = pytest.mark.usefixtures("embedded_ray")


def tuner(trainable: Any, tmp_path: Path, space: Mapping[str, Any], **tune_config: Any) -> tune.Tuner:
    settings = {"metric": "value", "mode": "max", **tune_config}
    return tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(**settings),
        run_config=tune.RunConfig(name="run", storage_path=tmp_path, verbose=0),
    )


@pytest.fixture
def warm(embedded_ray: None, tmp_path: Path) -> None:
    """Torch is imported: the budgets below are for what comes after that."""
    assert tuner(trainables.count, tmp_path / "warm", {"steps": 1}).fit().counts == {Outcome.COMPLETED: 1}


def reports(folder: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for line in read_log(folder):
        if line["what"] == "report":
            found.setdefault(line["trial"], []).append(line["step"])
    return found


@pytest.mark.parametrize("victim", ["template", "zygote", "trial actor"])
def test_trials_whose_template_is_killed_are_tried_again_under_a_new_one(tmp_path: Path, victim: str) -> None:
    """Whatever of the three is killed: the template dies with it, and the trials with the template."""
    killed: list[int] = []

    def kill() -> None:
        eventually(lambda: (tmp_path / "run" / "log.jsonl").exists() and bool(reports(tmp_path / "run")), 60, "it runs")
        pid = next(line["pid"] for line in read_log(tmp_path / "run") if line["what"] == "started")
        template, zygote, trial_actor = psutil.Process(pid).parents()[:3]
        assert trial_actor.name().startswith("ray::TrialActor")
        {"template": template, "zygote": zygote, "trial actor": trial_actor}[victim].kill()
        killed.append(pid)

    thread = threading.Thread(target=kill)
    thread.start()
    results = tuner(trainables.count, tmp_path, {"steps": 150}, num_samples=3).fit()
    thread.join()
    assert killed
    assert results.counts == {Outcome.COMPLETED: 3}
    lines = list(read_log(tmp_path / "run"))
    assert {line["reason"] for line in lines if line["what"] == "retry"} == {
        "the template process of this search ended"
    }
    assert reports(tmp_path / "run") == {result.trial_id: list(range(1, 151)) for result in results}
    again = tuner(trainables.count, tmp_path / "again", {"steps": 3}, num_samples=2).fit()
    assert again.counts == {Outcome.COMPLETED: 2}


WAYS_TO_END = {
    "exit 0": "its process exited with code 0 without a word",
    "SystemExit": "it returned",
    "SystemExit 3": "SystemExit: 3 (trainables.py:",
    "a thread": "it returned",
    "closed files": "",
    "no folder": "it returned",
    "kill": "its process was killed by signal 9 (SIGKILL)",
    "segfault": "its process was killed by signal 11 (SIGSEGV)",
    "none": "it returned",
}


def test_a_trial_ends_in_every_way_and_the_others_never_notice(tmp_path: Path) -> None:
    results = tuner(trainables.end_somehow, tmp_path, {"how": tune.grid_search(list(WAYS_TO_END))}).fit()
    ends = {result.config["how"]: result for result in results}
    for how, reason in WAYS_TO_END.items():
        assert ends[how].reason.startswith(reason), how
        expected = Outcome.COMPLETED if reason == "it returned" else Outcome.FAILED
        assert ends[how].outcome is expected, how
        steps = 40 if expected is Outcome.COMPLETED else 5
        assert reports(tmp_path / "run")[ends[how].trial_id] == list(range(1, steps + 1)), how
    assert "Exception in thread" in Path(ends["a thread"].path, "stderr").read_text()
    for how in ("exit 0", "kill", "segfault", "none"):
        assert Path(ends[how].path, "stdout").read_text() == "at work\n"


@pytest.mark.usefixtures("warm")
def test_the_time_budget_is_kept_whatever_the_trials_do(tmp_path: Path) -> None:
    ways = tune.grid_search(["loop", "pause", "catch", "stopped", "child"])
    searcher = tune.ASHA(max_t=10**6, grace_period=10**5)  # all of them take turns
    began = time.monotonic()
    results = tuner(trainables.go_on_for_ever, tmp_path, {"how": ways}, searcher=searcher, time_budget_s=15).fit()
    assert time.monotonic() - began < 15 + 2
    assert results.counts == {Outcome.CUT: 5}
    pids = [line["pid"] for line in read_log(tmp_path / "run") if line["what"] == "started"]
    eventually(lambda: not any(map(psutil.pid_exists, pids)), 10, "the trials are gone")
    assert scheduler_status()["multi_jobs"] == {}


def test_the_time_budget_is_kept_while_the_trainable_is_loading(tmp_path: Path) -> None:
    began = time.monotonic()
    results = tuner(trainables.LOADS_FOR_EVER, tmp_path, {}, num_samples=2, time_budget_s=4).fit()
    assert time.monotonic() - began < 4 + 2
    assert set(results.counts) <= {Outcome.NEVER_STARTED, Outcome.CUT}
    again = tuner(trainables.count, tmp_path / "again", {"steps": 3}, num_samples=2).fit()
    assert again.counts == {Outcome.COMPLETED: 2}


@pytest.mark.usefixtures("warm")
def test_the_time_budget_is_kept_while_the_agent_is_busy(tmp_path: Path) -> None:
    agents: list[psutil.Process] = []

    def hold() -> None:
        eventually(lambda: (tmp_path / "run" / "log.jsonl").exists() and bool(reports(tmp_path / "run")), 60, "it runs")
        agents.extend(p for p in psutil.Process().children(recursive=True) if p.name().startswith("ray::NodeAgent"))
        agents[0].suspend()
        time.sleep(14)
        agents[0].resume()

    thread = threading.Thread(target=hold)
    thread.start()
    began = time.monotonic()
    results = tuner(trainables.count, tmp_path, {}, num_samples=2, time_budget_s=10).fit()
    assert time.monotonic() - began < 10 + 2
    assert results.counts == {Outcome.CUT: 2}
    thread.join()


def test_a_search_whose_log_cannot_be_written_ends_with_one_error_and_can_be_restored(tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk") as disk:
        with pytest.raises(OSError, match=r"No space left on device: the search ends, .*/log.jsonl'") as no:
            tuner(trainables.count, disk, {"steps": 2000, "seconds": 0.001}, num_samples=3).fit()
        assert no.value.errno == errno.ENOSPC
        assert all(steps == list(range(1, len(steps) + 1)) for steps in reports(disk / "run").values())
        pids = [line["pid"] for line in read_log(disk / "run") if line["what"] == "started"]
        eventually(lambda: not any(map(psutil.pid_exists, pids)), 10, "its trials are gone")
        assert scheduler_status()["multi_jobs"] == {}
        subprocess.run(["mount", "-o", "remount,size=20M", str(disk)], check=True)
        results = tune.Tuner.restore(disk / "run", trainables.count).fit()
        assert results.counts == {Outcome.COMPLETED: 3}
        assert reports(disk / "run") == {result.trial_id: list(range(1, 2001)) for result in results}


@pytest.mark.usefixtures("warm")
def test_a_stopped_trial_with_a_handler_of_its_own_is_killed(tmp_path: Path) -> None:
    def deaf(config: Mapping[str, Any]) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        tune.report({"value": 1.0})
        while True:
            with suppress(BaseException):
                time.sleep(1000)

    began = time.monotonic()
    results = tuner(deaf, tmp_path, {}, num_samples=1, time_budget_s=8).fit()
    assert time.monotonic() - began < 8 + 2
    assert results.counts == {Outcome.CUT: 1}
    pids = [line["pid"] for line in read_log(tmp_path / "run") if line["what"] == "started"]
    eventually(lambda: not any(map(psutil.pid_exists, pids)), 10, "it is gone")


def test_a_journal_that_cannot_be_written_is_given_up_and_said(
    tmp_path: Path, journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tiny_disk(tmp_path / "disk") as disk:
        tune.init(devices=2, journal=disk / "journal.sqlite")
        with suppress(OSError), (disk / "ballast").open("wb") as file:
            while True:
                file.write(bytes(512))
        results = tune.Tuner(
            trainables.count,
            param_space={"steps": 20},
            tune_config=tune.TuneConfig("value", "max", num_samples=30),
            run_config=tune.RunConfig(storage_path=tmp_path),
        ).fit()
        assert results.counts == {Outcome.COMPLETED: 30}
        assert "journal.sqlite ends here: it cannot be written (" in capsys.readouterr().out
        tune.init(devices=2, journal=journal.with_stem("after"))
