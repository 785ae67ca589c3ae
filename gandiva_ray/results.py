"""What a search found: one result a trial, each in exactly one state, and why."""

from __future__ import annotations

import html
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args, overload

from gandiva_ray.arguments import explain_unknown
from gandiva_ray.core.model import Outcome, TrialId
from gandiva_ray.core.search import Mode
from gandiva_ray.run_log import Line, Reports, flatten
from gandiva_ray.trial.checkpoint import Checkpoint

if TYPE_CHECKING:
    import pandas

Scope = Literal["last", "all", "avg", "last-5-avg", "last-10-avg"]

_NO_FILESYSTEM = "results have no filesystem (Ray Tune's have): they lie in the local or mounted folder `path`"
_COLUMNS = ("trial_id", "state", "reason", "path", "steps", "device_seconds")


@dataclass(frozen=True, slots=True)
class Result:
    """One trial: its configuration, the last metrics that it reported, and how and why it ended.

    `error` is the traceback of a trial that failed, `path` its folder (None where it never started), `steps` its
    number of reports, `device_seconds` the device time that it received up to the last of them. `checkpoint` is its
    last one, `best_checkpoints` those that were kept, each with the metrics that it was reported with.
    """

    trial_id: TrialId
    config: Mapping[str, Any]
    metrics: Mapping[str, Any]
    outcome: Outcome
    reason: str
    error: str | None
    path: str | None
    steps: int
    device_seconds: float
    _reports: Reports = field(repr=False, compare=False)
    checkpoint: Checkpoint | None = None
    best_checkpoints: Sequence[tuple[Checkpoint, Mapping[str, Any]]] = ()

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> Result:
        """Read a trial's result back by its folder, inside of its run's; the run may still be under way.

        A pickle there is loaded: read only what you trust. Raises FileNotFoundError where it is no trial's folder.
        """
        from gandiva_ray.trial_reader import read_result  # which makes Results

        return read_result(Path(path).expanduser().absolute())

    @property
    def filesystem(self) -> NoReturn:
        """Raises AttributeError."""
        raise AttributeError(_NO_FILESYSTEM)

    @explain_unknown()
    def get_best_checkpoint(self, metric: str, mode: Mode) -> Checkpoint | None:
        """Of the checkpoints that were kept, the one with the best value of the metric; None where there is none.

        Raises RuntimeError where they were reported without it.
        """
        sign = _sign(mode)
        if not self.best_checkpoints:
            return None
        values = [(flatten(metrics).get(metric), checkpoint) for checkpoint, metrics in self.best_checkpoints]
        ranked = [(sign * value, checkpoint) for value, checkpoint in values if isinstance(value, int | float)]
        if not ranked:
            names = ", ".join(sorted({name for _, metrics in self.best_checkpoints for name in flatten(metrics)}))
            raise RuntimeError(
                f"no checkpoint of trial {self.trial_id} was reported with {metric!r}, only with {names}"
            )
        return max(ranked, key=lambda pair: _rank(pair[0]))[1]

    def _repr_html_(self) -> str:
        """For notebooks."""
        rows = {"trial": self.trial_id, "state": self.outcome.value, "reason": self.reason, "steps": self.steps}
        return _table([*rows.items(), *flatten(self.config).items(), *flatten(self.metrics).items()])

    @property
    def metrics_dataframe(self) -> pandas.DataFrame:
        """One row a report: `step`, the metrics, `device_seconds`. Read from the run's log when asked for."""
        import pandas

        return pandas.DataFrame([_report_row(line) for line in self._reports.of(self.trial_id)])


def _report_row(line: Line) -> dict[str, Any]:
    return {"step": line["step"], **flatten(line["metrics"]), "device_seconds": line["device_seconds"]}


