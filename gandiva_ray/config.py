"""What a user says about a search, checked the moment it is said."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gandiva_ray.arguments import explain_unknown
from gandiva_ray.core.model import TrialId
from gandiva_ray.core.multi_job import StopRule
from gandiva_ray.core.search import Algorithm, Mode

Space = Mapping[str, Any]
StartMethod = Literal["fork", "spawn", "actor"]
Stop = Mapping[str, float] | Callable[[TrialId, dict[str, Any]], bool]

_SEARCHER = "pass a searcher, which suggests trials and acts on feedback too: searcher=gandiva_ray.Hyperband(...)"
_OUTPUT = "use RunConfig(verbose=0) for silence and read ResultGrid.get_dataframe()"

_RAY_TUNE_CONFIG = {
    "search_alg": _SEARCHER,
    "scheduler": _SEARCHER,
    "reuse_actors": "leave it out: trials are always forked from one warm process",
    "trial_name_creator": "leave it out: trials are called 00000, 00001, ...",
    "trial_dirname_creator": "leave it out: a trial's folder is <run>/<trial>",
    "chdir_to_trial_dir": "leave it out: a trial always works in its own folder",
    "stop": "it belongs into run_config=RunConfig(stop=...)",
}
_RAY_RUN_CONFIG = {
    "sync_config": "set storage_path to a folder that all nodes share",
    "storage_filesystem": "set storage_path to a folder that all nodes share",
    "local_dir": "use storage_path",
    "callbacks": _OUTPUT,
    "progress_reporter": _OUTPUT,
    "log_to_file": "leave it out: what a trial prints always goes to a file in its folder",
}


@explain_unknown(_RAY_TUNE_CONFIG)
@dataclass(frozen=True, slots=True)
class TuneConfig:
    """How to search.

    `metric` names a number that the trials report ("/" reaches into nested dicts), `mode` is "min" or "max";
    only a search that judges nothing does without. `num_samples` counts samples of the space (-1: without end); each
    grid_search multiplies them. `searcher` defaults to RandomSearch(). The search ends at the first trial that reports
    a metric as good as `target`, or `time_budget_s` seconds (or a timedelta) after fit() was called. At most
    `max_concurrent_trials` wait for a device or take turns at once; the default is as many as fit in memory. The same
    `seed` gives the same configurations.

    Raises TypeError or ValueError, naming the field and the fix.
    """

    metric: str | None = None
    mode: Mode | None = None
    num_samples: int = 1
    searcher: Algorithm | None = None
    target: float | None = None
    time_budget_s: float | datetime.timedelta | None = None
    max_concurrent_trials: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.metric is not None and (not isinstance(self.metric, str) or not self.metric):
            raise TypeError(f'metric is the name of a reported number, like "accuracy"; got {self.metric!r}')
        if self.mode not in ("min", "max", None):
            raise ValueError(f'mode is "min" or "max", got {self.mode!r}{_did_you_mean_mode(self.mode)}')
        _check_num_samples(self.num_samples)
        _check_searcher(self.searcher)
        if self.target is not None and (not _is_number(self.target) or not math.isfinite(self.target)):
            raise ValueError(
                f"target is a finite number, a value of the metric that is good enough; got {self.target!r}"
            )
        _check_time_budget(self.time_budget_s)
        if self.max_concurrent_trials is not None:
            _check_count("max_concurrent_trials", self.max_concurrent_trials, "leave it out for as many as fit")
        if not _is_integer(self.seed) or not 0 <= self.seed < 2**32:
            raise ValueError(f"seed is a whole number from 0 to 2**32 - 1, got {self.seed!r}")
        if self.num_samples == -1 and self.max_concurrent_trials is None:
            raise ValueError("num_samples=-1 samples without end: add max_concurrent_trials, how many to run at once")
        if self.metric is None and (self.mode is not None or self.target is not None):
            raise ValueError("mode and target are about a metric: add metric, the name of a reported number")
        if self.metric is not None and self.mode is None:
            raise ValueError(f'is a small or a large {self.metric} good? Add mode="min" or mode="max"')

    @property
    def time_budget(self) -> float | None:
        """The budget in seconds."""
        budget = self.time_budget_s
        return budget.total_seconds() if isinstance(budget, datetime.timedelta) else budget


@explain_unknown()
@dataclass(frozen=True, slots=True)
class FailureConfig:
    """What becomes of trials that fail.

    One is tried again up to `max_failures` times (-1: without end), from its last checkpoint, or from its beginning if
    it saved none. With `fail_fast` the first trial that fails for good ends the search. Trials that are lost with their
    node are tried again in any case. Raises ValueError, naming the field and the fix.
    """

    max_failures: int = 0
    fail_fast: bool = False

    def __post_init__(self) -> None:
        if not _is_integer(self.max_failures) or self.max_failures < -1:
            raise ValueError(
                f"max_failures is how often a trial is tried again, or -1 for no end; got {self.max_failures!r}"
            )
        if not isinstance(self.fail_fast, bool):
            raise ValueError(f"fail_fast is True or False, got {self.fail_fast!r}")
        if self.fail_fast and self.max_failures != 0:
            raise ValueError("fail_fast ends the search at the first failure: leave max_failures at 0")


@explain_unknown()
@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """Which checkpoints of a trial to keep: the last one, and `num_to_keep` in all (None: every one).

    They are the best by the metric `checkpoint_score_attribute`, "max" or "min" as `checkpoint_score_order` says; the
    latest where no metric is named. A class trainable saves one after every `checkpoint_frequency` steps (0: never),
    and with `checkpoint_at_end` one after its last step, also where it is stopped between two steps: not where it is
    stopped in the middle of a step, as trials that use PyTorch may be. A function reports its own. Raises TypeError or
    ValueError, naming the field and the fix.
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: Mode = "max"
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.checkpoint_at_end, bool):
            raise ValueError(f"checkpoint_at_end is True or False, got {self.checkpoint_at_end!r}")
        if not _is_integer(self.checkpoint_frequency) or self.checkpoint_frequency < 0:
            raise ValueError(f"checkpoint_frequency is a number of steps, or 0; got {self.checkpoint_frequency!r}")
        if self.num_to_keep is not None:
            _check_count("num_to_keep", self.num_to_keep, "leave it out to keep every checkpoint")
        if self.checkpoint_score_attribute is not None and not isinstance(self.checkpoint_score_attribute, str):
            raise TypeError(
                f"checkpoint_score_attribute is the name of a metric, got {self.checkpoint_score_attribute!r}"
            )
        if self.checkpoint_score_order not in ("min", "max"):
            order = self.checkpoint_score_order
            raise ValueError(f'checkpoint_score_order is "min" or "max", got {order!r}{_did_you_mean_mode(order)}')


