"""A driver that is killed leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import ray

import gandiva_ray as tune
from gandiva_ray.run_log import read_log
from tests.runtime.cluster_state import eventually, our_actors, our_groups, scheduler_status

DRIVER = """
import sys
import gandiva_ray as tune
from tests.runtime import trainables

# Time-sliced, all of them for as long as it takes: the first rung is far away.
tune.Tuner(
    trainables.count,
    param_space={"x": tune.uniform(0, 1)},
    tune_config=tune.TuneConfig(
        metric="value", mode="max", num_samples=6, searcher=tune.ASHA(max_t=10**6, grace_period=10**5)
    ),
    run_config=tune.RunConfig(storage_path=sys.argv[1], verbose=0),
).fit()
"""


HANGING_DRIVER = """
import sys
import gandiva_ray as tune
from tests.runtime import trainables

tune.Tuner(
    trainables.hang,
    param_space={"how": "loop"},
    tune_config=tune.TuneConfig(metric="value", mode="max", num_samples=2),
    run_config=tune.RunConfig(name="run", storage_path=sys.argv[1], verbose=0),
).fit()
print("fit() returned")
"""


def start_driver(
    storage: Path, environment: dict[str, str], code: str = DRIVER, stdout: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, str(storage)], env=environment, stdout=stdout)


def trials_of(storage: Path) -> list[psutil.Process]:
    """The trials' processes: they work in their folders. The template of theirs is their parent."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(storage) in process.cwd():
                found.append(process)
        except psutil.Error:
            continue
    return found


def all_report(storage: Path) -> bool:
    return len(trials_of(storage)) == 6 and any(storage.glob("*/log.jsonl"))


def gone(processes: list[psutil.Process]) -> bool:
    return not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)


@pytest.mark.usefixtures("joined_cluster")
def test_after_kill_9_of_a_driver_its_trials_die_and_its_search_is_closed(tmp_path: Path) -> None:
    driver = start_driver(tmp_path, dict(os.environ))
    eventually(lambda: all_report(tmp_path), 60, "all trials run")
    trials = trials_of(tmp_path)
    templates = list({trial.parent() for trial in trials} - {None})
    assert len(our_groups()) == 2
    driver.kill()
    driver.wait()
    eventually(lambda: gone([*trials, *templates]), 3, "trials and template are gone")
    eventually(lambda: scheduler_status()["multi_jobs"] == {}, 15, "its search is closed")
    eventually(lambda: not our_actors() and not our_groups(), 30, "no actor and no group of ours is left")
    eventually(lambda: ray.available_resources().get("CPU") == 2, 10, "both CPUs are free")


@pytest.mark.slow
@pytest.mark.usefixtures("joined_cluster")
def test_other_drivers_do_not_notice(tmp_path: Path) -> None:
    victim = start_driver(tmp_path / "victim", dict(os.environ))
    other = start_driver(tmp_path / "other", dict(os.environ))
    try:
        eventually(lambda: all_report(tmp_path / "victim") and all_report(tmp_path / "other"), 90, "all trials run")
        victim.kill()
        victim.wait()
        eventually(lambda: not trials_of(tmp_path / "victim"), 3, "its trials are gone")
        time.sleep(2)
        assert len(trials_of(tmp_path / "other")) == 6
        assert other.poll() is None
    finally:
        other.send_signal(signal.SIGINT)
        assert other.wait(30) == 0
    assert not trials_of(tmp_path / "other")


@pytest.mark.slow
def test_after_kill_9_of_a_driver_with_a_ray_of_its_own_its_trials_die_too(tmp_path: Path) -> None:
    tune.shutdown()
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    driver = start_driver(tmp_path, environment)
    eventually(lambda: all_report(tmp_path), 60, "all trials run")
    trials = trials_of(tmp_path)
    templates = list({trial.parent() for trial in trials} - {None})
    rays = psutil.Process(driver.pid).children(recursive=True)
    driver.kill()
    driver.wait()
    eventually(lambda: gone([*trials, *templates]), 3, "trials and template are gone")
    for process in rays:  # Ray's own need up to two minutes to notice
        with suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.mark.parametrize(("signals", "code"), [((signal.SIGINT, signal.SIGINT), 130), ((signal.SIGTERM,), 143)])
def test_a_driver_that_is_told_to_leave_does_so_soon_and_leaves_nothing(
    tmp_path: Path, signals: tuple[signal.Signals, ...], code: int
) -> None:
    """Its trials are in endless loops."""
    tune.shutdown()
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    driver = start_driver(tmp_path, environment, HANGING_DRIVER, subprocess.PIPE)
    log = tmp_path / "run" / "log.jsonl"
    eventually(lambda: log.exists() and '"report"' in log.read_text(), 60, "a trial reports")
    below = psutil.Process(driver.pid).children(recursive=True)
    assert below
    for number in signals:
        driver.send_signal(number)
        time.sleep(0.3)
    out, _ = driver.communicate(timeout=20)
    assert (driver.returncode, out) == (code, b"")
    eventually(lambda: gone(below), 30, "all of its processes are gone")
    last = list(read_log(tmp_path / "run"))[-1]
    assert (last["what"] == "closed") == (signals == (signal.SIGTERM,))
