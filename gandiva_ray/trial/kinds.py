"""Kinds of trainables besides plain functions: classes and generators, each run by a plain function."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gandiva_ray.trial.checkpoint import Checkpoint
from gandiva_ray.trial.session import TrialStopped, get_checkpoint, get_context, report, save_last


class Trainable:
    """A training run as a class, as with Ray Tune: override `setup` and `step`, and what else you need.

    `step` returns the metrics of one report; {"done": True} among them ends the trial. Where
    `CheckpointConfig(checkpoint_frequency=n)` asks for it, `save_checkpoint` is called after every n-th step, with
    `checkpoint_at_end=True` after the last one, and `load_checkpoint` in a new process before its first one.
    """

    def __init__(self, config: dict[str, Any] | None = None, **parameters: Any) -> None:
        self.config = config or {}
        self.training_iteration = 0
        setup: Any = self.setup  # a subclass names its parameters
        setup(self.config, **parameters)

    @property
    def iteration(self) -> int:
        """Steps so far."""
        return self.training_iteration

    @property
    def trial_id(self) -> str:
        return get_context().get_trial_id()

    @property
    def trial_name(self) -> str:
        return get_context().get_trial_name()

    @property
    def logdir(self) -> str:
        """The trial's folder."""
        return get_context().get_trial_dir()

    def setup(self, config: dict[str, Any]) -> None:
        """Called once, before the first step. Add keyword arguments for what `with_parameters` gives."""

    def step(self) -> dict[str, Any]:
        raise NotImplementedError(f"{type(self).__name__} has no step(): define it, and return a dict of metrics")

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | None:
        """Write into the folder and return None, or return a dict."""
        raise NotImplementedError(f"{type(self).__name__} has no save_checkpoint(): define it to be asked for it")

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Go on from the dict that `save_checkpoint` returned, or from the folder that it wrote into."""
        raise NotImplementedError(f"{type(self).__name__} has no load_checkpoint(): define it to go on after a failure")

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Never called: here a new trial is a cheap fork, and nothing has to be used again."""
        return False

    def cleanup(self) -> None:
        """Called at the end, also of a trial that was stopped."""


def run_class(
    cls: Callable[..., Trainable], parameters: Mapping[str, Any], frequency: int, at_end: bool, config: dict[str, Any]
) -> None:
    """Train as the class says. With a `frequency` above 0 every so many steps come with a checkpoint.

    With `at_end` the last one does; that of a trial which is told to stop in `report` follows after it.
    """
    run = cls(config, **parameters)
    try:
        checkpoint = get_checkpoint()
        if checkpoint is not None:
            _load(run, checkpoint)
        done = False
        while not done:
            metrics = run.step()
            if not isinstance(metrics, Mapping):
                raise TypeError(f"{type(run).__name__}.step() returned {metrics!r}: return a dict of metrics")
            run.training_iteration += 1
            done = bool(metrics.get("done", False))
            due = (frequency > 0 and run.training_iteration % frequency == 0) or (done and at_end)
            checkpoint = _save(run) if due else None
            try:
                report(metrics, checkpoint=checkpoint)
            except TrialStopped:
                if at_end and not due:
                    save_last(_save(run))
                raise
    finally:
        run.cleanup()


def run_generator(function: Callable[[dict[str, Any]], Iterable[Any]], config: dict[str, Any]) -> None:
    """Report what the generator yields: numbers of their own as "_metric", as Ray Tune does, or dicts."""
    for metrics in function(config):
        report(metrics if isinstance(metrics, Mapping) else {"_metric": metrics})


def _save(run: Trainable) -> Checkpoint:
    folder = tempfile.mkdtemp(prefix="checkpoint-")
    try:
        data = run.save_checkpoint(folder)
        checkpoint = Checkpoint.to_be_moved(folder) if data is None else Checkpoint.from_dict(data)
        checkpoint.set_metadata({"iteration": run.training_iteration})
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if checkpoint.path != os.path.abspath(folder):
        shutil.rmtree(folder)
    return checkpoint


def _load(run: Trainable, checkpoint: Checkpoint) -> None:
    run.training_iteration = checkpoint.get_metadata()["iteration"]
    run.load_checkpoint(checkpoint.to_dict() if checkpoint.holds_dict else checkpoint.path)
