"""A search that was interrupted or killed, brought back to where it was by its run's folder."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

import cloudpickle

from gandiva_ray.config import RunConfig, Space, TuneConfig
from gandiva_ray.core.model import Outcome, TrialId
from gandiva_ray.core.multi_job import MultiJob, Resume
from gandiva_ray.core.search import Create, StopTrial, TrialEnded, TrialEvent
from gandiva_ray.run_log import FILE_NAME, Line, event_of, read_log, with_joined_names

_FILE_NAME = "tuner.pkl"
_CUT = (Outcome.CUT, Outcome.NEVER_STARTED)


def save_settings(folder: Path, space: Space, tune: TuneConfig, run: RunConfig) -> None:
    """What `load_settings` needs. Settings that cannot be pickled make a search that cannot be restored."""
    try:
        settings = cloudpickle.dumps((space, tune, run))
    except Exception:
        return
    (folder / _FILE_NAME).write_bytes(settings)


def load_settings(folder: Path) -> tuple[Space, TuneConfig, RunConfig]:
    """Raises FileNotFoundError where the folder is not a run's."""
    if not (folder / FILE_NAME).is_file():
        raise FileNotFoundError(f"{folder} is no run's folder: there is no {FILE_NAME} in it")
    if not (folder / _FILE_NAME).is_file():
        raise FileNotFoundError(f"{folder} has no {_FILE_NAME}: the search's space or settings could not be pickled")
    settings: tuple[Space, TuneConfig, RunConfig] = cloudpickle.loads((folder / _FILE_NAME).read_bytes())
    return settings


def can_restore(folder: Path) -> bool:
    """Whether `load_settings` finds all that it needs."""
    return (folder / FILE_NAME).is_file() and (folder / _FILE_NAME).is_file()


def replay(multi_job: MultiJob, folder: Path, tell: Callable[[Line], None]) -> tuple[int, float]:
    """Tell a fresh MultiJob what the run's log tells; returns the number of batches there, and seconds until the last.

    That the search was cut short is left out. `tell` hears each line, once the MultiJob has its batch. Raises
    RuntimeError where the searcher suggests other trials than then.
    """
    stops: dict[TrialId, StopTrial] = {}
    last: Line = {"batch": -1, "at": 0.0}
    for _, batch in itertools.groupby(read_log(folder), key=lambda line: line["batch"]):
        lines = list(batch)
        last = lines[-1]
        _replay_batch(multi_job, lines, stops)
        for line in lines:
            tell(line)
    _end(multi_job, stops)
    return last["batch"] + 1, last["at"]


def _replay_batch(multi_job: MultiJob, lines: list[Line], stops: dict[TrialId, StopTrial]) -> None:
    kinds = {line["what"] for line in lines}
    if "restored" in kinds:
        _end(multi_job, stops)
        multi_job.resume(Resume(lines[0]["unfinished"], lines[0]["errored"]))
    elif not kinds & {"run", "time up", "closed"}:
        effects = multi_job.handle(*map(with_joined_names, _events(lines)))
        _check_same(lines, [effect for effect in effects if isinstance(effect, Create)])
        stops.update((effect.trial, effect) for effect in effects if isinstance(effect, StopTrial))


def _events(lines: Iterable[Line]) -> list[TrialEvent]:
    events = [event for line in lines if (event := event_of(line)) is not None]
    return [event for event in events if not (isinstance(event, TrialEnded) and event.outcome in _CUT)]


def _end(multi_job: MultiJob, stops: dict[TrialId, StopTrial]) -> None:
    """Trials that were told to end did, with whatever ran them."""
    for stop in stops.values():
        attempt = multi_job.trials[stop.trial].attempt
        multi_job.handle(TrialEnded(stop.trial, stop.outcome, stop.reason, attempt=attempt))
    stops.clear()


def _check_same(lines: Iterable[Line], creates: Iterable[Create]) -> None:
    then = [line["trial"] for line in lines if line["what"] == "created"]
    now = [create.trial for create in creates]
    if then and then != now[: len(then)]:
        raise RuntimeError(
            f"the search cannot be restored: its searcher suggests the trials {now} now, and suggested {then} then; "
            "it was not the same version of gandiva_ray"
        )
