"""A scheduler that is killed: Ray restarts it, it goes on from its journal, and nobody notices but by what is said."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from ray.cluster_utils import Cluster

import gandiva_ray as tune
from gandiva_ray.core.model import Outcome
from gandiva_ray.journal import Journal
from gandiva_ray.run_log import read_log
from gandiva_ray.runtime.actors import NAMESPACE
from tests.runtime import trainables
from tests.runtime.cluster_state import eventually, our_actors, our_groups, scheduler_status, workers

RESTARTED = "The cluster's scheduler died and was restarted"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes of one CPU each."""
    tune.shutdown()
    with pytest.MonkeyPatch.context() as patch:
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        patch.setenv("RAY_ADDRESS", cluster.address)
        yield cluster
        tune.shutdown()
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(autouse=True)
def scheduler(cluster: Cluster) -> Iterator[None]:
    """A new one for each test: it counts its deaths."""
    tune.init()
    eventually(lambda: len(scheduler_status()["nodes"]) == 2, 30, "both nodes' devices are there")
    yield
    assert scheduler_status()["multi_jobs"] == {}
    assert len(our_groups()) == 2
    end_for_good()


def end_for_good() -> None:
    ray.kill(ray.get_actor("scheduler", NAMESPACE))
    eventually(lambda: not our_actors() and not our_groups(), 30, "no actor and no group of ours is left")


def tuner(trainable: Any, tmp_path: Path, space: dict[str, Any], **tune_config: Any) -> tune.Tuner:
    return tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(**{"metric": "value", "mode": "max", **tune_config}),
        run_config=tune.RunConfig(name="run", storage_path=tmp_path, verbose=0),
    )


def kill_scheduler() -> None:
    """And wait until it is there again."""
    (process,) = workers("SchedulerActor")
    process.kill()
    process.wait()
    scheduler_status()


def while_it_runs(tmp_path: Path, strike: Callable[[], None]) -> threading.Thread:
    """Strike once a trial has reported."""

    def run() -> None:
        eventually(lambda: any(line["what"] == "report" for line in log(tmp_path)), 60, "a trial reports")
        strike()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def log(tmp_path: Path) -> list[dict[str, Any]]:
    return list(read_log(tmp_path / "run")) if (tmp_path / "run" / "log.jsonl").exists() else []


