"""The process that the trials of a search are forked from, itself a fork of the zygote.

It unpickles the training function once; torch is there, and has done what it otherwise does late in every trial. A fork
of it reaches its first mini-batch in milliseconds, and shares its memory and whatever data the training function
captured. Where forking is not safe, or not wanted, each trial is a fresh process instead, started from here and ended
with this one. A search that asks for that has nothing unpickled here.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import select
import signal
import sys
import time
import traceback
from functools import partial
from typing import NoReturn

from gandiva_ray.trial import child, processes
from gandiva_ray.trial.loading import Trainable, load_trainable
from gandiva_ray.trial.protocol import Channel, LaunchMessage, Message, TemplateArguments
from gandiva_ray.trial.warm import fork_hazard

# What a trial leaves behind is asked to end, so that multiprocessing's helpers can clean up, and after this killed.
_GRACE = 1.0
# How a template ends whose agent is gone, or has forgotten it. What it unpickles may end the process with 0.
SERVED = 64


def live(arguments: TemplateArguments, zygote: int, error: str, hazard: str) -> NoReturn:
    """Be the template of a search, in a fork of `zygote`, until its agent is gone.

    `error` is why the zygote is of no use, `hazard` why forks of forks of it would not work.
    """
    code = 1
    try:
        processes.die_with_parent(zygote)
        channel = Channel(arguments.address)
        channel.send({"op": "hello", "multi_job": arguments.multi_job, "pid": os.getpid(), "role": "template"})
        trainable: Trainable | None = None
        if arguments.start_method == "spawn":
            hazard = ""
        elif not error:
            trainable, error = _load(arguments.trainable)
            hazard = hazard or fork_hazard()
        if hazard and not error and arguments.start_method == "fork":
            error = f'start_method="fork" is not safe here, use start_method="spawn": {hazard}'
        if error:
            channel.send({"op": "broken", "error": error})
        else:
            _serve(arguments, None if hazard else trainable, channel, hazard)
        code = SERVED
    except BaseException:
        traceback.print_exc()
    finally:
        processes.leave(code)  # exit handlers and threads of what was unpickled might keep it


def _load(pickled: bytes) -> tuple[Trainable | None, str]:
    try:
        return load_trainable(pickled), ""
    except BaseException:  # a module may call sys.exit() when it is imported
        return None, traceback.format_exc()


def _serve(arguments: TemplateArguments, trainable: Trainable | None, channel: Channel, hazard: str) -> None:
    template = Template(arguments, trainable, channel)
    gc.collect()
    gc.freeze()  # what was unpickled too
    sys.stdout.flush()  # or each trial would write it once more
    channel.send({"op": "ready", "fork_safe": trainable is not None, "why": hazard})
    template.serve()


class Template:
    """Starts trials as it is told, and says when they ended. Without a `trainable` they load it themselves."""

    def __init__(self, arguments: TemplateArguments, trainable: Trainable | None, channel: Channel) -> None:
        self._arguments = arguments
        self._channel = channel
        self._start = self._spawn if trainable is None else partial(self._fork, trainable)
        self._jobs: dict[int, str] = {}  # by the pid of their trials
        self._kill_at: dict[int, float] = {}  # what ended trials left behind
        processes.adopt_orphans()
        self._helpers = frozenset(processes.children(os.getpid()))  # that unpickling started
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> None:
        """Until the agent is gone; then nothing that was started from here is left."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        sources: list[Channel | int] = [self._channel, self._wake_read]
        while True:
            readable, _, _ = select.select(sources, [], [], _GRACE if self._kill_at else None)
            if self._wake_read in readable:
                os.read(self._wake_read, 4096)
            try:
                self._reap()
                if self._channel in readable and not self._obey():
                    break
            except OSError:
                break
        self._end_all()

    def _obey(self) -> bool:
        """Carry out what the agent says; False, or OSError, if it is gone."""
        messages = self._channel.read()
        for message in messages or ():
            self._launch(message)
        return messages is not None

    def _launch(self, message: Message) -> None:
        launch = LaunchMessage(**{name: value for name, value in message.items() if name != "op"})
        try:
            self._jobs[self._start(launch)] = launch.job
        except OSError:  # no memory, or too many processes: that is this trial's trouble, and not the others'
            traceback.print_exc()
            self._channel.send({"op": "exited", "job": launch.job, "code": 1})

    def _fork(self, trainable: Trainable, launch: LaunchMessage) -> int:
        template = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._channel.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
            child.live(child.Birth(self._arguments, launch, template, lambda: trainable))
        return pid

    def _spawn(self, launch: LaunchMessage) -> int:
        """A fresh process. Its standard input is memory, not a pipe that somebody would have to feed."""
        fd = os.memfd_create("gandiva-trial")
        with open(fd, "wb") as file:
            file.write(pickle.dumps((self._arguments, launch, os.getpid())))
            file.seek(0)
            command = [sys.executable, "-P", "-m", "gandiva_ray.trial.spawned"]
            return os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, fd, 0)])

    def _reap(self) -> None:
        """Say which trials ended; see to what they left behind. Raises OSError if the agent is gone."""
        ended: list[tuple[str, int]] = []
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                pid, status = found
                if pid in self._jobs:
                    ended.append((self._jobs.pop(pid), os.waitstatus_to_exitcode(status)))
        self._end_orphans()
        for job, code in ended:
            self._channel.send({"op": "exited", "job": job, "code": code})

    def _end_orphans(self) -> None:
        """A trial adopts whatever is started below it; so what comes to us instead belonged to a trial that ended."""
        now = time.monotonic()
        roots = [pid for pid in processes.children(os.getpid()) if pid not in self._jobs and pid not in self._helpers]
        orphans = [*roots, *(below for pid in roots for below in processes.descendants(pid))]
        new = [pid for pid in orphans if pid not in self._kill_at]
        processes.send_signal(new, signal.SIGTERM)
        processes.send_signal(new, signal.SIGCONT)  # they may have been suspended with their trial
        self._kill_at = {pid: self._kill_at.get(pid, now + _GRACE) for pid in orphans}
        processes.send_signal([pid for pid, at in self._kill_at.items() if at <= now], signal.SIGKILL)

    def _end_all(self) -> None:
        while pids := [pid for pid in processes.descendants(os.getpid()) if pid not in self._helpers]:
            processes.send_signal(pids, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, 0)
