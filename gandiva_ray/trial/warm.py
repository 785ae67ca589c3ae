"""What a template does so that its forks need not, and whether it may be forked at all."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path

# pyarrow's, which pandas and with it scikit-learn's data sets load. Its allocator sees to forks, and does without it.
_SURVIVES_FORKS = "jemalloc_bg_thd"


def warm_up() -> None:
    """Do once what torch does late: 1.5 seconds of imports, and 3 ms of each trial's first mini-batch.

    Never `backward()`: it readies threads or the GPU, and no fork could use it again. Nor a step of Adam and its like:
    where there is a GPU they ask it whether a graph is being captured.
    """
    import numpy
    import torch
    import torch._dynamo
    from torch.utils.data import DataLoader, TensorDataset

    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(2, 2)
    )
    data = TensorDataset(torch.randn(2, 1, 4, 4), torch.zeros(2, dtype=torch.long))
    with torch.no_grad():
        for images, labels in DataLoader(data, batch_size=2, shuffle=True):
            torch.nn.functional.cross_entropy(model(images), labels)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9).step()


def fork_hazard() -> str:
    """Why a fork of this process would not work; "" if it would."""
    lost = _threads_that_a_fork_lacks()
    if lost:
        return f"loading the training function started {lost} thread(s), which a fork would lack"
    if _cuda_is_lost_in_a_fork():
        return "loading the training function touched CUDA, which a fork could not use"
    return ""


def _threads_that_a_fork_lacks() -> int:
    names: list[str] = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            names.append(Path(f"/proc/self/task/{task}/comm").read_text().strip())
    return sum(name != _SURVIVES_FORKS for name in names) - 1  # this one forks


def _cuda_is_lost_in_a_fork() -> bool:
    """Ask a fork. It takes less than initialising CUDA: torch refuses it to forks once CUDA has counted its devices."""
    import torch

    pid = os.fork()
    if pid == 0:
        os._exit(torch.cuda._is_in_bad_fork())
    return os.waitpid(pid, 0)[1] != 0