@explain_unknown(_RAY_RUN_CONFIG)
@dataclass(frozen=True, slots=True)
class RunConfig:
    """Where a run is kept and how much it prints.

    The run's folder is `<storage_path>/<name>`; by default `~/gandiva_ray_results` and a name that is never taken.
    `verbose` 0 prints nothing, 1 shows the progress. `failure_config` says whether trials that fail are tried again,
    `checkpoint_config` which checkpoints are kept. `stop` says when a trial has done enough: the first metric that
    reaches its number in a dict like {"training_iteration": 10}, or a function of trial id and metrics.

    `start_method` is how trials start: "fork" from one warm process that has loaded the training function; "spawn",
    each a fresh process that loads it itself, seconds later; or "actor", the same in a Ray actor, for training
    functions that use Ray themselves. The default forks, and spawns where that is not safe.

    Raises TypeError or ValueError, naming the field and the fix.
    """

    name: str | None = None
    storage_path: str | Path | None = None
    verbose: int = 1
    failure_config: FailureConfig | None = None
    checkpoint_config: CheckpointConfig | None = None
    stop: Stop | None = None
    start_method: StartMethod | None = None

    def __post_init__(self) -> None:
        _check_kind("failure_config", self.failure_config, FailureConfig)
        _check_stop(self.stop)
        _check_kind("checkpoint_config", self.checkpoint_config, CheckpointConfig)
        if self.name is not None and not _is_folder_name(self.name):
            raise ValueError(f"name is the name of a folder under storage_path, without slashes; got {self.name!r}")
        if self.storage_path is not None and not isinstance(self.storage_path, str | Path):
            raise TypeError(f"storage_path is the path of a folder, got {self.storage_path!r}")
        if "://" in str(self.storage_path):
            raise ValueError(
                f"storage_path {str(self.storage_path)!r} is a URI, which is not supported yet: "
                "give a local or mounted path"
            )
        if self.verbose not in (0, 1):
            raise ValueError(f"verbose is 0 (silent) or 1 (progress), got {self.verbose!r}")
        if self.start_method not in ("fork", "spawn", "actor", None):
            raise ValueError(
                f'start_method is "fork", "spawn" or "actor", got {self.start_method!r}: '
                "leave it out to fork where that is safe"
            )


