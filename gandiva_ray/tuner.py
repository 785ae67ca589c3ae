"""The front door: a training function and a space in, the best configuration out."""

from __future__ import annotations

import datetime
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle

from gandiva_ray.arguments import explain_unknown
from gandiva_ray.config import (
    CheckpointConfig,
    FailureConfig,
    RunConfig,
    TuneConfig,
    stop_rule,
)
from gandiva_ray.core.model import Outcome
from gandiva_ray.core.multi_job import Errored, Failures, Keep, MultiJob, Resume, TrialRecord
from gandiva_ray.core.search import Algorithm, Problem
from gandiva_ray.interrupt import ENDED_BY_SIGTERM, Interrupt
from gandiva_ray.progress import Heading, Progress, open_progress
from gandiva_ray.restore import can_restore, load_settings, replay, save_settings
from gandiva_ray.results import Result, ResultGrid
from gandiva_ray.run_folder import create_folder
from gandiva_ray.run_log import Line, Reports, RunLog
from gandiva_ray.search_loop import SearchLoop
from gandiva_ray.search_session import SearchSession, SearchSpec
from gandiva_ray.serialize import dump_trainable, size_hint
from gandiva_ray.trainable import as_function, check_space, check_trainable, name_of, resources_of
from gandiva_ray.trial.checkpoint import Checkpoint
from gandiva_ray.trial_files import TrialFiles

_Config = TypeVar("_Config", TuneConfig, RunConfig)

_IN_TUNE_CONFIG = dict.fromkeys(
    ("metric", "mode", "num_samples", "searcher", "search_alg", "scheduler", "time_budget_s"),
    "it belongs into tune_config=TuneConfig(...)",
)
_IN_RAYS_RESTORE = {
    "storage_filesystem": "give a local or mounted path",
    "resume_config": "use resume_unfinished, resume_errored and restart_errored",
    "_resume_config": "use resume_unfinished, resume_errored and restart_errored",
}
_IN_RUN_CONFIG = dict.fromkeys(("name", "storage_path", "verbose"), "it belongs into run_config=RunConfig(...)")


