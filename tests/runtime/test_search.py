"""Whole searches on a real Ray of two CPU devices."""

import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import ray
from ray.tune import Result as RaysResult

import gandiva_ray as tune
from gandiva_ray.core.model import Assignment, Outcome
from gandiva_ray.core.plan import Plan
from gandiva_ray.core.state import ClusterView
from gandiva_ray.policies import Gandiva
from gandiva_ray.run_log import read_log
from gandiva_ray.runtime import client, own_actors
from gandiva_ray.runtime.actors import NAMESPACE, make_actor
from gandiva_ray.search_session import SearchSpec
from tests.runtime import trainables
from tests.runtime.cluster_state import eventually, scheduler_status

pytestmark = pytest.mark.usefixtures("embedded_ray")


def search(
    trainable: Any, tmp_path: Path, space: Mapping[str, Any] | None = None, **tune_config: Any
) -> tune.ResultGrid:
    settings = {"metric": "value", "mode": "max", **tune_config}
    return tune.Tuner(
        trainable,
        param_space={"x": tune.uniform(0, 1)} if space is None else space,
        tune_config=tune.TuneConfig(**settings),
        run_config=tune.RunConfig(storage_path=tmp_path, verbose=0),
    ).fit()


def test_successive_halving_reaches_each_rung_together_and_stops_all_but_a_third(tmp_path: Path) -> None:
    def train(config: Mapping[str, Any]) -> None:
        for step in range(1, 10):
            trainables.burn(0.005)
            tune.report({"value": config["x"] * step})

    results = search(train, tmp_path, num_samples=9, searcher=tune.SuccessiveHalving(max_t=9, reduction_factor=3))
    steps = sorted(len(result.metrics_dataframe) for result in results)
    assert steps == [1, 1, 1, 1, 1, 1, 3, 3, 9]
    assert results.counts == {Outcome.STOPPED: 8, Outcome.COMPLETED: 1}
    best = results.get_best_result()
    assert best.config["x"] == max(result.config["x"] for result in results)
    assert best.metrics["training_iteration"] == 9


def test_a_trial_that_raises_is_kept_with_its_traceback_and_the_search_goes_on(tmp_path: Path) -> None:
    points = [{"x": 0.1}, {"x": 0.9}, {"x": 0.2}]
    searcher = tune.RandomSearch(points_to_evaluate=points)
    results = search(trainables.fail_at_two, tmp_path, num_samples=3, searcher=searcher)
    outcomes = [result.outcome for result in results]
    assert outcomes == [Outcome.COMPLETED, Outcome.FAILED, Outcome.COMPLETED]
    failed = results[1]
    assert failed.reason.startswith("ArithmeticError: the second step is too hard (trainables.py:")
    assert failed.error is not None
    assert "raise ArithmeticError" in failed.error
    assert failed.metrics["value"] == 1.0
    assert Path(failed.path, "error.txt").exists()


def test_a_trial_that_fails_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    config = tune.RunConfig(
        storage_path=tmp_path,
        verbose=0,
        failure_config=tune.FailureConfig(max_failures=3),
        checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
    )
    tune_config = tune.TuneConfig(metric="value", mode="max", num_samples=4, searcher=tune.ASHA(max_t=12))
    results = tune.Tuner(
        trainables.die_now_and_then, param_space={"x": tune.uniform(0, 1)}, tune_config=tune_config, run_config=config
    ).fit()
    assert set(results.counts) <= {Outcome.COMPLETED, Outcome.STOPPED}
    best = results.get_best_result()
    assert best.steps == 12
    assert list(best.metrics_dataframe["value"]) == [float(step) for step in range(1, 13)]
    assert best.checkpoint is not None
    assert best.checkpoint.to_dict() == {"step": 12, "attempts": 4}
    assert [metrics["value"] for _, metrics in best.best_checkpoints] == [10.0, 12.0]
    assert len(list(Path(best.path).glob("checkpoint_*"))) == 2
    retries = [
        line for line in read_log(Path(results.path)) if line["what"] == "retry" and line["trial"] == best.trial_id
    ]
    assert [(line["step"], line["attempt"]) for line in retries] == [(2, 2), (6, 3), (8, 4)]


def test_the_target_ends_the_search(tmp_path: Path) -> None:
    results = search(trainables.count, tmp_path, num_samples=6, target=20, searcher=tune.SuccessiveHalving(max_t=10**6))
    assert results.get_best_result().metrics["value"] >= 20
    assert "target" in results.stop_reason
    assert set(results.counts) <= {Outcome.COMPLETED, Outcome.STOPPED, Outcome.NEVER_STARTED}
    assert results.counts[Outcome.COMPLETED] == 1


def test_the_time_budget_cuts_what_runs_and_names_what_never_started(tmp_path: Path) -> None:
    began = time.monotonic()
    results = search(trainables.count, tmp_path, num_samples=5, time_budget_s=12)
    assert time.monotonic() - began < 12 + 2
    assert results.counts == {Outcome.CUT: 2, Outcome.NEVER_STARTED: 3}


