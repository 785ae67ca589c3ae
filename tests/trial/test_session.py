"""A trial gives its device up at a boundary and nowhere else. Real processes, real torch, a fake agent."""

from __future__ import annotations

import statistics
import time

import pytest

from gandiva_ray.trial import session
from gandiva_ray.trial.protocol import SUSPEND
from tests.fake_agent import FakeTemplate, FakeTrial


def start(template: FakeTemplate, do: str, *, until: int | None = None, **config: object) -> FakeTrial:
    trial = template.launch({"do": do, **config}, until=until)
    trial.resume()
    return trial


def stop(trial: FakeTrial) -> None:
    """Stop a trial that is running."""
    trial.ask_to_stop()
    assert trial.exit_code() == 0
    assert trial.last() == {"op": "stopped"}


def until_it_moves(template: FakeTemplate, trial: FakeTrial) -> None:
    before = trial.page.boundaries
    template.agent.until(lambda: trial.page.boundaries > before)


def test_a_trial_waits_for_its_first_turn(template: FakeTemplate) -> None:
    trial = template.launch({"do": "reports", "count": 1})
    trial.next("started")
    template.agent.poll(0.1)
    assert trial.ops() == ["hello", "started"]
    trial.resume()
    assert trial.exit_code() == 0
    assert trial.ops() == ["hello", "started", "resumed", "report", "ended"]


def test_a_trial_stopped_before_its_first_turn_never_trains(template: FakeTemplate) -> None:
    trial = template.launch({"do": "reports", "count": 1})
    trial.next("started")
    trial.say("stop")
    assert trial.exit_code() == 0
    assert trial.ops() == ["hello", "started", "stopped"]


def test_a_loop_that_knows_of_nothing_stands_still_while_suspended(template: FakeTemplate) -> None:
    trial = start(template, "forever")
    until_it_moves(template, trial)
    trial.suspend()
    stood = trial.page.boundaries
    time.sleep(0.05)
    assert trial.page.boundaries == stood
    trial.resume()
    until_it_moves(template, trial)
    stop(trial)


def test_a_trial_is_suspended_within_milliseconds(template: FakeTemplate) -> None:
    trial = start(template, "forever")
    latencies = []
    for _ in range(10):
        until_it_moves(template, trial)
        began = time.monotonic()
        trial.suspend()
        latencies.append(time.monotonic() - began)
        trial.resume()
    assert statistics.median(latencies) < 0.05
    stop(trial)


def test_results_do_not_depend_on_suspensions_and_differ_between_trials(template: FakeTemplate) -> None:
    config = {"do": "fingerprint", "steps": 60}
    (straight,) = template.run(config, trial="00001", seed=7).metrics()
    sliced = template.launch(config, trial="00001", seed=7)
    sliced.next("started")
    sliced.page.request = SUSPEND
    sliced.say("resume")
    for _ in range(20):
        sliced.next("suspended")
        sliced.say("resume")  # the request still stands: it is suspended again at the very next boundary
    sliced.resume()
    sliced.exit_code()
    assert sliced.metrics() == [straight]
    for other in (template.run(config, trial="00002", seed=7), template.run(config, trial="00001", seed=8)):
        assert all(other.metrics()[0][name] != straight[name] for name in ("weights", "numpy", "random"))


def test_a_trial_parks_at_its_milestone_and_goes_on_when_promoted(template: FakeTemplate) -> None:
    trial = start(template, "reports", count=5, until=2)
    assert trial.next("parked")["step"] == 2
    assert len(trial.metrics()) == trial.page.steps == 2
    trial.promote(4)
    trial.resume()
    assert trial.next("parked")["step"] == 4
    trial.promote(None)
    trial.resume()
    assert trial.exit_code() == 0
    assert [metrics["training_iteration"] for metrics in trial.metrics()] == [1, 2, 3, 4, 5]
    assert trial.ops().count("parked") == 2


def test_a_trial_promoted_in_time_does_not_park(template: FakeTemplate) -> None:
    trial = template.launch({"do": "reports", "count": 3}, until=2)
    trial.next("started")
    trial.promote(3)
    trial.resume()
    assert trial.next("parked")["step"] == 3
    trial.say("stop")
    trial.exit_code()


def test_a_parked_trial_answers_a_suspend_request_once(template: FakeTemplate) -> None:
    trial = template.launch({"do": "reports", "count": 2}, until=1)
    trial.next("started")
    trial.page.request = SUSPEND
    trial.say("resume")
    trial.next("parked")
    trial.promote(None)
    trial.resume()
    trial.exit_code()
    assert "suspended" not in trial.ops()


