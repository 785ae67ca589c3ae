"""The TrialActor: a driver's processes on one node. The driver owns it, so it dies with the driver."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections import defaultdict
from collections.abc import Callable

from gandiva_ray.core.model import MultiJobId
from gandiva_ray.runtime.actor_trials import ActorTrials
from gandiva_ray.trial.processes import KILLED
from gandiva_ray.trial.protocol import Environment, TemplateArguments, tell_broken
from gandiva_ray.trial.zygote import Zygote

# A zygote that is killed more often than this since the last search was opened is killed for what it needs.
MOST_KILLS = 3


class TrialActor:
    """Holds a zygote and, for each open search, a template and its trials.

    All of them hang on this process by PR_SET_PDEATHSIG.
    """

    def __init__(self, environment: Environment) -> None:
        own = tuple(entry for entry in sys.path if entry not in environment.sys_path)
        self._environment = Environment((*environment.sys_path, *own), environment.working_dir)
        self._open: dict[MultiJobId, TemplateArguments] = {}
        self._closed: defaultdict[MultiJobId, asyncio.Event] = defaultdict(asyncio.Event)
        self._zygote: Zygote | None = None
        self._end = ""  # how the zygote ended
        self._kills_left = MOST_KILLS
        self._sending = threading.Lock()
        started = threading.Event()
        # The death signal follows the thread that forks, so this thread must live as long as the process.
        threading.Thread(target=self._hold, args=(started,), daemon=True).start()
        started.wait()

    async def lives(self) -> bool:
        """Whether it can open searches."""
        return not self._end

    async def open(self, multi_job: MultiJobId, address: str, trainable: bytes, start_method: str | None) -> None:
        """Start a template for a search; `address` is the agent's socket."""
        arguments = TemplateArguments(address, multi_job, trainable, self._environment, start_method)
        if start_method == "actor":
            with contextlib.suppress(OSError):  # the agent is gone, and the scheduler will say so
                await asyncio.to_thread(ActorTrials, arguments)
            return

        def order(zygote: Zygote) -> None:
            self._open[multi_job] = arguments
            zygote.open(arguments)

        self._kills_left = MOST_KILLS
        await self._send(order)
        if self._end:
            self._tell_end(arguments)

    async def live(self, multi_job: MultiJobId) -> None:
        """Returns when the search is closed: whoever waits learns of its driver's death at once."""
        await self._closed[multi_job].wait()

    async def close(self, multi_job: MultiJobId) -> None:
        """Let the search's template end."""
        self._closed[multi_job].set()

        def order(zygote: Zygote) -> None:
            self._open.pop(multi_job, None)
            zygote.close(multi_job)

        await self._send(order)

    async def _send(self, order: Callable[[Zygote], None]) -> None:
        """In a thread, for a zygote does not listen while it imports."""

        def send() -> None:
            with self._sending, contextlib.suppress(OSError):  # _hold sees its end, and sees to it
                if self._zygote is not None:
                    order(self._zygote)

        await asyncio.to_thread(send)

    def _hold(self, started: threading.Event) -> None:
        """Have a zygote, and another one when it is killed: the searches shall go on."""
        while not self._end:
            try:
                with self._sending:
                    self._zygote = zygote = Zygote(self._environment)
            except OSError as error:
                self._end = f"did not start: {error}"
                break
            finally:
                started.set()
            with self._sending, contextlib.suppress(OSError):
                for arguments in self._open.values():
                    zygote.open(arguments)
            code = zygote.process.wait()
            self._kills_left -= 1
            if -code not in KILLED or self._kills_left < 0:
                self._end = f"ended with code {code}; what it printed is in Ray's log of the TrialActor"
        for arguments in list(self._open.values()):
            self._tell_end(arguments)

    def _tell_end(self, arguments: TemplateArguments) -> None:
        """What waits for a template of a zygote that is gone would wait without end."""
        tell_broken(arguments, f"the process that templates are forked from {self._end}")