def test_trials_of_a_search_without_feedback_run_in_order_each_alone_on_its_device(tmp_path: Path) -> None:
    results = search(trainables.count, tmp_path, {"steps": 40}, num_samples=6)
    assert results.counts == {Outcome.COMPLETED: 6}
    frames = [result.metrics_dataframe for result in results]
    assert [len(frame) for frame in frames] == [40] * 6
    # One after the other on two devices: each had its device for itself, so its own seconds are all of its time.
    for result in results:
        assert result.device_seconds < 40 * 0.005 * 3


def test_data_that_the_function_captured_is_shared_by_all_trials(tmp_path: Path) -> None:
    data = np.ones(50_000_000, dtype=np.uint8)

    def train(config: Mapping[str, Any]) -> None:
        tune.report({"value": float(data[::4096].sum())})
        tune.report({"value": psutil.Process().memory_full_info().uss / 2**20})

    results = search(train, tmp_path, num_samples=4)
    assert results.counts == {Outcome.COMPLETED: 4}
    assert all(result.metrics["value"] < 40 for result in results)


def test_what_a_trial_prints_is_in_its_own_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def train(config: Mapping[str, Any]) -> None:
        import sys

        print("to the log:", config["x"])
        print("to the errors", file=sys.stderr)
        tune.report({"value": 1.0})

    results = search(train, tmp_path, {"x": tune.grid_search([1, 2])})
    for result, x in zip(results, (1, 2), strict=True):
        assert Path(result.path, "stdout").read_text() == f"to the log: {x}\n"
        assert Path(result.path, "stderr").read_text() == "to the errors\n"
    out, err = capfd.readouterr()
    assert out == ""
    assert err == ""


def test_a_killed_trial_fails_alone(tmp_path: Path) -> None:
    def train(config: Mapping[str, Any]) -> None:
        import os
        import signal

        tune.report({"value": 1.0})
        if config["x"] == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        tune.report({"value": 2.0})

    results = search(train, tmp_path, {"x": tune.grid_search([1, 2, 3])})
    assert [result.outcome for result in results] == [Outcome.COMPLETED, Outcome.FAILED, Outcome.COMPLETED]
    assert results[1].reason == "its process was killed by signal 9 (SIGKILL)"


