"""The TrialActor: holds one multi-job's template on one node. The driver owns it, so it dies with the driver."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

from gandiva_ray.core.model import MultiJobId
from gandiva_ray.trial.protocol import Channel, TemplateArguments


class TrialActor:
    """Its process group of template and trials hangs on this process by PR_SET_PDEATHSIG."""

    def __init__(
        self, address: str, multi_job: MultiJobId, trainable: bytes, sys_path: Sequence[str], working_dir: str
    ) -> None:
        own = [entry for entry in sys.path if entry not in sys_path]
        arguments = TemplateArguments(address, multi_job, trainable, (*sys_path, *own), working_dir)
        self._process: subprocess.Popen[bytes] | None = None
        started = threading.Event()
        # The death signal follows the thread that forks, so this thread must live as long as the process.
        threading.Thread(target=self._hold, args=(arguments, started), daemon=True).start()
        started.wait()

    async def live(self) -> None:
        """Never returns: whoever waits learns of this actor's death, and so of its driver's, at once."""
        await asyncio.Event().wait()

    def _hold(self, arguments: TemplateArguments, started: threading.Event) -> None:
        try:
            self._process = subprocess.Popen(
                # -P: a file of the user's called like a standard module must not be taken for it.
                [sys.executable, "-P", "-m", "gandiva_ray.trial.template"],
                stdin=subprocess.PIPE,
                cwd=arguments.working_dir if os.path.isdir(arguments.working_dir) else None,
                env={**os.environ, "PYTHONHASHSEED": "0"},  # a set has the same order in every trial on every node
            )
            pipe: IO[bytes] | None = self._process.stdin
            assert pipe is not None
            with pipe:
                pickle.dump(arguments, pipe)
        finally:
            started.set()
        self._tell_its_end(arguments, self._process.wait())

    def _tell_its_end(self, arguments: TemplateArguments, code: int) -> None:
        """A template that dies before it could connect would be waited for without end."""
        with contextlib.suppress(OSError):  # the agent is gone, and with it all that waits
            channel = Channel(arguments.address)
            channel.send({"op": "hello", "multi_job": arguments.multi_job, "pid": os.getpid(), "role": "template"})
            error = f"the template process ended with code {code}; what it printed is in Ray's log of the TrialActor"
            channel.send({"op": "broken", "error": error})
            channel.close()
