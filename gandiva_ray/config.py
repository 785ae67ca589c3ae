"""What a user says about a search, checked the moment it is said."""

from __future__ import annotations

import datetime
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from gandiva_ray.core.search import Algorithm, Mode

_T = TypeVar("_T")

_SEARCHER = "pass a searcher, which suggests trials and acts on feedback too: searcher=gandiva_ray.Hyperband(...)"
_SECONDS = "use time_budget_s, target or a searcher that stops trials"
_OUTPUT = "use RunConfig(verbose=0) for silence and read ResultGrid.get_dataframe()"

_RAY_TUNE_CONFIG = {
    "search_alg": _SEARCHER,
    "scheduler": _SEARCHER,
    "reuse_actors": "leave it out: trials are always forked from one warm process",
    "trial_name_creator": "leave it out: trials are called 00000, 00001, ...",
    "trial_dirname_creator": "leave it out: a trial's folder is <run>/<trial>",
    "chdir_to_trial_dir": "leave it out: a trial always works in its own folder",
    "stop": _SECONDS,
}
_RAY_RUN_CONFIG = {
    "failure_config": "leave it out: failed trials are not retried yet",
    "checkpoint_config": "leave it out: checkpoints are not supported yet",
    "sync_config": "set storage_path to a folder that all nodes share",
    "storage_filesystem": "set storage_path to a folder that all nodes share",
    "local_dir": "use storage_path",
    "stop": _SECONDS,
    "callbacks": _OUTPUT,
    "progress_reporter": _OUTPUT,
    "log_to_file": "leave it out: what a trial prints always goes to a file in its folder",
}


def explain_unknown(instead: Mapping[str, str]) -> Callable[[type[_T]], type[_T]]:
    """Decorate a class: a keyword that it lacks raises a TypeError that says what to use instead.

    `instead` holds the advice for keywords that Ray Tune has; for any other the nearest known one is named.
    """

    def decorate(cls: type[_T]) -> type[_T]:
        init: Callable[..., None] = cls.__init__
        known = list(inspect.signature(cls).parameters)

        @functools.wraps(init)
        def checked_init(self: _T, *args: Any, **keywords: Any) -> None:
            for keyword in keywords:
                if keyword not in known:
                    raise TypeError(_unknown_keyword(cls.__name__, keyword, known, instead))
            init(self, *args, **keywords)

        cls.__init__ = checked_init  # type: ignore[assignment]
        return cls

    return decorate


def _unknown_keyword(owner: str, keyword: str, known: list[str], instead: Mapping[str, str]) -> str:
    if keyword in instead:
        return f"{owner} has no {keyword!r} (Ray Tune has it): {instead[keyword]}"
    nearest = get_close_matches(keyword, known, n=1)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return f"{owner} has no {keyword!r}: {hint}It takes {', '.join(known)}"


@explain_unknown(_RAY_TUNE_CONFIG)
@dataclass(frozen=True, slots=True)
class TuneConfig:
    """How to search.

    `metric` names a number that the trials report ("/" reaches into nested dicts), `mode` is "min" or "max";
    only a search that judges nothing does without. `num_samples` counts samples of the space; each grid_search
    multiplies them. `searcher` defaults to RandomSearch(). The search ends at the first trial that reports a metric as
    good as `target`, or `time_budget_s` seconds (or a timedelta) after fit() was called. At most
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
        if self.metric is None and (self.mode is not None or self.target is not None):
            raise ValueError("mode and target are about a metric: add metric, the name of a reported number")
        if self.metric is not None and self.mode is None:
            raise ValueError(f'is a small or a large {self.metric} good? Add mode="min" or mode="max"')

    @property
    def time_budget(self) -> float | None:
        """The budget in seconds."""
        budget = self.time_budget_s
        return budget.total_seconds() if isinstance(budget, datetime.timedelta) else budget


@explain_unknown(_RAY_RUN_CONFIG)
@dataclass(frozen=True, slots=True)
class RunConfig:
    """Where a run is kept and how much it prints.

    The run's folder is `<storage_path>/<name>`; by default `~/gandiva_ray_results` and a name that is never taken.
    `verbose` 0 prints nothing, 1 shows the progress. Raises TypeError or ValueError, naming the field and the fix.
    """

    name: str | None = None
    storage_path: str | Path | None = None
    verbose: int = 1

    def __post_init__(self) -> None:
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
        raise ValueError(
            "num_samples=-1 (sample without end) is not supported yet: "
            "give a number, and let target or time_budget_s end the search sooner"
        )
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
