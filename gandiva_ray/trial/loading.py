"""What must be done in a fresh process, in this order, before a training function can run in it or in forks of it."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gandiva_ray.trial import session
from gandiva_ray.trial.protocol import Environment

Trainable = Callable[[Mapping[str, Any]], Any]

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def prepare_environment(environment: Environment) -> None:
    """To be called before torch and numpy are imported: their libraries read the environment once."""
    sys.path[:] = dict.fromkeys([*_absolute(environment.sys_path, environment.working_dir), *sys.path])
    set_thread_variables(1)
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # `torch.cuda.is_available()` must not initialise CUDA


def _absolute(paths: Iterable[str], working_dir: str) -> list[str]:
    """Trials change their directory; an entry such as '' means the driver's."""
    return [os.path.normpath(os.path.join(working_dir, path)) for path in paths]


def set_thread_variables(threads: int) -> None:
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))


def import_torch() -> None:
    """And make its optimisers a door to the boundary."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def after_step(optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> None:
        session.boundary()

    # A compiled step must call it, and not have it traced into a graph.
    register_optimizer_step_post_hook(torch.compiler.disable(after_step))  # type: ignore[no-untyped-call]


def load_trainable(pickled: bytes) -> Trainable:
    """May raise anything."""
    trainable: Trainable = pickle.loads(pickled)
    return trainable