@explain_unknown({"config": "use param_space", **_IN_TUNE_CONFIG, **_IN_RUN_CONFIG})
class Tuner:
    """A search to be run: `trainable(config)` for configurations of `param_space`, as in Ray Tune.

    Raises TypeError or ValueError, naming the argument and the fix, before any device is used.
    """

    def __init__(
        self,
        trainable: Callable[..., Any],
        *,
        param_space: Mapping[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
    ) -> None:
        check_trainable(trainable)
        self._trainable = trainable
        self._space: Mapping[str, Any] = {} if param_space is None else param_space
        check_space(self._space)
        self._restored: Path | None = None
        self._resume = Resume()
        self._tune = _config(TuneConfig, "tune_config", tune_config)
        self._run = _config(RunConfig, "run_config", run_config)
        self._checkpoints = self._run.checkpoint_config or CheckpointConfig()
        self._algorithm = self._tune.searcher or _default_searcher()

    @classmethod
    @explain_unknown(_IN_RAYS_RESTORE)
    def restore(
        cls,
        path: str | os.PathLike[str],
        trainable: Callable[..., Any],
        *,
        resume_unfinished: bool = True,
        resume_errored: bool = False,
        restart_errored: bool = False,
        param_space: Mapping[str, Any] | None = None,
    ) -> Tuner:
        """A search that was interrupted or killed, by its run's folder: `fit()` goes on with it.

        What its log tells is not done again. Trials that had not ended go on from their last checkpoints, or begin
        anew where they saved none; without `resume_unfinished` they end as they are, and only trials that were never
        created are run. Trials that failed stay so; with `resume_errored` they go on from their last checkpoints, with
        `restart_errored` they begin anew and what they had reported no longer counts. The searcher, which had dropped
        them, hears nothing of them: they run up to its `max_t` if it has one, else to their end, and may be the best. A
        time budget begins anew. `param_space` must be the one that the search began with, and may be left out.

        The folder's pickles are loaded: restore only a run that you trust. Raises FileNotFoundError where there is no
        such run, ValueError or TypeError on other arguments.
        """
        if resume_errored and restart_errored:
            raise ValueError("trials that failed go on (resume_errored=True) or begin anew (restart_errored=True)")
        folder = Path(path).expanduser().absolute()
        space, tune, run = load_settings(folder)
        if param_space is not None and cloudpickle.dumps(param_space) != cloudpickle.dumps(space):
            raise ValueError("param_space is not the one that the search began with: leave it out")
        tuner = cls(trainable, param_space=space, tune_config=tune, run_config=run)
        tuner._restored = folder
        errored: Errored = "resume" if resume_errored else "restart" if restart_errored else "leave"
        tuner._resume = Resume(resume_unfinished, errored)
        return tuner

    @staticmethod
    def can_restore(path: str | os.PathLike[str]) -> bool:
        """Whether there is a run in this folder that `restore` takes."""
        return can_restore(Path(path).expanduser())

    def fit(self) -> ResultGrid:
        """Run the search to its end and return what was found, also after Ctrl-C (`results.interrupted`).

        A second Ctrl-C raises KeyboardInterrupt. After SIGTERM, which a cloud sends before it takes a machine away, the
        search is stopped and saved as after Ctrl-C, and SystemExit(143) raised: `Tuner.restore` goes on with it. Where
        the user has a handler for one of the two, that is left in place.

        Raises RuntimeError where no trial reports the metric. Nothing of the search is left running in any case.
        """
        clock = _stopwatch()
        multi_job = self._start_search()
        function = as_function(
            self._trainable, self._checkpoints.checkpoint_frequency, self._checkpoints.checkpoint_at_end
        )
        trainable = dump_trainable(function, name_of(self._trainable))
        folder, log, files = self._open_log(multi_job, clock)
        progress = open_progress(self._run.verbose, self._heading(folder))
        if hint := size_hint(self._trainable, name_of(self._trainable), len(trainable)):
            progress.note(hint)
        with closing(log), closing(files):
            interrupt = self._search(multi_job, trainable, folder, log, progress, clock)
        if multi_job.error:
            raise RuntimeError(f"{multi_job.error}. What the trials reported is in {folder}")
        if files.problem:
            progress.note(f"Not all files of the trials could be written, the log is whole: {files.problem}")
        results = self._results(multi_job, folder, interrupt.pressed)
        progress.finish(results, clock())
        if interrupt.terminated:
            raise SystemExit(ENDED_BY_SIGTERM)
        return results

    def _open_log(self, multi_job: MultiJob, clock: Callable[[], float]) -> tuple[Path, RunLog, TrialFiles]:
        """The run's folder, its log, and what follows that. A MultiJob that is restored is told what is in there."""
        folder = self._restored or create_folder(self._run, name_of(self._trainable))
        files = TrialFiles(folder, lambda trial: multi_job.trials[trial].config)
        if self._restored is not None:
            batches, earlier = replay(multi_job, folder, files.take)
            self._check_resume(multi_job)
            return folder, RunLog(folder, lambda: earlier + clock(), batches, files.take), files
        save_settings(folder, self._space, self._tune, self._run)
        log = RunLog(folder, clock, tell=files.take)
        log.write(self._first_line(folder))
        return folder, log, files

    def _check_resume(self, multi_job: MultiJob) -> None:
        if multi_job.ending and self._resume.errored != "leave":
            raise ValueError(
                f"the search was over ({multi_job.ending}), so that no trial of it can be run again: leave "
                f"{self._resume.errored}_errored out to see what it found, or begin a new search"
            )

    def _start_search(self) -> MultiJob:
        tune = self._tune
        return MultiJob(
            self._algorithm,
            Problem(self._space, tune.metric, tune.mode or "max", tune.num_samples, tune.seed),
            max_concurrent_trials=tune.max_concurrent_trials,
            target=tune.target,
            failures=_failures(self._run.failure_config or FailureConfig()),
            keep=_keep(self._checkpoints),
            stop=stop_rule(self._run.stop),
        )

    def _search(
        self,
        multi_job: MultiJob,
        trainable: bytes,
        folder: Path,
        log: RunLog,
        progress: Progress,
        clock: Callable[[], float],
    ) -> Interrupt:
        progress.start()
        with closing(progress):
            session = self._open_session(folder, trainable)
            with closing(session):
                loop = SearchLoop(multi_job, session, log, progress, clock, self._tune.time_budget)
                interrupt = loop.run(self._resume if self._restored is not None else None)
                ending = {"stop_reason": _stop_reason(multi_job), "interrupted": interrupt.pressed}
                log.write({"what": "closed", **ending})
        return interrupt

    def _open_session(self, folder: Path, trainable: bytes) -> SearchSession:
        from gandiva_ray.runtime.client import open_search  # loads ray

        try:
            return open_search(
                SearchSpec(
                    name=folder.name,
                    trainable=trainable,
                    path=folder,
                    seed=self._tune.seed,
                    resources=resources_of(self._trainable),
                    start_method=self._run.start_method,
                )
            )
        except BaseException:
            if self._restored is None:  # so that the name is free for another try
                shutil.rmtree(folder, ignore_errors=True)
            raise

    def _heading(self, folder: Path) -> Heading:
        tune = self._tune
        goal = "no metric" if tune.metric is None else f"{tune.mode} {tune.metric}"
        if tune.target is not None:
            goal += f", {'at least' if tune.mode == 'max' else 'at most'} {tune.target:g}"
        return Heading(folder.name, _describe(self._algorithm), goal, str(folder))

    def _first_line(self, folder: Path) -> Line:
        return {
            "what": "run",
            "name": folder.name,
            "started_at": datetime.datetime.now().astimezone().isoformat(),
            "trainable": name_of(self._trainable),
            "searcher": repr(self._algorithm),
            "metric": self._tune.metric,
            "mode": self._tune.mode,
            "num_samples": self._tune.num_samples,
            "target": self._tune.target,
            "time_budget_s": self._tune.time_budget,
            "max_concurrent_trials": self._tune.max_concurrent_trials,
            "seed": self._tune.seed,
        }

    def _results(self, multi_job: MultiJob, folder: Path, interrupted: bool) -> ResultGrid:
        reports = Reports(folder)
        results = tuple(_result(record, reports) for record in multi_job.trials.values())
        return ResultGrid(
            results, self._tune.metric, self._tune.mode, str(folder), _stop_reason(multi_job), interrupted
        )


def _result(record: TrialRecord, reports: Reports) -> Result:
    if record.outcome is None:
        raise AssertionError(f"the search ended and trial {record.trial} did not")
    failed = record.outcome in (Outcome.FAILED, Outcome.LOST)
    return Result(
        trial_id=record.trial,
        config=record.config,
        metrics=record.metrics,
        outcome=record.outcome,
        reason=record.reason,
        error=(record.error or record.reason) if failed else None,
        path=record.path or None,
        steps=record.step,
        device_seconds=record.device_seconds,
        checkpoint=Checkpoint(record.checkpoints[-1].path) if record.checkpoints else None,
        best_checkpoints=tuple((Checkpoint(saved.path), dict(saved.metrics)) for saved in record.checkpoints),
        _reports=reports,
    )


def _failures(config: FailureConfig) -> Failures:
    return Failures(config.max_failures, config.fail_fast)


def _keep(config: CheckpointConfig) -> Keep:
    return Keep(config.num_to_keep, config.checkpoint_score_attribute, config.checkpoint_score_order)


def _stop_reason(multi_job: MultiJob) -> str:
    return multi_job.ending or "all trials ended"


def _stopwatch() -> Callable[[], float]:
    started_at = time.monotonic()
    return lambda: time.monotonic() - started_at


def _config(kind: type[_Config], name: str, given: _Config | None) -> _Config:
    if given is None:
        return kind()
    if not isinstance(given, kind):
        raise TypeError(f"{name} is a gandiva_ray.{kind.__name__}, got {type(given).__module__}.{type(given).__name__}")
    return given


def _describe(algorithm: Algorithm) -> str:
    """Its name and knobs, without those that are None."""
    knobs = {name: getattr(algorithm, name) for name in getattr(algorithm, "__dataclass_fields__", ())}
    given = (f"{name}={knob!r}" for name, knob in knobs.items() if knob is not None)
    return f"{type(algorithm).__name__}({', '.join(given)})"


def _default_searcher() -> Algorithm:
    from gandiva_ray import RandomSearch  # refuses a foreign package called searchers

    return RandomSearch()
