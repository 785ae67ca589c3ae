"""The front door: a training function and a space in, the best configuration out."""

from __future__ import annotations

import datetime
import itertools
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

from gandiva_ray.config import RunConfig, TuneConfig, explain_unknown
from gandiva_ray.core.model import Outcome
from gandiva_ray.core.multi_job import MultiJob, TrialRecord
from gandiva_ray.core.search import Algorithm, Problem
from gandiva_ray.progress import Heading, Progress, open_progress
from gandiva_ray.results import Result, ResultGrid
from gandiva_ray.run_log import Reports, RunLog
from gandiva_ray.search_loop import SearchLoop
from gandiva_ray.search_session import SearchSession
from gandiva_ray.serialize import dump_trainable
from gandiva_ray.trainable import Trainable, check_space, check_trainable, name_of

_DEFAULT_STORAGE = "~/gandiva_ray_results"
_IN_TUNE_CONFIG = dict.fromkeys(
    ("metric", "mode", "num_samples", "searcher", "search_alg", "scheduler", "time_budget_s"),
    "it belongs into tune_config=TuneConfig(...)",
)
_IN_RUN_CONFIG = dict.fromkeys(("name", "storage_path", "verbose"), "it belongs into run_config=RunConfig(...)")


@explain_unknown({"config": "use param_space", **_IN_TUNE_CONFIG, **_IN_RUN_CONFIG})
class Tuner:
    """A search to be run: `trainable(config)` for configurations of `param_space`, as in Ray Tune.

    Raises TypeError or ValueError, naming the argument and the fix, before any device is used.
    """

    def __init__(
        self,
        trainable: Trainable,
        *,
        param_space: Mapping[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
    ) -> None:
        check_trainable(trainable)
        self._trainable = trainable
        self._space: Mapping[str, Any] = {} if param_space is None else param_space
        check_space(self._space)
        self._tune = _config(TuneConfig, "tune_config", tune_config)
        self._run = _config(RunConfig, "run_config", run_config)
        if self._tune.metric is None:
            raise ValueError('the search needs a metric: tune_config=TuneConfig(metric="accuracy", mode="max")')
        if self._tune.mode is None:
            raise ValueError(f'is a small or a large {self._tune.metric} good? Add mode="min" or mode="max" to TuneConfig')