@dataclass(frozen=True, slots=True)
class ResultGrid(Sequence[Result]):
    """All the trials of a search, in the order of their creation.

    `path` is the run's folder, `stop_reason` says why the search ended, `interrupted` whether Ctrl-C ended it.
    """

    results: tuple[Result, ...]
    metric: str | None
    mode: Mode | None
    path: str
    stop_reason: str
    interrupted: bool = False

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Result]: ...
    def __getitem__(self, index: int | slice) -> Result | Sequence[Result]:
        return self.results[index]

    @property
    def experiment_path(self) -> str:
        """The run's folder, under Ray Tune's name for it."""
        return self.path

    @property
    def filesystem(self) -> NoReturn:
        """Raises AttributeError."""
        raise AttributeError(_NO_FILESYSTEM)

    @property
    def counts(self) -> dict[Outcome, int]:
        """How many trials ended in each way."""
        return dict(Counter(result.outcome for result in self.results))

    @property
    def errors(self) -> list[str]:
        """The errors of the trials that failed or were lost."""
        return [result.error for result in self.results if result.error is not None]

    @property
    def num_errors(self) -> int:
        return len(self.errors)

    @property
    def num_terminated(self) -> int:
        """Trials that ended well: completed, or stopped by the search."""
        return sum(result.outcome in (Outcome.COMPLETED, Outcome.STOPPED) for result in self.results)

    @explain_unknown()
    def get_best_result(
        self,
        metric: str | None = None,
        mode: Mode | None = None,
        scope: Scope = "last",
        filter_nan_and_inf: bool = True,
    ) -> Result:
        """The trial with the best value of the metric: its last one, or the best that it ever reported (scope="all").

        Or the best mean of all that it reported ("avg"), or of the last five or ten ("last-5-avg", "last-10-avg").
        Metric and mode are those of the search unless given. Raises RuntimeError where no trial reported such a value.
        """
        metric, mode = metric or self.metric, mode or self.mode
        if metric is None or mode is None:
            raise ValueError('the search had no metric: get_best_result(metric="loss", mode="min") names one')
        if scope not in get_args(Scope):
            raise ValueError(f"scope is one of {', '.join(get_args(Scope))}; got {scope!r}")
        sign = _sign(mode)
        best: tuple[float, Result] | None = None
        for result in self.results:
            values = self._values(result, metric, scope)
            if filter_nan_and_inf:
                values = [value for value in values if math.isfinite(value)]
            values = [sign * value for value in _in_scope(values, scope)]
            if values and (best is None or _better(max(values, key=_rank), best[0])):
                best = max(values, key=_rank), result
        if best is None:
            raise RuntimeError(self._why_no_best(metric))
        return best[1]

    def _values(self, result: Result, metric: str, scope: Scope) -> list[float]:
        if scope == "last":
            reported = [result.metrics]
        else:
            reported = [line["metrics"] for line in result._reports.of(result.trial_id)]
        values = (flatten(metrics).get(metric) for metrics in reported)
        return [value for value in values if isinstance(value, int | float)]

    def _why_no_best(self, metric: str) -> str:
        failure = next((result for result in self.results if result.error), None)
        first = f" The first failure, of trial {failure.trial_id}: {failure.reason}" if failure else ""
        if not self.results:
            return f"there is no best result: no trial was created ({self.stop_reason})"
        reported = sorted({name for result in self.results for name in flatten(result.metrics)})
        if not reported:
            counts = ", ".join(f"{count} {outcome.value}" for outcome, count in self.counts.items())
            return f"there is no best result: no trial reported anything ({counts}).{first}"
        if metric in reported:
            return (
                f"there is no best result: every value of {metric!r} is infinite, NaN or not a number; "
                f"filter_nan_and_inf=False takes infinities and NaN as they are.{first}"
            )
        nearest = get_close_matches(metric, reported, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        return f"there is no best result: no trial reported {metric!r}; {hint}Reported: {', '.join(reported)}.{first}"

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {outcome.value}" for outcome, count in self.counts.items())
        return f"ResultGrid({len(self)} trials{counts and ': '}{counts}; {self.stop_reason}; {self.path})"

    def _repr_html_(self) -> str:
        """For notebooks."""
        counts = ", ".join(f"{count} {outcome.value}" for outcome, count in self.counts.items())
        return _table([("trials", counts), ("ended because", self.stop_reason), ("path", self.path)])

    @explain_unknown()
    def get_dataframe(self, filter_metric: str | None = None, filter_mode: Mode | None = None) -> pandas.DataFrame:
        """One row a trial: `config/...`, the last metrics, `state`, `reason`, `path`, `steps`, `device_seconds`.

        With `filter_metric` the metrics are those of the report where it was best, "min" or "max" as `filter_mode` or
        else the search says; a trial that never reported it has none. A metric that is called like one of these columns
        is in `metrics/<name>`. Raises ValueError where one of the two is missing.
        """
        import pandas

        if filter_metric is None:
            if filter_mode is not None:
                raise ValueError('filter_mode is for a metric: get_dataframe(filter_metric="loss", filter_mode="min")')
            return pandas.DataFrame([_row(result, result.metrics) for result in self.results])
        mode = filter_mode or self.mode
        if mode is None:
            raise ValueError(f'the search had no mode: get_dataframe({filter_metric!r}, "min") or "max" gives one')
        sign = _sign(mode)
        return pandas.DataFrame([_row(result, _best_report(result, filter_metric, sign)) for result in self.results])


def _best_report(result: Result, metric: str, sign: float) -> Mapping[str, Any]:
    reported = [flatten(line["metrics"]) for line in result._reports.of(result.trial_id)]
    numbers = [metrics for metrics in reported if isinstance(metrics.get(metric), int | float)]
    return max(numbers, key=lambda metrics: _rank(sign * metrics[metric]), default={})


def _sign(mode: Mode) -> float:
    if mode not in get_args(Mode):
        raise ValueError(f'mode is "min" or "max", got {mode!r}')
    return 1.0 if mode == "max" else -1.0


def _in_scope(values: list[float], scope: Scope) -> list[float]:
    """The values that a trial is judged by; the best of them counts."""
    count = {"avg": len(values), "last-5-avg": 5, "last-10-avg": 10}.get(scope)
    if count is None or not values:
        return values
    return [math.fsum(values[-count:]) / len(values[-count:])]


def _table(rows: Iterable[tuple[str, object]]) -> str:
    """In HTML."""
    cells = (f"<tr><th>{html.escape(str(name))}</th><td>{html.escape(str(value))}</td></tr>" for name, value in rows)
    return f"<table>{''.join(cells)}</table>"


def _rank(value: float) -> float:
    """NaN is worse than anything."""
    return -math.inf if math.isnan(value) else value


def _better(value: float, than: float) -> bool:
    return _rank(value) > _rank(than)


def _row(result: Result, reported: Mapping[str, Any]) -> dict[str, Any]:
    metrics = flatten(reported)
    return {
        "trial_id": result.trial_id,
        **flatten(result.config, "config/"),
        **{f"metrics/{name}" if name in _COLUMNS else name: value for name, value in metrics.items()},
        "state": result.outcome.value,
        "reason": result.reason,
        "path": result.path,
        "steps": result.steps,
        "device_seconds": result.device_seconds,
    }
