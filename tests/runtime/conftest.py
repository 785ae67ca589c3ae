"""The Ray that the searches of these tests run on: of two CPUs, or, with `--nodes N`, of N nodes with one each."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

import gandiva_ray as tune

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
