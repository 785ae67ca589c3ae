"""Trials as forks, as fresh processes and as Ray actors: to the user they are the same."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

import gandiva_ray as tune
from gandiva_ray.config import StartMethod
from gandiva_ray.core.model import Outcome
from tests.runtime import trainables
from tests.runtime.cluster_state import eventually

pytestmark = [
    pytest.mark.usefixtures("embedded_ray"),
    pytest.mark.parametrize("method", ["fork", "spawn", "actor"]),
]


def search(
    trainable: Any,
    folder: Path,
    space: Mapping[str, Any],
    method: StartMethod,
    max_failures: int = 0,
    **tune_config: Any,
) -> tune.ResultGrid:
    """Checks that none of its trials outlives it."""
    settings = {"metric": "value", "mode": "max", **tune_config}
    run_config = tune.RunConfig(
        storage_path=folder,
        verbose=0,
        start_method=method,
        failure_config=tune.FailureConfig(max_failures=max_failures),
    )
    before = frozenset(trial_processes())
    results = tune.Tuner(
        trainable, param_space=space, tune_config=tune.TuneConfig(**settings), run_config=run_config
    ).fit()
    eventually(lambda: not frozenset(trial_processes()) - before, 10, "nothing of its trials is left")
    return results


def trial_processes() -> list[psutil.Process]:
    """Processes below this one that only trials have: forks of templates cannot be told from these."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            name = " ".join(process.cmdline())
            if ("gandiva_ray.trial" in name and "zygote" not in name) or "TrialProcess" in name:
                found.append(process)
        except psutil.NoSuchProcess:
            pass
    return found


def learn(config: Mapping[str, Any]) -> None:
    """A training run with random numbers and an optimiser, whose trials take turns between mini-batches."""
    import torch

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    print("learning", os.path.basename(os.getcwd()))
    for _ in range(4):
        for _ in range(20):
            loss = (model(torch.randn(8, 4)) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            trainables.burn(0.002)
        tune.report({"value": float(loss), "pid": os.getpid()})


def search_in_rungs(method: StartMethod, folder: Path) -> tune.ResultGrid:
    space = {"lr": tune.loguniform(1e-4, 0.1)}
    rungs = tune.SuccessiveHalving(max_t=4, reduction_factor=2)
    return search(learn, folder, space, method, num_samples=4, mode="min", seed=3, searcher=rungs)


def found(results: tune.ResultGrid) -> list[Any]:
    return [(result.config, result.outcome, result.steps, result.metrics["value"]) for result in results]


@pytest.fixture(scope="module")
def found_by_forks(embedded_ray: None, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return found(search_in_rungs("fork", tmp_path_factory.mktemp("forks")))


def test_rungs_give_the_same_numbers_and_every_trial_lives_in_its_own_folder(
    method: StartMethod, tmp_path: Path, found_by_forks: list[Any]
) -> None:
    results = search_in_rungs(method, tmp_path)
    assert found(results) == found_by_forks
    assert sorted(result.steps for result in results) == [1, 1, 2, 4]
    assert len({result.metrics["pid"] for result in results}) == 4
    for result in results:
        assert Path(result.path, "stdout").read_text() == f"learning {result.trial_id}\n"


def end_in_some_way(config: Mapping[str, Any]) -> None:
    tune.report({"value": 1.0})
    match config["how"]:
        case "raise":
            raise ArithmeticError("too hard")
        case "kill":
            os.kill(os.getpid(), 9)
    for _ in range(20):
        trainables.burn(0.01)
        tune.report({"value": 2.0})


def test_a_trial_that_raises_or_is_killed_fails_alone(method: StartMethod, tmp_path: Path) -> None:
    results = search(end_in_some_way, tmp_path, {"how": tune.grid_search(["raise", "kill", "return"])}, method)
    raised, killed, returned = results
    assert (raised.outcome, killed.outcome, returned.outcome) == (Outcome.FAILED, Outcome.FAILED, Outcome.COMPLETED)
    assert raised.reason.startswith("ArithmeticError: too hard (test_start_methods.py:")
    assert 'raise ArithmeticError("too hard")' in Path(raised.path, "error.txt").read_text()
    assert killed.reason == "its process was killed by signal 9 (SIGKILL)"
    assert (raised.steps, killed.steps, returned.steps) == (1, 1, 21)


def reach_or_hang(config: Mapping[str, Any]) -> None:
    tune.report({"value": 0.0})
    if config["hang"]:
        while True:
            pass
    for step in range(100):
        trainables.burn(0.02)
        tune.report({"value": float(step)})


def test_an_endless_loop_is_ended_by_force_when_the_search_is_over(method: StartMethod, tmp_path: Path) -> None:
    results = search(reach_or_hang, tmp_path, {"hang": tune.grid_search([True, False])}, method, target=30.0)
    assert [result.outcome for result in results] == [Outcome.STOPPED, Outcome.COMPLETED]
    assert results[1].metrics["value"] == 30.0


def test_a_trial_that_is_tried_again_goes_on_from_its_checkpoint(method: StartMethod, tmp_path: Path) -> None:
    def train(config: Mapping[str, Any]) -> None:
        checkpoint = tune.get_checkpoint()
        begin = checkpoint.to_dict()["step"] if checkpoint else 0
        for step in range(begin + 1, 7):
            tune.report({"value": float(begin)}, checkpoint=tune.Checkpoint.from_dict({"step": step}))
            if step == 3 and not begin:
                raise RuntimeError("once")

    (result,) = search(train, tmp_path, {}, method, max_failures=1)
    assert (result.outcome, result.steps, result.metrics["value"]) == (Outcome.COMPLETED, 6, 3.0)


@pytest.mark.slow
def test_shares_that_fit_run_side_by_side(method: StartMethod, tmp_path: Path) -> None:
    together = tmp_path / "together"
    together.mkdir()
    trainable = tune.with_resources(trainables.tell_neighbours, {"cpu": 0.5})
    space = {"folder": str(together), "steps": 150}
    results = search(trainable, tmp_path, space, method, num_samples=4)
    assert results.counts == {Outcome.COMPLETED: 4}
    assert max(result.metrics["value"] for result in results) == 4.0


def test_a_trial_may_use_ray_itself_in_an_actor(method: StartMethod, tmp_path: Path) -> None:
    def train(config: Mapping[str, Any]) -> None:
        import ray

        double = ray.remote(lambda x: 2 * x)
        tune.report({"value": float(ray.get(double.remote(21)))})

    (result,) = search(train, tmp_path, {}, method)
    if method == "actor":
        assert (result.outcome, result.metrics["value"]) == (Outcome.COMPLETED, 42.0)
    else:
        assert result.outcome is Outcome.FAILED
        assert 'a trial that uses Ray needs RunConfig(start_method="actor")' in result.error
