"""Trials in Ray actors of their own, for what must not be forked. An agent takes this for the search's template."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from concurrent.futures import Future

import ray

from gandiva_ray.runtime.actors import Actor, make_actor
from gandiva_ray.trial import child, processes
from gandiva_ray.trial.loading import Trainable, import_torch, load_trainable, prepare_environment
from gandiva_ray.trial.protocol import Channel, LaunchMessage, Message, TemplateArguments


class TrialProcess:
    """A Ray actor for one trial."""

    def run(self, arguments: TemplateArguments, launch: LaunchMessage) -> int:
        """Returns 0 if the trial ended or obeyed a stop, else 1."""
        prepare_environment(arguments.environment)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Ray's own handler would wait for the training function

        def load() -> Trainable:
            import_torch()
            return load_trainable(arguments.trainable)

        try:
            return child.run(child.Birth(arguments, launch, template=os.getppid(), load=load))
        finally:
            processes.send_signal(processes.descendants(os.getpid()), signal.SIGKILL)


class ActorTrials:
    """Makes an actor for each trial of a search that its agent orders, inside this process's placement group.

    They are this process's children in Ray, and die with it. Raises OSError where the agent is gone.
    """

    def __init__(self, arguments: TemplateArguments) -> None:
        self._arguments = ray.put(arguments)
        self._channel = Channel(arguments.address)
        self._sending = threading.Lock()
        self._actors: dict[str, Actor] = {}
        self._say({"op": "hello", "multi_job": arguments.multi_job, "pid": os.getpid(), "role": "template"})
        self._say({"op": "ready", "fork_safe": False, "why": ""})
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        """Until the agent is gone, or has forgotten the search: then nothing that was started here is left."""
        with contextlib.suppress(OSError):
            while (messages := self._channel.read()) is not None:
                for message in messages:
                    self._launch(message)
        for actor in list(self._actors.values()):
            ray.kill(actor)

    def _launch(self, message: Message) -> None:
        launch = LaunchMessage(**{name: value for name, value in message.items() if name != "op"})
        actor = make_actor(TrialProcess, num_cpus=0, num_gpus=0.001 if ray.get_gpu_ids() else 0, max_restarts=0)
        self._actors[launch.job] = actor
        ended = actor.run.remote(self._arguments, launch).future()
        ended.add_done_callback(functools.partial(self._ended, launch.job))

    def _ended(self, job: str, ended: Future[int]) -> None:
        """Its process goes with the last reference to it."""
        code = -signal.SIGKILL if ended.exception() is not None else ended.result()
        del self._actors[job]
        with contextlib.suppress(OSError):  # the agent is gone; _serve sees that too
            self._say({"op": "exited", "job": job, "code": code})

    def _say(self, message: Message) -> None:
        with self._sending:
            self._channel.send(message)
