import pytest

from gandiva_ray.runtime.demand import Demand, find_demand

CORES = [{"CPU": 2.0}, {"CPU": 4.0, "memory": 1e9}]
GPUS = [{"CPU": 8.0, "GPU": 2.0}, {"CPU": 64.0}]


def test_a_trial_that_asks_for_nothing_gets_one_device() -> None:
    assert find_demand({}, CORES, None, 1.0) == Demand(1, 1.0, 1)
    assert find_demand({}, GPUS, None, 0.5) == Demand(1, 1.0, 1)


def test_cores_are_devices_where_there_is_no_gpu() -> None:
    assert find_demand({"cpu": 3}, CORES, None, 1.0) == Demand(3, 1.0, 3)
    assert find_demand({"cpu": 0.5, "gpu": 0}, CORES, None, 1.0) == Demand(1, 0.5, 1)


def test_cores_are_threads_where_gpus_are_devices() -> None:
    assert find_demand({"cpu": 6}, GPUS, None, 1.0) == Demand(1, 1.0, 6)
    assert find_demand({"cpu": 6, "gpu": 2}, GPUS, None, 1.0) == Demand(2, 1.0, 6)
    assert find_demand({"gpu": 0.25}, GPUS, None, 1.0) == Demand(1, 0.25, 1)


def test_a_share_is_of_what_is_reserved() -> None:
    assert find_demand({"gpu": 0.25}, GPUS, None, 0.5).share == 0.5
    assert find_demand({"gpu": 0.3}, GPUS, None, 0.3).share == 1.0


@pytest.mark.parametrize(
    ("resources", "nodes", "devices", "reserve", "message"),
    [
        ({"cpu": 5}, CORES, None, 1.0, "asks for 5 CPU cores of one node; the largest node of the Ray cluster has 4$"),
        ({"cpu": 3}, CORES, 2, 1.0, r"the largest node of the Ray cluster has 4, of which init\(devices=2\) takes 2"),
        ({"gpu": 3}, GPUS, None, 1.0, "asks for 3 GPUs of one node; the largest node of the Ray cluster has 2"),
        ({"gpu": 0.7}, GPUS, None, 0.5, r"0\.7 of a GPU; the most that fits is 0\.5, .* init\(reserve=0\.5\) takes"),
        ({"gpu": 1}, GPUS, None, 0.5, "asks for 1 whole GPU; the most that fits is 0.5 of one"),
        ({"gpu": 1.5}, GPUS, None, 1.0, "asks for 1.5 GPUs: ask for whole ones, or for a part of one below 1"),
        ({"gpu": 1}, CORES, None, 1.0, 'asks for 1 GPU, and no node of the Ray cluster has one: leave "gpu" out'),
        ({"gpu": 0}, GPUS, None, 1.0, "asks for no GPU, and devices are GPUs here"),
    ],
)
def test_what_never_fits_is_refused_with_the_largest_that_would(
    resources: dict[str, float], nodes: list[dict[str, float]], devices: int | None, reserve: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        find_demand(resources, nodes, devices, reserve)


def test_how_many_trials_run_at_once() -> None:
    assert Demand(2).at_once(5) == 2
    assert Demand(share=0.3).at_once(2) == 6
    assert Demand(share=0.1).at_once(1) == 10
