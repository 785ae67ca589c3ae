"""The process that templates are forked from: `python -m gandiva_ray.trial.zygote`, orders on its standard input.

Importing torch takes three seconds. A driver's zygote on a node does it once, and each of its searches gets a template
that is a fork of it, so that a second search starts at once.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from multiprocessing.connection import Connection

from gandiva_ray.trial import processes, template
from gandiva_ray.trial.loading import import_torch, prepare_environment
from gandiva_ray.trial.protocol import CloseTemplate, Environment, TemplateArguments, tell_broken
from gandiva_ray.trial.warm import fork_hazard, warm_up

# A template whose agent has forgotten it ends by itself; after this it is killed.
_GRACE = 1.0


class Zygote:
    """The parent's handle. Sending blocks while the zygote imports; raises OSError once it is gone."""

    def __init__(self, environment: Environment) -> None:
        self.process = subprocess.Popen(
            # -P: a file of the user's called like a standard module must not be taken for it.
            [sys.executable, "-P", "-m", "gandiva_ray.trial.zygote"],
            stdin=subprocess.PIPE,
            cwd=environment.working_dir if os.path.isdir(environment.working_dir) else None,
            env={**os.environ, "PYTHONHASHSEED": "0"},  # a set has the same order in every trial on every node
        )
        assert self.process.stdin is not None
        with self.process.stdin as pipe:
            self._orders = Connection(os.dup(pipe.fileno()), readable=False)
        with contextlib.suppress(OSError):  # it ended at once: whoever sends the next order will see it
            self._orders.send(environment)

    def open(self, arguments: TemplateArguments) -> None:
        """Fork a template for a search."""
        self._orders.send(arguments)

    def close(self, multi_job: str) -> None:
        """See to it that the template of a search ends."""
        self._orders.send(CloseTemplate(multi_job))

    def hang_up(self) -> None:
        """No more orders: it ends with the last of its templates."""
        self._orders.close()


def main() -> None:
    processes.die_with_parent(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, who decides
    orders = Connection(os.dup(0), writable=False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    try:
        prepare_environment(orders.recv())
    except EOFError:
        return
    error = hazard = ""
    try:
        import_torch()
        warm_up()
        hazard = fork_hazard()
    except BaseException:  # a module may call sys.exit() when it is imported
        error = traceback.format_exc()
    gc.collect()
    gc.freeze()  # or the first collection in each fork would touch, and so copy, every page
    _Forker(orders, error, hazard).serve()
    processes.leave(0)


class _Forker:
    """`error` is why no template can work; `hazard` why a template's own forks could not."""

    def __init__(self, orders: Connection, error: str, hazard: str) -> None:
        self._orders: Connection | None = orders
        self._error = error
        self._hazard = hazard
        self._templates: dict[int, TemplateArguments] = {}
        self._kill_at: dict[int, float] = {}
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> None:
        """Until there are no more orders and the last template has ended."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        while self._orders is not None or self._templates:
            sources: list[Connection | int] = [self._wake_read, *([self._orders] if self._orders is not None else [])]
            readable, _, _ = select.select(sources, [], [], _GRACE if self._kill_at else None)
            if self._wake_read in readable:
                os.read(self._wake_read, 4096)
            self._reap()
            if self._orders is not None and self._orders in readable:
                self._obey(self._orders)
            now = time.monotonic()
            processes.send_signal([pid for pid, at in self._kill_at.items() if at <= now], signal.SIGKILL)

    def _obey(self, orders: Connection) -> None:
        try:
            order: TemplateArguments | CloseTemplate = orders.recv()
        except EOFError:
            self._orders = None
            return
        if isinstance(order, TemplateArguments):
            self._open(order, orders)
        else:
            kill_at = time.monotonic() + _GRACE
            self._kill_at |= {pid: kill_at for pid, of in self._templates.items() if of.multi_job == order.multi_job}

    def _open(self, arguments: TemplateArguments, orders: Connection) -> None:
        zygote = os.getpid()
        sys.stdout.flush()  # or each fork would write it once more
        try:
            pid = os.fork()
        except OSError:  # no memory, or too many processes
            tell_broken(arguments, traceback.format_exc())
            return
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            orders.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
            template.live(arguments, zygote, self._error, self._hazard)
        self._templates[pid] = arguments

    def _reap(self) -> None:
        """Forget templates that ended. One that was killed is forked again, for its search shall go on; one that ended
        by its own doing would do so again, and would be waited for without end.
        """
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                pid, status = found
                arguments = self._templates.pop(pid, None)
                asked = self._kill_at.pop(pid, None) is not None
                code = os.waitstatus_to_exitcode(status)
                if arguments is None or code == template.SERVED or asked:
                    continue
                if -code in processes.KILLED and self._orders is not None:
                    self._open(arguments, self._orders)
                else:
                    where = "what it printed is in Ray's log of the TrialActor"
                    tell_broken(arguments, f"the template process ended with code {code}; {where}")


if __name__ == "__main__":
    main()
