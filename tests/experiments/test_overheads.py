from __future__ import annotations

import pytest

from experiments.overheads import Run, bare_loops, operations, rate, rate_table


def test_the_rate_of_one_stream_is_its_mini_batches_over_its_time() -> None:
    assert rate([[10.0, 10.5, 11.0, 11.5, 12.0]]) == pytest.approx(2.0)


def test_the_rate_of_many_streams_counts_from_when_all_have_begun_to_the_last_end() -> None:
    assert rate([[0.0, 1.0, 2.0, 6.0], [2.0, 3.0, 4.0, 5.0]]) == pytest.approx(4 / 4.0)


def test_one_run_with_other_results_is_said_loudly() -> None:
    same, other = Run(bare=100.0, sliced=99.0, identical=True), Run(bare=100.0, sliced=97.0, identical=False)
    assert "| in turns / bare, median of the pairs | 0.990 |" in rate_table([same, same, other])
    assert rate_table([same, same]).endswith("| yes |")
    assert rate_table([same, other]).endswith("| NO |")


def test_bare_training_depends_on_the_seed_of_the_trial_alone() -> None:
    both, one = bare_loops(["00000", "00001"], epochs=1), bare_loops(["00001"], epochs=1)
    assert both["00001"].history == one["00001"].history != both["00000"].history
    assert len(both["00000"].stamps) == 45  # 1,437 images in batches of 32
    assert both["00000"].stamps[-1] < both["00001"].stamps[0]


def test_the_operations_of_real_trials_can_be_measured() -> None:
    found = operations(launches=1, suspends=2)
    assert 0 < found.boundary < found.report < found.fork_to_first_mini_batch < 30
    assert 0 < found.suspend < 30
    assert found.private_bytes > found.tensor_bytes > 0
