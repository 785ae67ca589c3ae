"""The names under `gandiva_ray`: there, lazily; and what is not there says what to use instead."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import gandiva_ray
import searchers


def python(code: str, *, cwd: Path, path: str = "") -> str:
    """What an interpreter of its own prints."""
    root = str(Path(gandiva_ray.__file__).parent.parent)
    environment = {"PYTHONPATH": ":".join(filter(None, (path, root)))}
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_importing_the_package_loads_nothing_heavy(tmp_path: Path) -> None:
    heavy = "{'ray', 'torch', 'optuna', 'pandas', 'numpy', 'rich', 'cloudpickle'}"
    code = f"import sys, gandiva_ray; dir(gandiva_ray); print(sorted({heavy} & set(sys.modules)))"
    assert python(code, cwd=tmp_path) == "[]\n"


def test_a_tuner_is_made_without_ray_torch_or_pandas(tmp_path: Path) -> None:
    code = (
        "import sys, gandiva_ray as tune\n"
        "tune.Tuner(lambda config: 0, param_space={'x': tune.uniform(0, 1)}, tune_config=tune.TuneConfig('m', 'max'))\n"
        "print(sorted({'ray', 'torch', 'pandas'} & set(sys.modules)))"
    )
    assert python(code, cwd=tmp_path) == "[]\n"


def test_a_trial_gets_report_alone(tmp_path: Path) -> None:
    code = "import sys, gandiva_ray; gandiva_ray.report; print({'ray', 'rich', 'optuna'} & set(sys.modules))"
    assert python(code, cwd=tmp_path) == "set()\n"


@pytest.mark.parametrize("name", [name for name in gandiva_ray.__all__ if name not in ("init", "shutdown")])
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(gandiva_ray, name) is not None
    assert name in dir(gandiva_ray)


def test_init_and_shutdown_are_the_runtimes(monkeypatch: pytest.MonkeyPatch) -> None:
    client = ModuleType("gandiva_ray.runtime.client")
    client.init, client.shutdown = print, repr  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, client.__name__, client)
    for name in ("init", "shutdown"):
        monkeypatch.delitem(vars(gandiva_ray), name, raising=False)
    assert (gandiva_ray.init, gandiva_ray.shutdown) == (print, repr)
    for name in ("init", "shutdown"):
        monkeypatch.delitem(vars(gandiva_ray), name)


def test_all_that_searchers_offers_is_public() -> None:
    assert set(searchers.__all__) - {"Space"} <= set(gandiva_ray.__all__)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("PopulationBasedTraining", "gandiva_ray.Hyperband"),
        ("ASHAScheduler", "gandiva_ray.ASHA"),
        ("PlacementGroupFactory", "with_resources"),
        ("run", "Tuner(...).fit()"),
    ],
)
def test_a_name_of_ray_tune_that_is_missing_says_what_to_use(name: str, instead: str) -> None:
    with pytest.raises(AttributeError) as missing:
        getattr(gandiva_ray, name)
    assert f"gandiva_ray has no '{name}' yet (Ray Tune has it)" in str(missing.value)
    assert instead in str(missing.value)
    with pytest.raises(ImportError) as not_imported:
        exec(f"from gandiva_ray import {name}")
    assert str(not_imported.value) == str(missing.value)
    assert not hasattr(gandiva_ray, name)


def test_every_public_name_of_ray_tune_is_there_or_says_why_not() -> None:
    source = Path(sys.modules["gandiva_ray"].__file__ or "").read_text()
    for name in RAY_TUNE_NAMES.split():
        assert name in gandiva_ray.__all__ or f'"{name}":' in source, name


RAY_TUNE_NAMES = """
    Trainable Callback TuneError grid_search register_env register_trainable run run_experiments
    with_parameters with_resources Stopper Experiment sample_from uniform quniform choice randint
    lograndint qrandint qlograndint randn qrandn loguniform qloguniform ExperimentAnalysis CLIReporter
    JupyterNotebookReporter ProgressReporter ResultGrid create_searcher create_scheduler
    PlacementGroupFactory Tuner TuneConfig ResumeConfig RunConfig CheckpointConfig FailureConfig Result
    Checkpoint get_checkpoint report get_context TuneContext SyncConfig
"""


def test_a_typo_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'HyperBand': did you mean 'Hyperband'\?"):
        gandiva_ray.HyperBand  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'HyperBand'"):
        exec("from gandiva_ray import HyperBand")


def test_submodules_are_imported_as_ever(tmp_path: Path) -> None:
    assert python("from gandiva_ray import config; print(config.__name__)", cwd=tmp_path) == "gandiva_ray.config\n"


@pytest.mark.parametrize(
    "code", ["gandiva_ray.uniform", "gandiva_ray.Tuner(print, tune_config=gandiva_ray.TuneConfig('m', 'max'))"]
)
def test_a_foreign_package_called_searchers_is_named_by_its_file(tmp_path: Path, code: str) -> None:
    (tmp_path / "searchers.py").write_text("mine = 1\n")
    message = python(f"import gandiva_ray\n{code}", cwd=tmp_path, path=str(tmp_path))
    assert "ImportError: gandiva_ray needs its own package 'searchers'" in message
    assert str(tmp_path / "searchers.py") in message
    assert "Rename it" in message
