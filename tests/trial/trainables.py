"""Training functions as users write them, for a template to unpickle by name."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from gandiva_ray.trial import kinds
from gandiva_ray.trial.checkpoint import Checkpoint
from gandiva_ray.trial.session import TrialStopped, get_checkpoint, get_context, report

Config = Mapping[str, Any]
SHARED_BYTES = 64 << 20
DATA = numpy.ones(SHARED_BYTES, dtype=numpy.uint8)


def dispatch(config: Config) -> Any:
    """One template serves all tests: the configuration names the function."""
    return globals()[config["do"]](config)


def fit_linear(steps: int, make_optimizer: Any = None) -> torch.nn.Module:
    model = torch.nn.Linear(4, 2)
    make_optimizer = make_optimizer or (lambda parameters: torch.optim.Adam(parameters, lr=1e-2))
    optimizer = make_optimizer(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
    return model


def forever(config: Config) -> None:
    """Plain PyTorch that knows of nothing."""
    fit_linear(10**9)


def fingerprint(config: Config) -> dict[str, Any]:
    model = fit_linear(config["steps"])
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    return {"weights": hashlib.sha256(weights).hexdigest(), "numpy": numpy.random.rand(), "random": random.random()}


def reports(config: Config) -> None:
    for index in range(config["count"]):
        report({"index": index})


def report_values(config: Config) -> None:
    report(config["values"])


def report_kinds(config: Config) -> None:
    parameter = torch.nn.Parameter(torch.tensor(0.5))
    report(
        {"torch": parameter, "numpy": numpy.float32(0.25), "array": numpy.array(3), "tuple": (1, True), "none": None}
    )


def report_tensor(config: Config) -> None:
    report({"losses": {"train": torch.ones(3)}})


def convolve(config: Config) -> dict[str, Any]:
    images, labels = torch.randn(32, 1, 8, 8), torch.randint(0, 10, (32,))
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.zeros(())
    for batch, target in DataLoader(TensorDataset(images, labels), batch_size=8, num_workers=config.get("workers", 0)):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(batch), target)
        loss.backward()
        optimizer.step()
    return {"loss": loss}


class OwnOptimizer(torch.optim.Optimizer):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.add_(parameter.grad, alpha=-0.1)


OPTIMIZERS: dict[str, Any] = {
    "foreach": lambda parameters: torch.optim.Adam(parameters, foreach=True),
    "fused": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "own": OwnOptimizer,
}


def optimize(config: Config) -> None:
    fit_linear(10, OPTIMIZERS[config["optimizer"]])


def optimize_lbfgs(config: Config) -> None:
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(8, 4)).pow(2).mean()
        loss.backward()
        return loss

    for _ in range(10):
        optimizer.step(closure)


def optimize_compiled(config: Config) -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    step = torch.compile(optimizer.step, backend="eager")
    for _ in range(10):
        step()


def optimize_in_threads(config: Config) -> None:
    threads = [threading.Thread(target=fit_linear, args=(10**9,), daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    fit_linear(10**9)


def where(config: Config) -> dict[str, Any]:
    print("to stdout")
    print("to stderr", file=sys.stderr)
    os.system("echo from below")
    return {
        "cwd": os.getcwd(),
        "origin": os.environ["TUNE_ORIG_WORKING_DIR"],
        "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "threads": torch.get_num_threads(),
        "omp": os.environ["OMP_NUM_THREADS"],
        "nice": os.nice(0),
    }


def affinities(config: Config) -> dict[str, Any]:
    torch.ones(400, 400) @ torch.ones(400, 400)
    thread = threading.Thread(target=time.sleep, args=(60,), daemon=True)
    thread.start()
    child = subprocess.Popen(["sleep", "60"])
    tasks = [int(task) for task in os.listdir("/proc/self/task")]
    assert len(tasks) >= 2
    return {"cores": [sorted(os.sched_getaffinity(pid)) for pid in (*tasks, child.pid)]}


def divide(config: Config) -> None:
    1 / 0  # noqa: B018


def divide_in_silence(config: Config) -> None:
    sys.stderr.close()
    1 / 0  # noqa: B018


def raise_in_torch(config: Config) -> None:
    torch.nn.Linear(2, 2)(torch.ones(3))


def leave(config: Config) -> None:
    sys.exit(config["code"])


def leave_hard(config: Config) -> None:
    os._exit(3)


def give_back(config: Config) -> Any:
    return config["value"]


def clean_up(config: Config) -> None:
    try:
        fit_linear(10**9)
    finally:
        fit_linear_to_end()
        print("cleaned up")


def fit_linear_to_end() -> None:
    """Cleaning up that trains: it is cut short by the next boundary."""
    try:
        fit_linear(1)
        print("never printed")
    except TrialStopped:
        print("stopped again")


def refuse_to_stop(config: Config) -> None:
    for index in range(10**9):
        try:
            report({"index": index})
        except BaseException:
            print("swallowed")
            if index > 2 and config.get("raise"):
                raise ValueError("while cleaning up") from None
            if index > 2:
                return


def have_children(config: Config) -> None:
    """A plain child, one in a session of its own, one that is deaf to SIGTERM, and a grandchild left by its parent."""
    deaf = "trap '' TERM; while true; do sleep 0.1; done"
    pids = [
        multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,)),
        subprocess.Popen(["sleep", "600"], start_new_session=True),
        subprocess.Popen(["sh", "-c", deaf]),
    ]
    pids[0].start()
    left = subprocess.run(
        ["sh", "-c", "setsid sleep 600 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True, check=True
    )
    report({"pids": [*(process.pid for process in pids), int(left.stdout)]})
    fit_linear(10**9)


def report_from_a_child(config: Config) -> dict[str, Any]:
    reading, writing = multiprocessing.Pipe()

    def child() -> None:
        fit_linear(3)  # its optimiser must not speak for the trial
        try:
            report({"x": 1})
        except RuntimeError as error:
            writing.send(str(error))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    return {"error": reading.recv()}


def sum_of_data(config: Config) -> None:
    report({"sum": int(DATA[::4096].sum())})
    fit_linear(10**9)


def save(config: Config) -> None:
    """Report the step it goes on from, then a checkpoint at each of `count` steps."""
    checkpoint = get_checkpoint()
    begin = checkpoint.to_dict()["step"] if checkpoint else 0
    for step in range(begin + 1, begin + config["count"] + 1):
        report({"begin": begin}, checkpoint=Checkpoint.from_dict({"step": step}))
        assert get_checkpoint().to_dict() == {"step": step}  # type: ignore[union-attr]


def tell_context(config: Config) -> None:
    context = get_context()
    report(
        {
            "id": context.get_trial_id(),
            "name": context.get_trial_name(),
            "dir": context.get_trial_dir(),
            "run": context.get_experiment_name(),
        }
    )


class Counter(kinds.Trainable):
    """Counts from `start`; its checkpoint is a file, or with "dict" a dict."""

    def setup(self, config: dict[str, Any], start: int = 0) -> None:
        self.value = start

    def step(self) -> dict[str, Any]:
        self.value += 1
        return {"value": self.value, "iteration": self.iteration, "done": self.value == self.config.get("end")}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | None:
        if self.config.get("dict"):
            return {"value": self.value}
        with open(os.path.join(checkpoint_dir, "value"), "w") as file:
            file.write(str(self.value))
        return None

    def load_checkpoint(self, checkpoint: Any) -> None:
        if isinstance(checkpoint, dict):
            self.value = checkpoint["value"]
        else:
            with open(os.path.join(checkpoint, "value")) as file:
                self.value = int(file.read())

    def cleanup(self) -> None:
        print("cleaned up", self.trial_id)


def run_counter(config: Config) -> None:
    saves = config.get("frequency", 0), config.get("at_end", False)
    kinds.run_class(Counter, {"start": config.get("start", 0)}, *saves, dict(config))


def generate(config: Config) -> None:
    def generator(config: dict[str, Any]) -> Any:
        yield {"value": 1}
        yield 2.5

    kinds.run_generator(generator, dict(config))
