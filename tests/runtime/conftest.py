"""The Ray that the searches of these tests run on: of two CPUs, or, with `--nodes N`, of N nodes with one each."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

import gandiva_ray as tune

MakeCluster = Callable[..., Cluster]

_clusters: list[Cluster] = []


@pytest.fixture(scope="session")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal") / "cluster.sqlite"


@pytest.fixture(scope="module")
def embedded_ray(journal: Path, pytestconfig: pytest.Config) -> None:
    """Shared by the modules that follow each other; `shut_down_ray` ends it."""
    if ray.is_initialized():
        return
    os.environ.pop("RAY_ADDRESS", None)
    nodes = pytestconfig.getoption("nodes")
    if nodes == 1:
        tune.init(devices=2, journal=journal)
        return
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    _clusters.append(cluster)
    for _ in range(nodes - 1):
        cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    tune.init(cluster.address, journal=journal)


@pytest.fixture(scope="package", autouse=True)
def shut_down_ray() -> Iterator[None]:
    yield
    tune.shutdown()
    ray.shutdown()
    for cluster in _clusters:
        cluster.shutdown()


@pytest.fixture
def make_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeCluster]:
    """Start a cluster with a node for each dict of `ray.init` arguments, and point RAY_ADDRESS at it."""
    tune.shutdown()
    clusters: list[Cluster] = []

    def make(*nodes: dict[str, Any]) -> Cluster:
        cluster = Cluster(initialize_head=True, head_node_args={"include_dashboard": False, **nodes[0]})
        clusters.append(cluster)
        for node in nodes[1:]:
            cluster.add_node(**node)
        cluster.wait_for_nodes()
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        return cluster

    yield make
    tune.shutdown()
    ray.shutdown()
    for cluster in clusters:
        cluster.shutdown()


@pytest.fixture
def joined_cluster(make_cluster: MakeCluster) -> Cluster:
    """One node with two CPUs, which this process has joined, and those that it starts will."""
    cluster = make_cluster({"num_cpus": 2})
    ray.init(log_to_driver=False)
    return cluster
