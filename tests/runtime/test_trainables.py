"""Training functions of every kind take turns on one device of each node of a real Ray, as if each were alone."""

import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

import gandiva_ray as tune
from gandiva_ray.core.model import Outcome
from gandiva_ray.run_log import read_log
from gandiva_ray.trial.child import seed_everything
from tests.runtime import kinds, lightning_module
from tests.runtime.cluster_state import eventually
from tests.whole_runs import run_python

QUANTUM = 0.03
SEED = 3
MANY = 10**6

Train = Callable[..., Any]


@pytest.fixture(scope="module", autouse=True)
def one_device(embedded_ray: None, journal: Path) -> Iterator[None]:
    tune.init(devices=1, quantum=QUANTUM, journal=journal)
    yield
    tune.init(devices=2, journal=journal)


@pytest.fixture(scope="module")
def pairs(pytestconfig: pytest.Config) -> dict[str, Any]:
    """A space of two configurations for each device."""
    return {"x": tune.grid_search([0.01 * n for n in range(1, 2 * pytestconfig.getoption("nodes") + 1)])}


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """No process, and no word on the screen."""
    yield
    eventually(lambda: not trial_processes(tmp_path), 10, f"all ended: {trial_processes(tmp_path)}")
    assert capfd.readouterr() == ("", "")


def trial_processes(tmp_path: Path) -> list[str]:
    """What hangs below our zygotes, and what runs in the folder of a trial."""
    own, found = psutil.Process(), []
    for process in psutil.process_iter():
        try:
            parents = process.parents()
            below = any("gandiva_ray.trial.zygote" in parent.cmdline() for parent in parents)
            if (below and own in parents) or Path(process.cwd()).is_relative_to(tmp_path):
                found.append(f"{process.pid} {process.cmdline()}")
        except (psutil.Error, FileNotFoundError):
            continue
    return found


def search(
    trainable: Any, folder: Path, space: dict[str, Any], target: float | None = None, **options: Any
) -> tune.ResultGrid:
    """All trials of the grid at once; nobody is stopped before one reaches the `target`."""
    searcher = tune.ASHA(max_t=MANY, grace_period=MANY)
    return tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(metric="value", mode="max", searcher=searcher, seed=SEED, target=target),
        run_config=tune.RunConfig(storage_path=folder, verbose=0, **options),
    ).fit()


def reports(result: tune.Result) -> list[dict[str, Any]]:
    lines = read_log(Path(str(result.path)).parent)
    return [dict(line["metrics"]) for line in lines if line["what"] == "report" and line["trial"] == result.trial_id]


def took_turns(results: tune.ResultGrid) -> bool:
    """Between the first and the last report of every trial there are others' reports."""
    trials = [line["trial"] for line in read_log(Path(results.path)) if line["what"] == "report"]
    spans = {trial: len(trials) - trials.index(trial) - trials[::-1].index(trial) for trial in trials}
    return all(span > trials.count(trial) for trial, span in spans.items())


def alone(train: Train, result: tune.Result) -> list[dict[str, Any]]:
    """What the function reports when it is called here."""
    rows: list[dict[str, Any]] = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            patch.setattr(tune, "report", lambda metrics, **_: rows.append(metrics))
            patch.chdir(Path.cwd())  # it goes back there
            seed_everything(SEED, result.trial_id)
            rows += train(result.config) or ()
    finally:
        torch.set_num_threads(threads)
    return [{**row, "training_iteration": step} for step, row in enumerate(rows, 1)]


KINDS = [
    kinds.new_workers_each_epoch,
    kinds.persistent_workers,
    kinds.pinned_memory,
    kinds.lbfgs,
    kinds.adversarial,
    kinds.mixed_precision,
    kinds.linear_classifier,
    kinds.forest,
    kinds.joblib_processes,
    kinds.pure_python,
    kinds.pool,
    kinds.process_executor,
    kinds.thread_that_reports,
    kinds.shell,
    kinds.event_loop,
    kinds.moves_away,
    kinds.alarm_clock,
]
NOT_CALLED_HERE = [
    kinds.own_signal_handlers,
    kinds.closes_its_output,
    kinds.threads_that_report,
    kinds.pool_left_open,
]


@pytest.fixture(scope="module")
def results(one_device: None, tmp_path_factory: pytest.TempPathFactory) -> tune.ResultGrid:
    """One search in which a trial of every kind takes turns with all the others."""
    names = [train.__name__ for train in [*KINDS, *NOT_CALLED_HERE]]
    space = {"kind": tune.grid_search(names), "x": 0.1}
    return search(kinds.dispatch, tmp_path_factory.mktemp("kinds"), space)


def of_kind(results: tune.ResultGrid, train: Train) -> tune.Result:
    return next(result for result in results if result.config["kind"] == train.__name__)


def test_every_kind_completes_in_turns(results: tune.ResultGrid) -> None:
    reasons = {result.config["kind"]: result.reason for result in results if result.outcome is not Outcome.COMPLETED}
    assert reasons == {}
    assert took_turns(results)
    noticed = [line for line in read_log(Path(results.path)) if line["what"] == "noticed"]
    assert noticed == []  # they are forks, though scikit-learn and what it loads are there
    eventually(lambda: not trial_processes(Path(results.path)), 10, "all processes ended")