def test_a_returned_dict_is_the_last_report_and_does_not_park(template: FakeTemplate) -> None:
    trial = template.launch({"do": "give_back", "value": {"accuracy": 0.5}}, until=1)
    trial.resume()
    assert trial.exit_code() == 0
    assert trial.metrics() == [{"accuracy": 0.5, "training_iteration": 1}]
    assert trial.ops()[-2:] == ["report", "ended"]


def test_a_running_trial_stops_at_its_next_boundary(template: FakeTemplate) -> None:
    stop(start(template, "forever"))


def test_a_suspended_trial_stops(template: FakeTemplate) -> None:
    trial = start(template, "forever")
    trial.suspend()
    trial.say("stop")
    assert trial.exit_code() == 0
    assert trial.last() == {"op": "stopped"}


def test_a_parked_trial_stops(template: FakeTemplate) -> None:
    trial = start(template, "reports", count=5, until=1)
    trial.next("parked")
    trial.say("stop")
    assert trial.exit_code() == 0
    assert trial.ops()[-2:] == ["parked", "stopped"]


def test_a_stop_runs_finally_blocks_and_is_raised_again_at_boundaries_in_them(template: FakeTemplate) -> None:
    trial = start(template, "clean_up")
    until_it_moves(template, trial)
    stop(trial)
    assert trial.stdout() == "stopped again\ncleaned up\n"


def test_a_stop_that_is_swallowed_is_raised_again(template: FakeTemplate) -> None:
    trial = start(template, "refuse_to_stop", until=2)
    trial.next("parked")
    trial.say("stop")
    assert trial.exit_code() == 0
    assert trial.stdout() == "swallowed\n" * 3
    assert len(trial.metrics()) == 2
    assert trial.last() == {"op": "stopped"}


def test_an_error_in_cleaning_up_is_logged_and_the_trial_counts_as_stopped(template: FakeTemplate) -> None:
    trial = start(template, "refuse_to_stop", until=2, **{"raise": True})
    trial.next("parked")
    trial.say("stop")
    assert trial.exit_code() == 0
    assert trial.last() == {"op": "stopped"}
    assert "ValueError: while cleaning up" in trial.stderr()


@pytest.mark.parametrize("optimizer", ["foreach", "fused", "own"])
def test_every_optimizer_is_a_door(template: FakeTemplate, optimizer: str) -> None:
    trial = start(template, "optimize", optimizer=optimizer)
    assert trial.exit_code() == 0, trial.stderr()
    assert trial.page.boundaries == 10


@pytest.mark.parametrize("do", ["optimize_lbfgs", "optimize_compiled"])
def test_unusual_optimizer_steps_are_doors(template: FakeTemplate, do: str) -> None:
    trial = start(template, do)
    assert trial.exit_code() == 0, trial.stderr()
    assert trial.page.boundaries == 10


def test_all_threads_stand_still_while_suspended_and_nothing_locks_up(template: FakeTemplate) -> None:
    trial = start(template, "optimize_in_threads")
    for _ in range(5):
        until_it_moves(template, trial)
        trial.suspend()
        time.sleep(0.02)  # the other threads come to a boundary of their own
        stood = trial.page.boundaries
        time.sleep(0.02)
        assert trial.page.boundaries == stood
        trial.resume()
    stop(trial)
    assert trial.ops().count("suspended") == trial.ops().count("resumed") - 1 == 5


def test_a_child_process_of_a_trial_cannot_speak_for_it(template: FakeTemplate) -> None:
    trial = start(template, "report_from_a_child")
    assert trial.exit_code() == 0, trial.stderr()
    assert "in a child process of a trial" in trial.metrics()[0]["error"]
    assert trial.page.boundaries == 0


def test_report_outside_a_trial_says_where_it_belongs() -> None:
    with pytest.raises(RuntimeError, match="outside a trial: call it in the training function"):
        session.report({"loss": 1.0})


def test_a_boundary_outside_a_trial_is_nothing() -> None:
    session.boundary()


def test_report_names_what_it_does_not_take() -> None:
    with pytest.raises(TypeError, match=r"report has no 'step': It takes metrics, checkpoint"):
        session.report({"loss": 1.0}, step=3)
    with pytest.raises(TypeError, match=r"checkpoint is a gandiva_ray.Checkpoint, got 'c': use Checkpoint.from_dir"):
        session.report({"loss": 1.0}, checkpoint="c")  # type: ignore[arg-type]