def reports(tmp_path: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for line in log(tmp_path):
        if line["what"] == "report":
            found.setdefault(line["trial"], []).append(line["step"])
    return found


def test_a_search_goes_on_and_its_trials_do_not_notice(tmp_path: Path) -> None:
    def strike() -> None:
        for _ in range(3):
            kill_scheduler()
            time.sleep(0.3)

    thread = while_it_runs(tmp_path, strike)
    results = tuner(trainables.count, tmp_path, {"steps": 200, "seconds": 0.01}, num_samples=4).fit()
    thread.join()
    assert results.counts == {Outcome.COMPLETED: 4}
    assert reports(tmp_path) == {result.trial_id: list(range(1, 201)) for result in results}
    lines = log(tmp_path)
    assert len([line for line in lines if line["what"] == "started"]) == 4, "no trial was begun twice"
    assert not [line for line in lines if line["what"] == "retry"]
    assert len([line for line in lines if RESTARTED in str(line)]) == 3


def test_rungs_are_filled_and_promoted_as_if_nothing_had_happened(tmp_path: Path) -> None:
    def search(folder: Path) -> dict[str, int]:
        space = {"x": tune.uniform(0, 1), "seconds": 0.02}
        searcher = tune.SuccessiveHalving(max_t=27)
        results = tuner(trainables.count, folder, space, num_samples=27, metric="x", searcher=searcher, seed=1).fit()
        return {result.trial_id: result.steps for result in results}

    undisturbed = search(tmp_path / "undisturbed")
    thread = while_it_runs(tmp_path / "struck", kill_scheduler)
    struck = search(tmp_path / "struck")
    thread.join()
    assert struck == undisturbed
    assert max(struck.values()) == 27
    assert any(RESTARTED in str(line) for line in log(tmp_path / "struck"))


def test_the_journal_goes_on_where_it_was(tmp_path: Path) -> None:
    thread = while_it_runs(tmp_path, kill_scheduler)
    tuner(trainables.count, tmp_path, {"steps": 100, "seconds": 0.01}, num_samples=2).fit()
    thread.join()
    path = scheduler_status()["journal"]
    with Journal.open(path) as journal:
        entries = list(journal)
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    jobs = [event.spec.id for entry in entries for event in entry.events if type(event).__name__ == "JobSubmitted"]
    assert len(jobs) == len(set(jobs))


@pytest.mark.slow
def test_an_agent_and_a_node_that_die_with_the_scheduler_are_noticed(cluster: Cluster, tmp_path: Path) -> None:
    third = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    eventually(lambda: len(scheduler_status()["nodes"]) == 3, 30, "the third node's device is there")
    (raylet,) = [info.process for info in third.all_processes["raylet"]]

    def strike() -> None:
        here = {view.node for view in scheduler_status()["nodes"]}
        (scheduler,) = workers("SchedulerActor")
        scheduler.suspend()
        raylet.kill()
        raylet.wait()
        next(agent for agent in workers("NodeAgent") if agent.ppid() != raylet.pid).kill()
        scheduler.kill()
        eventually(lambda: len(scheduler_status()["nodes"]) == 2, 60, "the agent's node is taken again")
        assert {view.node for view in scheduler_status()["nodes"]} < here

    thread = while_it_runs(tmp_path, strike)
    space = {"steps": 300, "seconds": 0.01}
    results = tuner(trainables.count, tmp_path, space, num_samples=6, searcher=tune.RandomSearch()).fit()
    thread.join()
    assert results.counts == {Outcome.COMPLETED: 6}
    assert reports(tmp_path) == {result.trial_id: list(range(1, 301)) for result in results}
    retries = [line["trial"] for line in log(tmp_path) if line["what"] == "retry"]
    assert retries
    cluster.remove_node(third)


@pytest.mark.slow
def test_a_search_whose_driver_died_with_the_scheduler_is_closed(cluster: Cluster, tmp_path: Path) -> None:
    script = f"""
import gandiva_ray as tune
from tests.runtime import trainables
tune.Tuner(trainables.count, run_config=tune.RunConfig(name="run", storage_path={str(tmp_path)!r}, verbose=0),
    tune_config=tune.TuneConfig("value", "max", num_samples=2), param_space={{"seconds": 0.01}}).fit()
"""
    driver = subprocess.Popen([sys.executable, "-c", script])
    try:
        eventually(lambda: any(line["what"] == "report" for line in log(tmp_path)), 60, "a trial reports")
        pids = [line["pid"] for line in log(tmp_path) if line["what"] == "started"]
        (scheduler,) = workers("SchedulerActor")
        scheduler.suspend()
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        scheduler.kill()
    finally:
        driver.kill()
        driver.wait()
    eventually(lambda: scheduler_status()["multi_jobs"] == {}, 30, "the search is closed")
    eventually(lambda: not any(map(psutil.pid_exists, pids)), 10, "its trials are gone")


def test_a_scheduler_that_is_gone_for_good_ends_the_search_and_leaves_nothing(tmp_path: Path) -> None:
    thread = while_it_runs(tmp_path, end_for_good)
    with pytest.raises(RuntimeError, match="the cluster's scheduler died"):
        tuner(trainables.count, tmp_path, {"seconds": 0.01}, num_samples=2).fit()
    thread.join()
    results = tuner(trainables.count, tmp_path / "again", {"steps": 3}, num_samples=2).fit()
    assert results.counts == {Outcome.COMPLETED: 2}
    eventually(lambda: len(scheduler_status()["nodes"]) == 2, 30, "a new one has both nodes")


@pytest.mark.slow
def test_one_that_dies_again_and_again_is_given_up(tmp_path: Path) -> None:
    def strike() -> None:
        def kill() -> bool:
            for process in workers("SchedulerActor"):
                process.kill()
            return not our_actors() and not our_groups()

        eventually(kill, 60, "no actor and no group of ours is left")

    thread = while_it_runs(tmp_path, strike)
    with pytest.raises(RuntimeError, match="the cluster's scheduler died"):
        tuner(trainables.count, tmp_path, {"seconds": 0.01}, num_samples=2).fit()
    thread.join()
    results = tuner(trainables.count, tmp_path / "again", {"steps": 3}, num_samples=2).fit()
    assert results.counts == {Outcome.COMPLETED: 2}
    eventually(lambda: len(scheduler_status()["nodes"]) == 2, 30, "a new one has both nodes")