@pytest.mark.parametrize("train", KINDS, ids=lambda train: train.__name__)
def test_a_trial_reports_what_its_function_reports_alone(results: tune.ResultGrid, train: Train) -> None:
    result = of_kind(results, train)
    assert reports(result) == alone(train, result)


def test_handlers_for_signals_are_the_functions_own(results: tune.ResultGrid) -> None:
    rows = reports(of_kind(results, kinds.own_signal_handlers))
    assert [row["heard"] for row in rows] == [1, 2, 3, 4]


def test_two_threads_report_in_turns(results: tune.ResultGrid) -> None:
    rows = reports(of_kind(results, kinds.threads_that_report))
    assert sorted(row["value"] for row in rows) == [1.0] * kinds.EPOCHS + [2.0] * kinds.EPOCHS
    assert [row["training_iteration"] for row in rows] == list(range(1, 2 * kinds.EPOCHS + 1))


def test_nothing_but_warnings_of_torch_is_written_to_a_trials_stderr(results: tune.ResultGrid) -> None:
    written = {r.config["kind"]: text for r in results if (text := Path(str(r.path), "stderr").read_text())}
    assert set(written) <= {"pinned_memory", "persistent_workers"}, written  # no GPU, two workers on one core


def test_trials_that_will_not_end_are_ended_with_all_they_started(tmp_path: Path) -> None:
    endless = [kinds.swallows_everything, kinds.ignores_sigterm, kinds.workers_without_end, kinds.pool_without_end]
    names = [train.__name__ for train in [*endless, kinds.shell_without_end, kinds.reaches_its_target]]
    results = search(kinds.dispatch, tmp_path, {"kind": tune.grid_search(names), "x": 0.5}, target=100.0)
    assert results.counts == {Outcome.STOPPED: 5, Outcome.COMPLETED: 1}
    assert all(result.steps > 0 for result in results)


@pytest.mark.parametrize("train", [kinds.generator, kinds.compiled, lightning_module.fit], ids=lambda t: t.__name__)
def test_it_takes_turns_with_its_like(train: Train, tmp_path: Path, pairs: dict[str, Any]) -> None:
    results = search(train, tmp_path, pairs)
    assert results.counts == {Outcome.COMPLETED: len(results)}, results.errors
    assert took_turns(results)
    for result in results:
        assert reports(result) == alone(train, result)


def test_a_class_takes_turns_and_goes_on_from_its_checkpoint_after_a_failure(
    tmp_path: Path, pairs: dict[str, Any]
) -> None:
    results = search(
        kinds.Counter,
        tmp_path,
        pairs,
        failure_config=tune.FailureConfig(max_failures=1),
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
    )
    assert results.counts == {Outcome.COMPLETED: len(results)}, results.errors
    assert took_turns(results)
    for result in results:
        values = [row["value"] for row in reports(result)]
        assert values == [result.config["x"] + step for step in range(1, kinds.EPOCHS + 1)]
        assert Path(str(result.path), "stdout").read_text() == "cleaned up at 3\ncleaned up at 4\n"


def test_eight_trials_share_the_data_that_was_given_with_the_function(tmp_path: Path) -> None:
    data = np.ones(50 << 20, dtype=np.uint8)
    results = search(tune.with_parameters(kinds.reads, data=data), tmp_path, {"x": tune.grid_search(list(range(8)))})
    assert results.counts == {Outcome.COMPLETED: 8}, results.errors
    assert took_turns(results)
    assert {result.metrics["value"] for result in results} == {float(len(data) // 4096)}
    assert max(result.metrics["megabytes"] for result in results) < 25


def test_a_lambda_keeps_what_it_captured(tmp_path: Path) -> None:
    factor = random.Random(0).random()
    results = search(lambda config: {"value": factor * config["x"]}, tmp_path, {"x": tune.grid_search([1, 2])})
    assert [result.metrics["value"] for result in results] == [factor, 2 * factor]


SCRIPT = """
import sys
import gandiva_ray as tune
from .neighbour import twice

class Scale:
    def __init__(self, by):
        self.by = by

def train(config):
    for step in range(1, 4):
        tune.report({"value": Scale(twice(step)).by * config["x"]})

def search(function):
    config = tune.TuneConfig(metric="value", mode="max")
    run = tune.RunConfig(storage_path=sys.argv[1], verbose=0)
    return tune.Tuner(function, param_space={"x": tune.grid_search([1, 2])}, tune_config=config, run_config=run).fit()

CELL = '''
from main_package.neighbour import twice
def cell_function(config):
    for step in range(1, 4):
        tune.report({"value": Scale(twice(step)).by * config["x"] + 1})
'''

if __name__ == "__main__":
    print([result.metrics["value"] for result in search(train)])
    main = sys.modules["__main__"]
    del main.__file__, main.__spec__, main.__package__  # as in a notebook
    exec(compile(CELL, "<ipython-input-1>", "exec"), vars(main))
    print([result.metrics["value"] for result in search(cell_function)])
"""


def test_a_function_of_main_finds_what_is_beside_its_script_and_a_notebook_needs_no_file(tmp_path: Path) -> None:
    package = tmp_path / "main_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "neighbour.py").write_text("def twice(x):\n    return 2 * x\n")
    (package / "__main__.py").write_text(SCRIPT)
    run = run_python("-m", "main_package", str(tmp_path / "results"), home=tmp_path)
    assert (run.code, run.out, run.err, run.left) == (0, "[6, 12]\n[7, 13]\n", "", frozenset())
