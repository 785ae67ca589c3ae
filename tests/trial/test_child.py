"""What a trial finds in its process, and how its end is told."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.fake_agent import FakeTemplate, FakeTrial


def failure(trial: FakeTrial) -> str:
    """The reason that a trial gave; its error must be in all the places where a user looks for it."""
    assert trial.exit_code() == 1
    message = trial.last()
    assert message["op"] == "failed"
    assert message["error"].startswith("Traceback")
    assert message["error"] == (trial.path / "error.txt").read_text()
    assert message["error"] in trial.stderr()
    reason: str = message["reason"]
    return reason


def test_a_trial_lives_in_its_own_folder_with_its_own_settings(template: FakeTemplate) -> None:
    trial = template.run({"do": "where"}, gpus=("1", "GPU-3"), threads=2)
    (found,) = trial.metrics()
    assert found == {
        "cwd": str(trial.path),
        "origin": os.getcwd(),
        "gpus": "1,GPU-3",
        "threads": 2,
        "omp": "2",
        "nice": os.nice(0) + 5,
        "training_iteration": 1,
    }
    assert trial.stdout() == "to stdout\nfrom below\n"
    assert trial.stderr() == "to stderr\n"


def test_an_empty_list_of_gpus_hides_them_all(template: FakeTemplate) -> None:
    assert template.run({"do": "where"}, gpus=()).metrics()[0]["gpus"] == ""


def test_output_is_appended_when_a_trial_is_retried(template: FakeTemplate) -> None:
    first = template.run({"do": "where"})
    assert template.run({"do": "where"}, path=first.path).stderr() == "to stderr\n" * 2


def test_every_task_of_a_trial_and_of_its_children_is_pinned(template: FakeTemplate) -> None:
    core = max(os.sched_getaffinity(0))
    (found,) = template.run({"do": "affinities"}, cores=(core,), threads=2).metrics()
    assert len(found["cores"]) >= 3
    assert all(cores == [core] for cores in found["cores"])


def test_backward_works_in_a_trial(template: FakeTemplate) -> None:
    trial = template.run({"do": "convolve"})
    assert trial.ops()[-1] == "ended", trial.stderr()
    assert trial.metrics()[0]["loss"] > 0


def test_worker_processes_of_a_data_loader_work_in_a_trial(template: FakeTemplate) -> None:
    trial = template.run({"do": "convolve", "workers": 2})
    assert trial.ops()[-1] == "ended", trial.stderr()


def test_an_exception_is_told_with_the_line_of_the_user(template: FakeTemplate) -> None:
    trial = template.run({"do": "divide"})
    assert failure(trial).startswith("ZeroDivisionError: division by zero (trainables.py:")
    assert "gandiva_ray" not in trial.last()["error"]


def test_an_exception_is_told_even_if_stderr_was_closed(template: FakeTemplate) -> None:
    trial = template.run({"do": "divide_in_silence"})
    assert trial.last()["op"] == "failed"
    assert "ZeroDivisionError" in (trial.path / "error.txt").read_text()


def test_an_exception_in_a_library_is_told_with_the_line_of_the_user(template: FakeTemplate) -> None:
    reason = failure(template.run({"do": "raise_in_torch"}))
    assert reason.startswith("RuntimeError: ")
    assert "(trainables.py:" in reason
    assert "\n" not in reason


def test_a_wrong_report_is_told_with_the_line_of_the_user(template: FakeTemplate) -> None:
    reason = failure(template.run({"do": "report_tensor"}))
    assert reason.startswith("TypeError: metric 'losses/train' is torch.Tensor of shape (3,)")
    assert "(trainables.py:" in reason


def test_scalars_of_numpy_and_torch_are_reported_as_numbers(template: FakeTemplate) -> None:
    (found,) = template.run({"do": "report_kinds"}).metrics()
    assert found == {
        "torch": 0.5,
        "numpy": 0.25,
        "array": 3,
        "tuple": [1, True],
        "none": None,
        "training_iteration": 1,
    }


def test_training_iteration_of_the_user_is_kept(template: FakeTemplate) -> None:
    trial = template.run({"do": "report_values", "values": {"training_iteration": 40}})
    assert trial.metrics() == [{"training_iteration": 40}]


def test_a_result_that_is_no_dict_fails(template: FakeTemplate) -> None:
    reason = failure(template.run({"do": "give_back", "value": 0.93}))
    assert reason == (
        "TypeError: the training function returned float: return a dict of metrics, or return nothing and use report()"
    )


@pytest.mark.parametrize("code", [0, None])
def test_sys_exit_without_a_code_is_an_end(template: FakeTemplate, code: int | None) -> None:
    trial = template.run({"do": "leave", "code": code})
    assert trial.exit_code() == 0
    assert trial.last() == {"op": "ended"}


def test_sys_exit_with_a_code_is_a_failure(template: FakeTemplate) -> None:
    assert failure(template.run({"do": "leave", "code": 2})).startswith("SystemExit: 2 (trainables.py:")


def test_an_interrupt_is_a_failure(template: FakeTemplate) -> None:
    trial = template.launch({"do": "forever"})
    trial.resume()
    template.agent.until(lambda: trial.page.boundaries)
    os.kill(trial.pid, signal.SIGINT)
    assert failure(trial).startswith("KeyboardInterrupt (trainables.py:")


def test_a_folder_that_cannot_be_made_is_a_failure_with_a_reason(template: FakeTemplate) -> None:
    trial = template.launch({"do": "where"}, path=Path("/dev/null/x"))
    assert trial.exit_code() == 1
    assert trial.last()["op"] == "failed"
    assert trial.last()["reason"] == (
        "OSError: the trial's folder cannot be written on this node ([Errno 20] Not a directory: '/dev/null/x'): "
        "set RunConfig(storage_path=...) to a folder that every node can write"
    )


def test_an_end_without_a_word_is_told_by_the_template(template: FakeTemplate) -> None:
    trial = template.run({"do": "leave_hard"})
    assert trial.exit_code() == 3
    assert trial.ops()[-1] == "resumed"


def test_a_killed_trial_is_told_by_the_template(template: FakeTemplate) -> None:
    trial = template.launch({"do": "forever"})
    trial.resume()
    trial.suspend()
    os.kill(trial.pid, signal.SIGKILL)
    assert trial.exit_code() == -signal.SIGKILL
