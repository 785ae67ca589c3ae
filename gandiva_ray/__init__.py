"""Hyper-parameter search on Ray that runs every configuration at once, by slicing time at mini-batch boundaries.

Names are loaded when they are first used: importing the package loads neither ray nor torch nor optuna nor pandas.
"""

from __future__ import annotations

import importlib
import sys
from difflib import get_close_matches
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gandiva_ray.config import CheckpointConfig, FailureConfig, RunConfig, TuneConfig
    from gandiva_ray.results import Result, ResultGrid
    from gandiva_ray.runtime.client import init, shutdown
    from gandiva_ray.trainable import with_parameters
    from gandiva_ray.trial.checkpoint import Checkpoint
    from gandiva_ray.trial.kinds import Trainable
    from gandiva_ray.trial.session import get_checkpoint, get_context, report
    from gandiva_ray.tuner import Tuner
    from searchers import (
        ASHA,
        GridSearch,
        Hyperband,
        RandomSearch,
        SuccessiveHalving,
        choice,
        grid_search,
        lograndint,
        loguniform,
        qlograndint,
        qloguniform,
        qrandint,
        qrandn,
        quniform,
        randint,
        randn,
        sample_from,
        uniform,
    )

__all__ = [
    "Tuner",
    "TuneConfig",
    "RunConfig",
    "Result",
    "ResultGrid",
    "FailureConfig",
    "CheckpointConfig",
    "Checkpoint",
    "Trainable",
    "report",
    "get_checkpoint",
    "get_context",
    "with_parameters",
    "with_resources",
    "init",
    "shutdown",
    "RandomSearch",
    "GridSearch",
    "SuccessiveHalving",
    "ASHA",
    "Hyperband",
    "uniform",
    "quniform",
    "loguniform",
    "qloguniform",
    "randn",
    "qrandn",
    "randint",
    "qrandint",
    "lograndint",
    "qlograndint",
    "choice",
    "sample_from",
    "grid_search",
]

_HOMES = {
    "Tuner": "gandiva_ray.tuner",
    "TuneConfig": "gandiva_ray.config",
    "RunConfig": "gandiva_ray.config",
    "Result": "gandiva_ray.results",
    "ResultGrid": "gandiva_ray.results",
    "FailureConfig": "gandiva_ray.config",
    "CheckpointConfig": "gandiva_ray.config",
    "Checkpoint": "gandiva_ray.trial.checkpoint",
    "Trainable": "gandiva_ray.trial.kinds",
    "report": "gandiva_ray.trial.session",
    "get_checkpoint": "gandiva_ray.trial.session",
    "get_context": "gandiva_ray.trial.session",
    "with_parameters": "gandiva_ray.trainable",
    "with_resources": "gandiva_ray.trainable",
    "init": "gandiva_ray.runtime.client",
    "shutdown": "gandiva_ray.runtime.client",
}

_SEARCHER = "use TuneConfig(searcher=gandiva_ray.Hyperband(...)) or another of its searchers"
_IN_RAY_TUNE = {
    "PopulationBasedTraining": _SEARCHER,
    "PB2": _SEARCHER,
    "AsyncHyperBandScheduler": "use TuneConfig(searcher=gandiva_ray.ASHA(...))",
    "ASHAScheduler": "use TuneConfig(searcher=gandiva_ray.ASHA(...))",
    "HyperBandScheduler": "use TuneConfig(searcher=gandiva_ray.Hyperband(...))",
    "HyperBandForBOHB": "use TuneConfig(searcher=gandiva_ray.Hyperband(...))",
    "MedianStoppingRule": _SEARCHER,
    "FIFOScheduler": "use TuneConfig(searcher=gandiva_ray.RandomSearch())",
    "create_searcher": _SEARCHER,
    "create_scheduler": _SEARCHER,
    "ResumeConfig": "a search cannot be resumed yet",
    "SyncConfig": "use RunConfig(storage_path=...) with a folder that all nodes share",
    "TuneContext": "get_context() returns what there is",
    "PlacementGroupFactory": 'use with_resources(trainable, {"gpu": 2})',
    "Callback": "read ResultGrid.get_dataframe() after fit()",
    "ProgressReporter": "use RunConfig(verbose=0) for silence",
    "CLIReporter": "use RunConfig(verbose=0) for silence",
    "JupyterNotebookReporter": "use RunConfig(verbose=0) for silence",
    "Stopper": "use TuneConfig(target=..., time_budget_s=...) or a searcher that stops trials",
    "Experiment": "use Tuner(...).fit()",
    "ExperimentAnalysis": "use ResultGrid, which fit() returns",
    "run": "use Tuner(...).fit()",
    "run_experiments": "use Tuner(...).fit()",
    "register_trainable": "pass the function itself to Tuner",
    "register_env": "pass the function itself to Tuner",
    "TuneError": "errors are TypeError, ValueError or RuntimeError",
}


if not TYPE_CHECKING:  # a type checker shall miss what is missing

    def __getattr__(name: str) -> object:
        if name in __all__:
            home = _HOMES.get(name)
            value = getattr(importlib.import_module(home) if home else _searchers(), name)
            globals()[name] = value
            return value
        # `from gandiva_ray import x` would replace an AttributeError by an ImportError that says nothing.
        importing = sys._getframe(1).f_code.co_name == "_handle_fromlist"
        known = name in _IN_RAY_TUNE
        raise (ImportError if importing and known else AttributeError)(_missing(name), name=name)


def _missing(name: str) -> str:
    if name in _IN_RAY_TUNE:
        return f"gandiva_ray has no {name!r} yet (Ray Tune has it): {_IN_RAY_TUNE[name]}"
    nearest = get_close_matches(name, __all__, n=1)
    hint = f": did you mean {nearest[0]!r}?" if nearest else ""
    return f"module 'gandiva_ray' has no attribute {name!r}{hint}"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _searchers() -> ModuleType:
    module = importlib.import_module("searchers")
    if not hasattr(module, "Hyperband"):
        raise ImportError(
            f"gandiva_ray needs its own package 'searchers', but Python found another one first: {module.__file__}. "
            "Rename it, or take its folder off sys.path"
        )
    return module