def _check_stop(stop: object) -> None:
    if hasattr(stop, "stop_all"):
        kind = stop.__name__ if isinstance(stop, type) else type(stop).__name__
        raise TypeError(
            f"stop is a {kind}, a Stopper of Ray Tune, which is not supported yet: give a dict like "
            '{"training_iteration": 10} or a function of trial id and metrics, and TuneConfig(time_budget_s=...) or '
            "TuneConfig(target=...) for what ends the whole search"
        )
    if stop is None or (callable(stop) and not isinstance(stop, type)):
        return
    if not isinstance(stop, Mapping) or not stop or not all(map(_is_number, stop.values())):
        raise TypeError(
            f'stop is a dict like {{"training_iteration": 10}}, or a function of trial id and metrics; got {stop!r}'
        )


def stop_rule(stop: Stop | None) -> StopRule | None:
    """It raises ValueError where a trial does not report a metric that `stop` names."""
    if stop is None:
        return None
    if not isinstance(stop, Mapping):
        has_enough = stop
        return lambda trial, metrics: "the stop function said so" if has_enough(trial, dict(metrics)) else ""
    enough = dict(stop)

    def rule(trial: TrialId, metrics: Mapping[str, Any]) -> str:
        if missing := [name for name in enough if name not in metrics]:
            raise ValueError(f"stop names {missing[0]!r}, which trial {trial} does not report: {', '.join(metrics)}")
        reached = (name for name, limit in enough.items() if _is_number(metrics[name]) and metrics[name] >= limit)
        name = next(reached, "")
        return f"{name} reached {enough[name]:g}" if name else ""

    return rule


def _check_kind(name: str, value: object, kind: type) -> None:
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{name} is a gandiva_ray.{kind.__name__}, got {value!r}")


def _is_folder_name(name: object) -> bool:
    return isinstance(name, str) and name not in ("", ".", "..") and Path(name).name == name


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _did_you_mean_mode(mode: object) -> str:
    nearest = {"maximize": "max", "maximum": "max", "minimize": "min", "minimum": "min"}.get(str(mode).lower())
    return f': did you mean "{nearest}"?' if nearest else ""


def _check_count(name: str, value: object, fix: str) -> None:
    if not _is_integer(value) or value < 1:  # type: ignore[operator]
        raise ValueError(f"{name} is a whole number, at least 1; got {value!r}: {fix}")


def _check_num_samples(num_samples: object) -> None:
    if num_samples == -1:
        return
    _check_count("num_samples", num_samples, "say how many configurations to sample")


def _check_time_budget(budget: object) -> None:
    if budget is None:
        return
    seconds = budget.total_seconds() if isinstance(budget, datetime.timedelta) else budget
    if not _is_number(seconds) or not seconds > 0:  # type: ignore[operator]
        raise ValueError(f"time_budget_s is a number of seconds above 0, got {budget!r}: leave it out for no limit")


def _check_searcher(searcher: object) -> None:
    if searcher is None or (callable(getattr(searcher, "start", None)) and not isinstance(searcher, type)):
        return
    if isinstance(searcher, type) and hasattr(searcher, "start"):
        raise TypeError(f"searcher is the class {searcher.__name__}: call it, searcher={searcher.__name__}(...)")
    if type(searcher).__module__.startswith("ray.tune"):
        raise TypeError(f"{type(searcher).__name__} of Ray Tune is not supported yet: {_SEARCHER}")
    raise TypeError(f"searcher is an object like gandiva_ray.Hyperband(max_t=27), got {searcher!r}")
