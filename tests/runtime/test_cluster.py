"""Searches on real Ray clusters of several nodes, on this machine."""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

import gandiva_ray as tune
from gandiva_ray.core.model import Outcome
from gandiva_ray.run_log import read_log
from tests.runtime import trainables
from tests.runtime.cluster_state import eventually, num_devices, our_actors, our_groups, workers
from tests.runtime.conftest import MakeCluster


def search(trainable: Any, tmp_path: Path, space: dict[str, Any], **tune_config: Any) -> tune.ResultGrid:
    settings = {"metric": "value", "mode": "max", **tune_config}
    return tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(**settings),
        run_config=tune.RunConfig(storage_path=tmp_path, verbose=0),
    ).fit()


def test_trials_run_on_every_node_on_cores_of_their_own(make_cluster: MakeCluster, tmp_path: Path) -> None:
    make_cluster({"num_cpus": 1}, {"num_cpus": 1})
    tune.init()
    eventually(lambda: num_devices() == 2, 30, "both nodes' devices are there")
    results = search(trainables.tell_where, tmp_path, {"x": tune.uniform(0, 1)}, num_samples=8)
    assert results.counts == {Outcome.COMPLETED: 8}
    places = {(result.metrics["node"], tuple(result.metrics["cores"])) for result in results}
    assert len(places) == 2
    cores = [core for _, (core,) in places]
    if len(os.sched_getaffinity(0)) > 1:
        assert cores[0] != cores[1]


def test_gpus_are_made_visible_to_the_trials_that_live_there(make_cluster: MakeCluster, tmp_path: Path) -> None:
    make_cluster({"num_cpus": 2, "num_gpus": 2})
    tune.init()
    eventually(lambda: num_devices() == 2, 30, "the GPUs are devices, the cores are none")
    results = search(trainables.tell_where, tmp_path, {"x": tune.uniform(0, 1)}, num_samples=4)
    assert results.counts == {Outcome.COMPLETED: 4}
    assert {result.metrics["visible"] for result in results} == {"0", "1"}
    gangs = search(tune.with_resources(trainables.tell_where, {"gpu": 2}), tmp_path, {}, num_samples=2)
    assert [result.metrics["visible"] for result in gangs] == ["0,1", "0,1"]


