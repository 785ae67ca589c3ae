"""A trial, from the first instruction of its process to the last."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import os
import pickle
import random
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from gandiva_ray.trial import processes, session
from gandiva_ray.trial.loading import Trainable, set_thread_variables
from gandiva_ray.trial.protocol import (
    NO_MILESTONE,
    Channel,
    LaunchMessage,
    Message,
    TemplateArguments,
    create_page,
)

# Agent and scheduler share the cores with the trials, and need them for microseconds: they must get them at once.
_NICENESS = 5


@dataclass(frozen=True, slots=True)
class Birth:
    """What a trial's process is made from. `template` is the pid of its parent; `load` gives the training function."""

    arguments: TemplateArguments
    launch: LaunchMessage
    template: int
    load: Callable[[], Trainable]


def live(birth: Birth) -> NoReturn:
    """Run a trial in this process and end the process: 0 if it ended or obeyed a stop, else 1."""
    code = 1
    try:
        _detach(birth.template)
        code = run(birth)
    except BaseException:
        traceback.print_exc()
    finally:
        processes.leave(code)


def run(birth: Birth) -> int:
    """Run a trial in this process, to its last word: 0 if it ended or obeyed a stop, else 1."""
    own = _connect(birth)
    last = _last_word(own, lambda: _train(birth, own), birth.launch)
    own.say(last)
    return 1 if last["op"] == "failed" else 0


def _detach(template: int) -> None:
    processes.die_with_parent(template)
    processes.adopt_orphans()
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Or Ray would start a cluster in each trial; no Ray is found at such an address, and its error shows this.
    os.environ["RAY_ADDRESS"] = 'a trial that uses Ray needs RunConfig(start_method="actor")'


def _connect(birth: Birth) -> session.Session:
    """First of all, so that whatever fails after it is told to the agent."""
    page, fd = create_page()
    page.until = NO_MILESTONE if birth.launch.until is None else birth.launch.until
    own = session.Session(Channel(birth.arguments.address), page, birth.launch)
    own.say({"op": "hello", "job": birth.launch.job, "pid": os.getpid(), "page": fd, "role": "trial"})
    return own


def _train(birth: Birth, own: session.Session) -> None:
    _settle(birth.launch, birth.arguments.environment.working_dir)
    trainable = birth.load()
    _check_checkpoint(birth.launch.checkpoint)
    seed_everything(birth.launch.seed, birth.launch.trial)
    config = pickle.loads(base64.b64decode(birth.launch.config))
    own.wait_for_first_turn()
    session.begin(own)
    result = trainable(config)
    if own.stopping or result is None:
        return
    if not isinstance(result, Mapping):
        raise TypeError(
            f"the training function returned {type(result).__name__}: "
            "return a dict of metrics, or return nothing and use report()"
        )
    own.report(result, last=True)


def _check_checkpoint(path: str | None) -> None:
    if path is not None and not os.path.isdir(path):
        raise FileNotFoundError(
            f"the trial's checkpoint {path} is not on this node: set RunConfig(storage_path=...) to a folder that all "
            "nodes share"
        )


def _settle(launch: LaunchMessage, working_dir: str) -> None:
    """Its folder, its cores, its GPUs, its threads: all before the training function is loaded or CUDA is touched."""
    try:
        os.makedirs(launch.path, exist_ok=True)
        _redirect(launch.path)
    except OSError as error:
        raise OSError(
            f"the trial's folder cannot be written on this node ({error}): set RunConfig(storage_path=...) to a folder "
            "that every node can write"
        ) from error
    os.chdir(launch.path)
    os.environ["TUNE_ORIG_WORKING_DIR"] = working_dir
    if launch.cores:
        os.sched_setaffinity(0, launch.cores)
    os.nice(_NICENESS)
    if launch.gpus is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(launch.gpus)
    set_thread_variables(launch.threads)
    import torch

    torch.set_num_threads(launch.threads)


def _redirect(path: str) -> None:
    """Standard output and error, of this process and those that it starts, go to files in the trial's folder."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        stream.flush()
        fd = os.open(Path(path, ("stdout", "stderr")[number - 1]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(fd, number)
        os.close(fd)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")


def seed_everything(seed: int, trial: str) -> None:
    """Every trial draws its own numbers, and the same ones in every run."""
    import numpy
    import torch

    number = int.from_bytes(hashlib.blake2b(f"{seed}/{trial}".encode(), digest_size=8).digest())
    random.seed(number)
    numpy.random.seed(number % 2**32)
    torch.manual_seed(number)


def _last_word(own: session.Session, train: Callable[[], None], launch: LaunchMessage) -> Message:
    """Train, and say how it went. Once a trial is told to stop, whatever it ends in counts as having obeyed."""
    error: BaseException | None = None
    try:
        train()
    except session.TrialStopped:
        pass
    except BaseException as caught:
        error = caught
    if isinstance(error, SystemExit) and error.code in (None, 0):
        error = None
    text = _text(error) if error is not None else ""
    _log(text)
    if own.stopping:
        return {"op": "stopped"}
    if error is None:
        return {"op": "ended"}
    try:
        Path(launch.path, "error.txt").write_text(text, errors="backslashreplace")
    except OSError as failure:
        _log(f"gandiva: error.txt could not be written: {failure}\n")
    return {"op": "failed", "reason": _reason(error), "error": text}


def _log(text: str) -> None:
    """To the trial's stderr, whatever the training function has made of `sys.stderr`."""
    with contextlib.suppress(OSError):
        os.write(2, text.encode(errors="backslashreplace"))


def _text(error: BaseException) -> str:
    """The traceback from the user's first line on."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and _is_ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


def _reason(error: BaseException) -> str:
    """One line on what was raised, and the user's line that it came from: "ValueError: no data (train.py:12)"."""
    lines = traceback.format_exception_only(error)
    line = next((line for line in lines if not line[:1].isspace()), lines[-1]).splitlines()[0]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _is_library(frame.filename)]
    place = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    return line + place


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep


def _is_ours(file: str) -> bool:
    return file.startswith(_PACKAGE)


def _is_library(file: str) -> bool:
    return _is_ours(file) or file.startswith((_LIBRARY, "<frozen")) or "site-packages" in file