def our_processes() -> list[psutil.Process]:
    """Zygotes, templates and trials below this process."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "gandiva_ray.trial" in " ".join(process.cmdline()):
                found.append(process)
    return found


def the_zygotes(nodes: int) -> frozenset[psutil.Process]:
    """What is left of a search that is over: one a node."""
    eventually(lambda: len(our_processes()) == nodes, 10, "the templates are gone")
    return frozenset(our_processes())


@pytest.fixture
def nodes(pytestconfig: pytest.Config) -> int:
    return int(pytestconfig.getoption("nodes"))


def test_after_a_search_only_the_zygotes_are_left_for_the_next_one(tmp_path: Path, nodes: int) -> None:
    zygotes = set()
    for _ in range(2):
        results = search(trainables.tell_where, tmp_path, num_samples=3)
        pids = [result.metrics["pid"] for result in results]
        eventually(lambda pids=pids: not any(map(psutil.pid_exists, pids)), 10, "the trials are gone")
        assert scheduler_status()["multi_jobs"] == {}
        zygotes.add(the_zygotes(nodes))
    assert len(zygotes) == 1


@pytest.mark.parametrize("victim", ["zygote", "trial actor"])
def test_a_zygote_that_was_killed_is_made_anew_for_the_next_search(tmp_path: Path, nodes: int, victim: str) -> None:
    for _ in range(2):
        assert search(trainables.count, tmp_path, {"steps": 3}, num_samples=2).counts == {Outcome.COMPLETED: 2}
        zygotes = the_zygotes(nodes)
        for zygote in zygotes:
            (zygote if victim == "zygote" else zygote.parent()).kill()
        eventually(lambda zygotes=zygotes: not any(z.is_running() for z in zygotes), 10, "they are gone")


def test_the_same_search_gives_the_same_results(tmp_path: Path) -> None:
    def train(config: Mapping[str, Any]) -> None:
        import torch

        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
        for _ in range(3):
            for _ in range(10):
                loss = (model(torch.randn(8, 4)) - 1).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            tune.report({"value": float(loss)})

    runs = [
        search(
            train,
            tmp_path,
            {"lr": tune.loguniform(1e-4, 1)},
            num_samples=4,
            mode="min",
            seed=5,
            searcher=tune.SuccessiveHalving(max_t=3, reduction_factor=2),
        )
        for _ in range(2)
    ]
    first, second = ([(r.config, r.metrics["value"], r.outcome) for r in run] for run in runs)
    assert first == second


def test_a_busy_scheduler_keeps_its_policy_and_an_idle_one_changes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="gandiva"):
        tune.init(policy="gandvia")
    running = client._settings
    session = client.open_search(SearchSpec("busy", b"", tmp_path, seed=0))
    try:
        with pytest.raises(RuntimeError, match="busy under"):
            tune.init(policy="fifo", devices=2)
    finally:
        session.close()
    tune.init(policy="fifo", devices=2)
    assert search(trainables.count, tmp_path, {"steps": 3}, num_samples=3).counts == {Outcome.COMPLETED: 3}
    tune.init(policy=running.policy, devices=2)
    assert scheduler_status()["settings"].policy == Gandiva()


@dataclass(frozen=True, slots=True)
class RoomForTwo:
    """Two jobs fill the memory."""

    def plan(self, state: ClusterView) -> Plan:
        device = next((device for node in state.nodes.values() for device in node.devices), None)
        launched = state.queued[: 2 - len(state.placed)] if device is not None else ()
        waiting = {job.id: "is next, and waits for memory" for job in state.queued if job not in launched}
        return Plan({job.id: Assignment((device,)) for job in launched if device is not None}, why=waiting)


def test_a_search_that_was_closed_behind_its_drivers_back_says_so(tmp_path: Path) -> None:
    session = client.open_search(SearchSpec("closed", b"", tmp_path, seed=0))
    try:
        scheduler = ray.get_actor("scheduler", NAMESPACE)
        (multi_job,) = scheduler_status()["multi_jobs"]
        ray.get(scheduler.close.remote(multi_job))
        with pytest.raises(RuntimeError, match=f"has closed the search {multi_job}: its driver was silent"):
            eventually(lambda: session.poll(1.0) is None, 10, "it is said")
    finally:
        session.close()


def test_a_rung_that_memory_cannot_hold_ends_the_search_with_the_reason(tmp_path: Path) -> None:
    tune.init(policy=RoomForTwo(), devices=2)
    try:
        results = search(trainables.count, tmp_path, num_samples=4, searcher=tune.SuccessiveHalving(max_t=9))
    finally:
        tune.init(devices=2)
    assert results.counts == {Outcome.CUT: 2, Outcome.NEVER_STARTED: 2}
    assert results.stop_reason.startswith("2 trials wait (is next, and waits for memory) for the 2 that are parked")


def test_a_journal_that_exists_is_left_alone(tmp_path: Path) -> None:
    taken = tmp_path / "journal.sqlite"
    taken.write_text("mine")
    tune.init(devices=2, journal=taken)
    assert scheduler_status()["journal"] == str(tmp_path / "journal-2.sqlite")
    assert taken.read_text() == "mine"


@pytest.mark.parametrize(
    "arguments", [{"quantum": 0}, {"quantum": None}, {"quantum": "fast"}, {"devices": 0}, {"devices": 1.5}]
)
def test_init_names_the_argument_that_does_not_fit(arguments: dict[str, Any]) -> None:
    (name,) = arguments
    with pytest.raises(ValueError, match=f'{name} is "auto" or a'):
        tune.init(**arguments)


def test_a_file_called_like_a_standard_module_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "types.py").write_text("raise RuntimeError('not this one')")
    monkeypatch.chdir(tmp_path)
    assert search(trainables.count, tmp_path, {"steps": 3}, num_samples=2).counts == {Outcome.COMPLETED: 2}


def test_a_zygote_that_cannot_even_start_fails_its_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_actors, "_own", {})
    monkeypatch.setattr(own_actors, "make_actor", in_an_environment_that_ends_python(tmp_path))
    results = search(trainables.count, tmp_path, {"steps": 3}, num_samples=2)
    assert {result.outcome for result in results} <= {Outcome.FAILED, Outcome.LOST}
    assert all("the process that templates are forked from" in result.reason for result in results)


def in_an_environment_that_ends_python(tmp_path: Path) -> Any:
    """As make_actor, but every Python that the actor starts exits before it does anything."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import os, sys\nif 'gandiva_ray.trial.zygote' in ' '.join(sys.orig_argv): os._exit(3)\n"
    )
    path = os.pathsep.join([str(tmp_path / "site"), *sys.path])

    def make(cls: type[Any], *arguments: Any, **options: Any) -> Any:
        return make_actor(cls, *arguments, runtime_env={"env_vars": {"PYTHONPATH": path}}, **options)

    return make


def test_a_class_that_its_search_stops_leaves_its_last_checkpoint_and_the_files_of_ray_tune(tmp_path: Path) -> None:
    class Count(tune.Trainable):
        def step(self) -> dict[str, Any]:
            trainables.burn(0.005)
            return {"value": self.config["x"] * (self.iteration + 1)}

        def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
            return {"iteration": self.iteration}

    results = tune.Tuner(
        Count,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig("value", "max", num_samples=3, searcher=tune.SuccessiveHalving(max_t=3)),
        run_config=tune.RunConfig(
            storage_path=tmp_path, verbose=0, checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True)
        ),
    ).fit()
    assert sorted(result.steps for result in results) == [1, 1, 3]
    for result in results:
        assert result.checkpoint is not None
        assert result.checkpoint.to_dict() == {"iteration": result.steps}
        read = RaysResult.from_path(result.path)
        assert read.metrics["value"] == result.metrics["value"]
        assert (read.config, len(read.metrics_dataframe)) == (result.config, result.steps)
        assert read.checkpoint.path == result.checkpoint.path
        assert tune.Result.from_path(result.path).metrics == result.metrics
