from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from gandiva_ray.runtime.devices import (
    CUDA_CONTEXT_BYTES,
    Host,
    deal_cores,
    gpu_free_bytes,
    gpu_process_bytes,
    this_host,
)

GIB = 1024**3


class TwoGpus:
    """A fake of NVML: two cards, one process on the second."""

    def free_bytes(self, gpu: str) -> int:
        return {"0": 10 * GIB, "1": 6 * GIB}[gpu]

    def process_bytes(self, gpu: str) -> Mapping[int, int]:
        return {"0": {}, "1": {4711: 2 * GIB}}[gpu]


def host(*cores: int) -> Host:
    return Host("machine", cores, 8 * GIB)


def test_this_host_tells_the_cores_that_the_process_may_use() -> None:
    found = this_host()
    assert len(found.cores) >= 1
    assert found.free_bytes > 0
    assert found.id == this_host().id


def test_nodes_of_one_host_get_disjoint_cores() -> None:
    first = deal_cores(host(0, 1, 2, 3), 2, taken=())
    second = deal_cores(host(0, 1, 2, 3), 2, taken=first)
    assert first == (0, 1)
    assert second == (2, 3)


def test_more_devices_than_cores_are_dealt_a_second_time_evenly() -> None:
    assert deal_cores(host(0, 1), 4, taken=()) == (0, 1, 0, 1)
    assert deal_cores(host(4, 6), 1, taken=(4,)) == (6,)


@given(st.sets(st.integers(0, 63), min_size=1), st.lists(st.integers(1, 8), min_size=1, max_size=6))
def test_no_core_is_dealt_twice_while_another_is_free(cores: set[int], wanted: list[int]) -> None:
    taken: list[int] = []
    for count in wanted:
        taken += deal_cores(host(*sorted(cores)), count, taken)
    times = [taken.count(core) for core in cores]
    assert max(times) - min(times) <= 1


def test_free_gpu_memory_is_the_sum_and_unknown_without_nvml() -> None:
    assert gpu_free_bytes(TwoGpus(), ["0", "1"]) == 16 * GIB
    assert gpu_free_bytes(None, ["0"]) is None


def test_a_process_holds_at_least_a_cuda_context_on_each_gpu() -> None:
    assert gpu_process_bytes(TwoGpus(), ["1"], 4711) == 2 * GIB
    assert gpu_process_bytes(TwoGpus(), ["0", "1"], 1) == 2 * CUDA_CONTEXT_BYTES
    assert gpu_process_bytes(None, ["0"], 1) == CUDA_CONTEXT_BYTES