@pytest.mark.slow
def test_devices_that_somebody_else_uses_are_taken_when_they_come_free(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    make_cluster({"num_cpus": 2})
    ray.init()

    @ray.remote(num_cpus=1)
    class Guest:
        def here(self) -> bool:
            return True

    guest = Guest.remote()
    assert ray.get(guest.here.remote())
    tune.init()
    eventually(lambda: num_devices() == 1, 30, "the free core is a device")
    time.sleep(1)
    assert num_devices() == 1
    assert search(trainables.count, tmp_path, {"steps": 3}, num_samples=2).counts == {Outcome.COMPLETED: 2}
    ray.kill(guest)
    eventually(lambda: num_devices() == 2, 30, "the other core is one too")


def test_trials_of_a_lost_node_go_on_elsewhere_from_their_checkpoints(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster({"num_cpus": 1})
    doomed = cluster.add_node(num_cpus=1)
    tune.init()
    eventually(lambda: num_devices() == 2, 30, "both nodes' devices are there")
    (process,) = [info.process for info in doomed.all_processes["raylet"]]
    raylet = process.pid

    def train(config: dict[str, Any]) -> None:
        import signal

        checkpoint = tune.get_checkpoint()
        begin = checkpoint.to_dict()["step"] if checkpoint else 0
        for step in range(begin + 1, 61):
            trainables.burn(0.02)
            kept = tune.Checkpoint.from_dict({"step": step}) if step == 15 else None
            tune.report({"value": float(step), "pid": os.getpid(), "begin": begin}, checkpoint=kept)
            if step == 20 and os.environ["RAY_RAYLET_PID"] == str(raylet):
                os.kill(raylet, signal.SIGKILL)
                time.sleep(1000)

    results = search(train, tmp_path, {}, num_samples=4, searcher=tune.SuccessiveHalving(max_t=60, grace_period=30))
    assert results.counts == {Outcome.STOPPED: 3, Outcome.COMPLETED: 1}
    process.wait()  # Ray's workers end themselves once their raylet is gone, and a zombie is not
    assert sorted(result.metrics["begin"] for result in results) == [0, 0, 15, 15]
    lines = list(read_log(Path(results.path)))
    assert [line["step"] for line in lines if line["what"] == "retry"] == [15, 15]
    for result in results:
        steps = [line["step"] for line in lines if line["what"] == "report" and line["trial"] == result.trial_id]
        assert steps == list(range(1, result.steps + 1))
    lost = [line["pid"] for line in lines if line["what"] == "started" and line["attempt"] == 1]
    eventually(lambda: not any(map(psutil.pid_exists, lost)), 30, "its trials are gone")
    eventually(lambda: len(our_groups()) == 1, 30, "its placement group is removed")


@pytest.mark.slow
def test_an_idle_scheduler_gives_everything_back(make_cluster: MakeCluster, tmp_path: Path) -> None:
    make_cluster({"num_cpus": 2})
    assert search(trainables.count, tmp_path, {"steps": 3}, num_samples=2).counts == {Outcome.COMPLETED: 2}
    assert "scheduler" in our_actors()
    eventually(lambda: not our_actors() and not our_groups(), 30, "no actor and no group of ours is left")
    eventually(lambda: ray.available_resources().get("CPU") == 2, 10, "both CPUs are free")
    again = search(trainables.count, tmp_path, {"steps": 3}, num_samples=2)
    assert again.counts == {Outcome.COMPLETED: 2}


@pytest.mark.slow
def test_a_search_without_devices_says_what_it_waits_for_and_goes_on_when_they_come(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    make_cluster({"num_cpus": 1})
    ray.init()

    @ray.remote(num_cpus=1)
    class Guest:
        def leave(self) -> None:
            time.sleep(9)
            os._exit(0)

    Guest.remote().leave.remote()
    results = search(trainables.count, tmp_path, {"steps": 3}, num_samples=2)
    assert results.counts == {Outcome.COMPLETED: 2}
    log = Path(results.path, "log.jsonl").read_text()
    assert "Trials wait for devices: all 1 that the Ray cluster has are used by other Ray work" in log


def test_a_cluster_is_joined_by_auto_and_a_wrong_address_is_named(
    make_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster({"num_cpus": 1})
    tune.init(address="auto")
    assert ray.get_runtime_context().gcs_address == cluster.address
    tune.shutdown()
    monkeypatch.delenv("RAY_ADDRESS")
    with pytest.raises(ConnectionError, match=r"no Ray cluster answers at '127.0.0.1:1'"):
        tune.init(address="127.0.0.1:1")


def test_an_unwritable_journal_is_named_and_leaves_no_scheduler(make_cluster: MakeCluster, tmp_path: Path) -> None:
    make_cluster({"num_cpus": 1})
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeError, match=r"the cluster's journal cannot be written: .*init\(journal=\.\.\.\)"):
        tune.init(journal=tmp_path / "file" / "journal.sqlite")
    eventually(lambda: not our_actors(), 10, "the scheduler is gone")
    tune.init()
    assert our_actors()


def test_trials_of_an_agent_that_dies_are_tried_again_under_a_new_one(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    make_cluster({"num_cpus": 1})
    tune.init()
    eventually(lambda: num_devices() == 1, 30, "the device is there")

    def train(config: dict[str, Any]) -> None:
        for step in range(1, 6):
            tune.report({"value": float(step)})
        with suppress(psutil.NoSuchProcess):
            psutil.Process(config["agent"]).kill()
            time.sleep(1000)

    (agent,) = workers("NodeAgent")
    results = search(train, tmp_path, {"agent": agent.pid}, num_samples=2, searcher=tune.RandomSearch())
    assert results.counts == {Outcome.COMPLETED: 2}
    assert search(trainables.count, tmp_path, {"steps": 3}, num_samples=2).counts == {Outcome.COMPLETED: 2}
