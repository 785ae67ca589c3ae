"""Training functions of every kind, as users write them. Each epoch takes longer than a turn of 0.03 seconds."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np
import psutil
import torch
from joblib import Parallel, delayed
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import SGDClassifier
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import gandiva_ray as tune
from tests.runtime.trainables import Config, burn

EPOCHS = 4
SECONDS = 0.04


def epochs(count: int = EPOCHS) -> Iterator[int]:
    for epoch in range(count):
        burn(SECONDS)
        yield epoch


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor) -> float:
    optimizer.zero_grad()
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def linear(config: Config) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=config["x"])


# --- data loaders


def with_workers(config: Config, **options: Any) -> None:
    model, optimizer = linear(config)
    data = DataLoader(TensorDataset(torch.randn(64, 4)), 16, shuffle=True, **options)
    for _ in epochs():
        tune.report({"value": sum(learn(model, optimizer, inputs) for (inputs,) in data)})


def new_workers_each_epoch(config: Config) -> None:
    with_workers(config, num_workers=1)


def persistent_workers(config: Config) -> None:
    with_workers(config, num_workers=2, persistent_workers=True)


def pinned_memory(config: Config) -> None:
    with_workers(config, pin_memory=True)


# --- optimisers and precisions


def lbfgs(config: Config) -> None:
    model, inputs = nn.Linear(4, 1), torch.randn(64, 4)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=config["x"], max_iter=4)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        loss.backward()
        return loss

    for _ in epochs():
        tune.report({"value": optimizer.step(closure).item()})


def adversarial(config: Config) -> None:
    maker, judge = nn.Linear(2, 1), nn.Linear(1, 1)
    make = torch.optim.Adam(maker.parameters(), lr=config["x"])
    tell = torch.optim.Adam(judge.parameters(), lr=config["x"])
    for _ in epochs():
        for _ in range(4):
            real, made = torch.randn(16, 1) + 3, maker(torch.randn(16, 2))
            tell.zero_grad()
            (functional.softplus(-judge(real)) + functional.softplus(judge(made.detach()))).mean().backward()
            tell.step()
            make.zero_grad()
            functional.softplus(-judge(made)).mean().backward()
            make.step()
        tune.report({"value": made.mean().item(), "judge": judge.weight.item()})


def mixed_precision(config: Config) -> None:
    model, optimizer = linear(config)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)  # its first steps overflow, and are left out
    for _ in epochs():
        for _ in range(4):
            inputs = torch.randn(16, 4)
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        tune.report({"value": loss.item(), "scale": scaler.get_scale()})


def compiled(config: Config) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    fast = torch.compile(model, backend="aot_eager")  # the default one runs a C++ compiler, for a minute
    optimizer = torch.optim.Adam(model.parameters(), lr=config["x"])
    for _ in epochs(25):  # its turns are even again only when all have compiled, some of them for longer than others
        tune.report({"value": sum(learn(fast, optimizer, torch.randn(16, 4)) for _ in range(4))})


# --- without torch


def linear_classifier(config: Config) -> None:
    pixels, labels = load_digits(return_X_y=True)
    model = SGDClassifier(alpha=config["x"])
    for _ in epochs():
        model.partial_fit(pixels, labels, classes=range(10))
        tune.report({"value": model.score(pixels, labels)})


def forest(config: Config) -> None:
    pixels, labels = load_digits(return_X_y=True)
    model = RandomForestClassifier(n_estimators=0, warm_start=True, n_jobs=2, max_features=config["x"])
    for _ in epochs():
        model.n_estimators += 4
        model.fit(pixels[:500], labels[:500])
        tune.report({"value": model.score(pixels[500:], labels[500:])})


def joblib_processes(config: Config) -> None:
    for epoch in epochs():
        tune.report({"value": sum(Parallel(n_jobs=2)(delayed(pow)(config["x"], epoch + i) for i in range(4)))})


def pure_python(config: Config) -> None:
    best = 0.0
    for _ in epochs():
        best = max(best, random.random() * config["x"])
        tune.report({"value": best})


# --- what is started inside


def pool(config: Config) -> None:
    with multiprocessing.Pool(2) as workers:
        for epoch in epochs():
            tune.report({"value": sum(workers.starmap(pow, [(config["x"], epoch + i) for i in range(4)]))})


def pool_left_open(config: Config) -> None:
    workers = multiprocessing.Pool(2)
    for epoch in epochs():
        tune.report({"value": sum(workers.starmap(pow, [(config["x"], epoch + i) for i in range(4)]))})


def process_executor(config: Config) -> None:
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as workers:
        for epoch in epochs():
            tune.report({"value": sum(workers.map(pow, [config["x"]] * 4, range(epoch, epoch + 4)))})


def thread_that_reports(config: Config) -> None:
    def work() -> None:
        for epoch in epochs():
            tune.report({"value": config["x"] + epoch})

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def threads_that_report(config: Config) -> None:
    """Two threads at once: which report is whose is not certain, that there are as many of each is."""
    with ThreadPoolExecutor(2) as threads:
        for future in [threads.submit(_report_as, name) for name in (1.0, 2.0)]:
            future.result()


def _report_as(name: float) -> None:
    for _ in epochs():
        tune.report({"value": name})


def shell(config: Config) -> None:
    for epoch in epochs():
        done = subprocess.run(f"sleep 0.01; echo {config['x']} {epoch}", shell=True, capture_output=True, text=True)
        tune.report({"value": sum(map(float, done.stdout.split())), "code": done.returncode})


def event_loop(config: Config) -> None:
    async def main() -> None:
        for epoch in epochs():
            await asyncio.sleep(0.001)
            values = await asyncio.gather(*(asyncio.to_thread(pow, config["x"], epoch + i) for i in range(2)))
            tune.report({"value": sum(values)})

    asyncio.run(main())


# --- unkind to the process they are in


def moves_away(config: Config) -> None:
    for epoch in epochs():
        os.chdir("/")
        saved = tune.Checkpoint.from_dict({"epoch": epoch})
        tune.report({"value": config["x"] + epoch}, checkpoint=saved)


def own_signal_handlers(config: Config) -> None:
    heard: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1, signal.SIGCONT):
        signal.signal(number, lambda number, frame: heard.append(number))
    for epoch in epochs():
        os.kill(os.getpid(), signal.SIGUSR1)
        subprocess.run(["true"], check=True)
        tune.report({"value": config["x"] + epoch, "heard": heard.count(signal.SIGUSR1)})


def alarm_clock(config: Config) -> None:
    """A timer that rings all the time interrupts whatever waits."""
    rings: list[int] = []
    signal.signal(signal.SIGALRM, lambda *_: rings.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
    for epoch in epochs():
        tune.report({"value": config["x"] + epoch})
    signal.setitimer(signal.ITIMER_REAL, 0)


def closes_its_output(config: Config) -> None:
    sys.stdout.close()
    for epoch in epochs():
        tune.report({"value": config["x"] + epoch})


def swallows_everything(config: Config) -> None:
    """Never ends by itself, whatever is raised in it."""
    while True:
        with contextlib.suppress(BaseException):
            burn(0.005)
            tune.report({"value": config["x"]})


def ignores_sigterm(config: Config) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    swallows_everything(config)


def workers_without_end(config: Config) -> None:
    data = DataLoader(TensorDataset(torch.randn(64, 4)), 4, num_workers=2, persistent_workers=True)
    model, optimizer = linear({"x": 0.01})
    while True:
        for (inputs,) in data:
            learn(model, optimizer, inputs)
            burn(0.002)
        tune.report({"value": config["x"]})


def pool_without_end(config: Config) -> None:
    with multiprocessing.Pool(2) as workers:
        while True:
            workers.map(burn, [0.005] * 2)
            tune.report({"value": config["x"]})


def shell_without_end(config: Config) -> None:
    subprocess.Popen("sleep 1000 & setsid sleep 1000", shell=True)
    while True:
        burn(0.005)
        tune.report({"value": config["x"]})


def reaches_its_target(config: Config) -> None:
    for step in itertools.count(1):
        burn(0.01)
        tune.report({"value": float(step)})


def dispatch(config: Config) -> None:
    """One search runs many kinds: `kind` names the function."""
    globals()[config["kind"]](config)


# --- other shapes than a function


def generator(config: Config) -> Iterator[dict[str, float]]:
    for epoch in epochs():
        yield {"value": config["x"] * epoch + random.random()}


class Counter(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.count, self.again = 0, False

    def step(self) -> dict[str, Any]:
        burn(SECONDS)
        self.count += 1
        if self.count == 3 and not self.again:
            raise ArithmeticError("the third step is too hard at first")
        return {"value": self.config["x"] + self.count, "done": self.count == EPOCHS}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"count": self.count}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.count, self.again = checkpoint["count"], True

    def cleanup(self) -> None:
        print("cleaned up at", self.count)


def reads(config: Config, data: np.ndarray[Any, Any]) -> None:
    for _ in epochs():
        tune.report({"value": float(data[::4096].sum()), "megabytes": psutil.Process().memory_full_info().uss / 2**20})
