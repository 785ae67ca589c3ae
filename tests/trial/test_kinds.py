"""Checkpoints, classes and generators in real trial processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gandiva_ray.trial.checkpoint import Checkpoint
from tests.fake_agent import FakeTemplate, FakeTrial


def checkpoints(trial: FakeTrial) -> list[str | None]:
    return [message["checkpoint"] for message in trial.peer.said if message["op"] == "report"]


def test_a_checkpoint_lies_in_the_trials_folder_when_its_report_comes(template: FakeTemplate) -> None:
    trial = template.run({"do": "save", "count": 2})
    assert trial.ops()[-1] == "ended", trial.stderr()
    assert checkpoints(trial) == [str(trial.path / f"checkpoint_{step:06d}") for step in (1, 2)]
    assert Checkpoint(trial.path / "checkpoint_000002").to_dict() == {"step": 2}


def test_a_trial_goes_on_from_a_checkpoint_and_counts_its_reports_on(template: FakeTemplate) -> None:
    first = template.run({"do": "save", "count": 3})
    trial = template.run({"do": "save", "count": 2}, step=3, checkpoint=checkpoints(first)[-1])
    reports = [message for message in trial.peer.said if message["op"] == "report"]
    assert [report["step"] for report in reports] == [4, 5]
    assert trial.metrics()[-1] == {"begin": 3, "training_iteration": 5}


def test_a_checkpoint_that_is_not_on_this_node_is_named(template: FakeTemplate, tmp_path: Path) -> None:
    trial = template.launch({"do": "save", "count": 1}, step=1, checkpoint=str(tmp_path / "gone"))
    assert trial.exit_code() == 1
    assert "a folder that all nodes share" in trial.last()["reason"]


def test_a_trial_may_ask_which_one_it_is(template: FakeTemplate) -> None:
    trial = template.run({"do": "tell_context"}, trial="00007")
    (metrics,) = trial.metrics()
    assert (metrics["id"], metrics["name"], metrics["dir"]) == ("00007", "00007", str(trial.path))
    assert metrics["run"] == trial.path.parent.name


def test_a_class_steps_until_it_says_that_it_is_done(template: FakeTemplate) -> None:
    trial = template.run({"do": "run_counter", "start": 5, "end": 8})
    assert [metrics["value"] for metrics in trial.metrics()] == [6, 7, 8]
    assert [metrics["iteration"] for metrics in trial.metrics()] == [0, 1, 2]
    assert checkpoints(trial) == [None] * 3
    assert trial.stdout() == "cleaned up 00000\n"


def test_a_class_that_is_stopped_cleans_up(template: FakeTemplate) -> None:
    trial = template.launch({"do": "run_counter"})
    trial.resume()
    trial.next("report")
    trial.ask_to_stop()
    assert trial.exit_code() == 0
    assert trial.stdout() == "cleaned up 00000\n"


@pytest.mark.parametrize("as_dict", [False, True])
def test_a_class_saves_every_so_often_and_goes_on_in_another_process(template: FakeTemplate, as_dict: bool) -> None:
    first = template.run({"do": "run_counter", "end": 5, "frequency": 2, "dict": as_dict})
    saved = checkpoints(first)
    assert [path and Path(path).name for path in saved] == [None, "checkpoint_000002", None, "checkpoint_000004", None]
    config = {"do": "run_counter", "end": 6, "frequency": 2, "dict": as_dict}
    trial = template.run(config, step=4, checkpoint=saved[3])
    assert [(metrics["value"], metrics["iteration"]) for metrics in trial.metrics()] == [(5, 4), (6, 5)], trial.stderr()


def test_a_generator_reports_what_it_yields(template: FakeTemplate) -> None:
    trial = template.run({"do": "generate"})
    assert [metrics.get("value", metrics.get("_metric")) for metrics in trial.metrics()] == [1, 2.5]


def test_a_class_saves_its_last_step_where_that_is_asked_for(template: FakeTemplate) -> None:
    trial = template.run({"do": "run_counter", "end": 3, "at_end": True})
    assert [path and Path(path).name for path in checkpoints(trial)] == [None, None, "checkpoint_000003"]


def test_a_class_that_is_stopped_between_two_steps_saves_the_last_one(template: FakeTemplate) -> None:
    trial = template.launch({"do": "run_counter", "at_end": True}, until=2)
    trial.resume()
    trial.next("parked")
    trial.say("stop")
    assert trial.exit_code() == 0
    assert [path and Path(path).name for path in checkpoints(trial)] == [None, None, "checkpoint_000002"]
    assert trial.last()["op"] == "stopped"
