"""Trials on a share of a device, and on several devices, on real Ray."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import ray

import gandiva_ray as tune
from tests.runtime import trainables
from tests.runtime.cluster_state import eventually, num_devices
from tests.runtime.conftest import MakeCluster
from tests.runtime.test_cluster import search


def most_at_once(folder: Path, resources: Mapping[str, float], num_samples: int, *, rungs: bool = True) -> list[float]:
    """How many trials each of them saw in a turn beside itself at most, itself included."""
    together = folder / "together"
    together.mkdir()
    searcher = tune.SuccessiveHalving(max_t=60, grace_period=30) if rungs else tune.RandomSearch()
    trainable = tune.with_resources(trainables.tell_neighbours, resources)
    results = search(trainable, folder, {"folder": str(together)}, num_samples=num_samples, searcher=searcher)
    assert results.num_errors == 0, [result.error for result in results]
    return [result.metrics["value"] for result in results]


def test_trials_whose_shares_fit_run_side_by_side_and_take_turns_with_the_others(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    make_cluster({"num_cpus": 1})
    tune.init(quantum=0.1)
    assert set(most_at_once(tmp_path, {"cpu": 0.5}, 4)) == {2.0}


@pytest.mark.slow
def test_shares_hold_where_trials_run_to_their_ends(make_cluster: MakeCluster, tmp_path: Path) -> None:
    make_cluster({"num_cpus": 1})
    tune.init(quantum=0.1)
    assert max(most_at_once(tmp_path, {"cpu": 0.3}, 7, rungs=False)) == 3.0


def test_a_gang_has_all_its_cores_and_as_many_threads(make_cluster: MakeCluster, tmp_path: Path) -> None:
    make_cluster({"num_cpus": 2})
    tune.init(quantum=0.1)
    eventually(lambda: num_devices() == 2, 30, "both cores are devices")
    assert set(most_at_once(tmp_path, {"cpu": 2}, 3)) == {1.0}
    results = search(tune.with_resources(trainables.tell_where, {"cpu": 2}), tmp_path, {}, num_samples=1)
    assert len(results[0].metrics["cores"]) == min(2, len(os.sched_getaffinity(0)))
    with pytest.raises(ValueError, match="asks for 3 CPU cores of one node; the largest node of the Ray cluster has 2"):
        search(tune.with_resources(trainables.tell_where, {"cpu": 3}), tmp_path, {})


@contextlib.contextmanager
def busy(folder: Path) -> Iterator[None]:
    """A search in the background, for a scheduler that nobody needs leaves."""
    enough = threading.Event()
    tuner = tune.Tuner(
        trainables.count,
        tune_config=tune.TuneConfig("value", "max", searcher=tune.ASHA(max_t=10**9, grace_period=10**8)),
        run_config=tune.RunConfig(storage_path=folder, verbose=0, stop=lambda trial, metrics: enough.is_set()),
    )
    thread = threading.Thread(target=tuner.fit)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


@pytest.mark.slow
def test_the_rest_of_each_gpu_is_left_to_other_ray_work(make_cluster: MakeCluster, tmp_path: Path) -> None:
    make_cluster({"num_cpus": 4, "num_gpus": 2})
    tune.init(reserve=0.5)

    @ray.remote(num_gpus=0.5, num_cpus=0)
    class Guest:
        def gpu(self) -> int:
            return int(ray.get_gpu_ids()[0])

    trainable = tune.with_resources(trainables.tell_where, {"gpu": 0.5})
    with busy(tmp_path):
        eventually(lambda: num_devices() == 2, 60, "a part of each GPU is ours")
        guests = [Guest.remote() for _ in range(2)]
        assert sorted(ray.get([guest.gpu.remote() for guest in guests], timeout=30)) == [0, 1]
        results = search(trainable, tmp_path, {"x": tune.uniform(0, 1)}, num_samples=4)
    assert {result.metrics["visible"] for result in results} == {"0", "1"}
    with pytest.raises(ValueError, match=r"asks for 0\.7 of a GPU; the most that fits is 0\.5"):
        search(tune.with_resources(trainables.tell_where, {"gpu": 0.7}), tmp_path, {})


@pytest.mark.slow
def test_a_gpu_that_is_full_is_taken_in_part_when_it_comes_free(make_cluster: MakeCluster, tmp_path: Path) -> None:
    make_cluster({"num_cpus": 4, "num_gpus": 2})
    ray.init()

    @ray.remote(num_gpus=1, num_cpus=0)
    class Guest:
        def here(self) -> bool:
            return True

    guest = Guest.remote()
    assert ray.get(guest.here.remote())

    @ray.remote(num_gpus=0.5, num_cpus=0)
    def rest() -> int:
        return int(ray.get_gpu_ids()[0])

    tune.init(reserve=0.5)
    with busy(tmp_path):
        eventually(lambda: num_devices() == 1, 60, "a part of the free GPU is ours")
        time.sleep(6)  # longer than it keeps the rest of that GPU from others
        ray.get(rest.remote(), timeout=8)
        ray.kill(guest)
        eventually(lambda: num_devices() == 2, 60, "a part of the other one is ours too")


def test_a_reserve_of_gpus_needs_gpus(make_cluster: MakeCluster) -> None:
    make_cluster({"num_cpus": 1})
    with pytest.raises(ValueError, match="no node of this Ray cluster has a GPU"):
        tune.init(reserve=0.5)
