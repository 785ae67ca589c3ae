"""The life of a template, and what dies with whom."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest

from gandiva_ray.trial.protocol import Environment, TemplateArguments
from gandiva_ray.trial.zygote import Zygote
from tests.fake_agent import FakeAgent, FakeTemplate, FakeTrial
from tests.trial import trainables
from tests.trial.conftest import ROOT


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until_none_runs(template: FakeTemplate, *pids: int) -> None:
    template.agent.until(lambda: not any(map(runs, pids)), f"the end of {pids}")


def trial_with_children(template: FakeTemplate) -> tuple[FakeTrial, list[int]]:
    trial = template.launch({"do": "have_children"})
    trial.resume()
    pids: list[int] = trial.next("report")["metrics"]["pids"]
    assert all(map(runs, pids))
    return trial, pids


def private_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty", "Private_Clean")))


def test_a_warm_template_may_be_forked(template: FakeTemplate) -> None:
    assert template.peer.said[1] == {"op": "ready", "fork_safe": True, "why": ""}


def test_a_fork_reaches_its_first_boundary_soon(template: FakeTemplate) -> None:
    times = []
    for _ in range(5):
        began = time.monotonic()
        trial = template.launch({"do": "forever"})
        trial.resume()
        template.agent.until(lambda trial=trial: trial.page.boundaries)
        times.append(time.monotonic() - began)
        os.kill(trial.pid, signal.SIGKILL)
    assert statistics.median(times) < 0.5


def test_data_of_the_training_function_is_shared(template: FakeTemplate) -> None:
    trial = template.launch({"do": "sum_of_data"})
    trial.resume()
    assert trial.next("report")["metrics"]["sum"] == trainables.SHARED_BYTES // 4096
    trial.suspend()
    assert private_bytes(trial.pid) < trainables.SHARED_BYTES / 2
    trial.say("stop")
    trial.exit_code()


def test_children_of_a_trial_stand_still_while_it_is_suspended(template: FakeTemplate) -> None:
    trial, pids = trial_with_children(template)
    trial.suspend()
    template.agent.until(lambda: {psutil.Process(pid).status() for pid in pids} == {psutil.STATUS_STOPPED})
    trial.resume()
    assert psutil.STATUS_STOPPED not in {psutil.Process(pid).status() for pid in pids}
    trial.ask_to_stop()
    until_none_runs(template, trial.pid, *pids)


def test_children_of_a_killed_trial_are_ended_and_others_are_not(template: FakeTemplate) -> None:
    killed, pids = trial_with_children(template)
    other, others = trial_with_children(template)
    killed.suspend()
    os.kill(killed.pid, signal.SIGKILL)
    until_none_runs(template, *pids)
    assert all(map(runs, others))
    other.ask_to_stop()
    until_none_runs(template, *others)


def test_when_the_agent_goes_template_trials_and_their_children_end(tmp_path: Path) -> None:
    template = FakeTemplate(trainables.dispatch, tmp_path, sys_path=(ROOT,))
    waiting = template.launch({"do": "forever"})
    running, pids = trial_with_children(template)
    template.close()
    assert template.zygote.process.returncode == 0
    until = time.monotonic() + 10
    while any(map(runs, (waiting.pid, running.pid, *pids))):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_when_the_zygote_is_killed_all_below_it_dies(tmp_path: Path) -> None:
    template = FakeTemplate(trainables.dispatch, tmp_path, sys_path=(ROOT,))
    trials = [template.launch({"do": "forever"}) for _ in range(3)]
    trials[0].resume()
    trials[1].resume()
    trials[1].suspend()
    template.zygote.process.kill()
    until_none_runs(template, template.pid, *(trial.pid for trial in trials))
    template.close()


def test_when_the_parent_of_the_zygote_is_killed_it_dies(tmp_path: Path) -> None:
    code = """if True:
        import time
        from gandiva_ray.trial.protocol import Environment
        from gandiva_ray.trial.zygote import Zygote
        print(Zygote(Environment((), "/")).process.pid, flush=True)
        time.sleep(600)
    """
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    zygote = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 10
    while runs(zygote):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_killed_template_takes_its_trials_with_it_and_a_zygote_without_orders_says_so(tmp_path: Path) -> None:
    template = FakeTemplate(trainables.dispatch, tmp_path, sys_path=(ROOT,))
    trial = template.launch({"do": "forever"})
    trial.resume()
    os.kill(template.pid, signal.SIGKILL)
    until_none_runs(template, trial.pid)
    in_its_place = template.agent.peer(role="template", pid=template.zygote.process.pid)
    template.agent.until(lambda: in_its_place.gone)
    assert "the template process ended with code -9" in in_its_place.said[1]["error"]
    template.close()


def test_a_zygote_serves_one_search_after_another_and_ends_those_that_do_not(tmp_path: Path) -> None:
    agent, environment = FakeAgent(), Environment((ROOT,), os.getcwd())
    zygote = Zygote(environment)
    for search in ("first", "second"):
        zygote.open(TemplateArguments(agent.address, search, cloudpickle.dumps(trainables.dispatch), environment))
    first, second = (agent.peer(role="template", multi_job=search) for search in ("first", "second"))
    for peer in (first, second):
        agent.until(lambda peer=peer: "ready" in peer.ops())
    zygote.close("first")  # though its agent still holds the line
    agent.until(lambda: first.gone)
    assert not second.gone
    agent.close()
    zygote.hang_up()
    assert zygote.process.wait(10) == 0


def test_where_torch_cannot_be_imported_the_search_is_told(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    template = FakeTemplate(trainables.dispatch, tmp_path, sys_path=(str(tmp_path), ROOT))
    assert template.peer.said[1]["error"].endswith("ImportError: no torch here\n")
    template.close()


def test_warming_up_asks_nothing_of_a_gpu_and_a_touched_gpu_forbids_forks() -> None:
    code = """if True:
        import torch
        from gandiva_ray.trial import warm
        def gpu(*args, **kwargs): raise AssertionError("touched the GPU")
        torch.accelerator.current_accelerator = torch.accelerator.is_available = gpu
        torch.cuda.is_available = torch.cuda.device_count = torch.cuda._lazy_init = gpu
        warm.warm_up()
        print(repr(warm.fork_hazard()))
        torch.cuda._is_in_bad_fork = lambda: True
        print(warm.fork_hazard())
    """
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    found = subprocess.run([sys.executable, "-c", code], env=os.environ | single, capture_output=True, text=True)
    assert found.stdout.splitlines()[:1] == ["''"], found.stderr
    assert "touched CUDA" in found.stdout


class StartsThread:
    """A training function that must not be forked: unpickling it starts a thread."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _start_thread, ()


def _start_thread() -> Any:
    import threading

    threading.Thread(target=time.sleep, args=(600,)).start()
    return trainables.dispatch


def test_where_forking_is_unsafe_trials_are_spawned(tmp_path: Path) -> None:
    template = FakeTemplate(StartsThread(), tmp_path, sys_path=(ROOT,))
    ready = template.peer.said[1]
    assert ready["op"] == "ready"
    assert not ready["fork_safe"]
    assert "1 thread" in ready["why"]
    core = max(os.sched_getaffinity(0))
    trial = template.launch({"do": "affinities"}, cores=(core,))
    trial.resume()
    assert trial.exit_code() == 0, trial.stderr()
    assert all(cores == [core] for cores in trial.metrics()[0]["cores"])
    template.close()
    assert template.zygote.process.returncode == 0


def test_where_trials_are_to_be_spawned_their_template_does_not_unpickle_the_training_function(tmp_path: Path) -> None:
    template = FakeTemplate(StartsThread(), tmp_path, sys_path=(ROOT,), start_method="spawn")
    assert template.peer.said[1] == {"op": "ready", "fork_safe": False, "why": ""}
    assert psutil.Process(template.pid).num_threads() == 1
    trial = template.run({"do": "where"})
    assert trial.ops()[-1] == "ended", trial.stderr()
    assert trial.metrics()[0]["cwd"] == str(trial.path)
    template.close()


def test_where_a_fork_that_is_asked_for_is_unsafe_the_search_is_told_what_to_use_instead(tmp_path: Path) -> None:
    template = FakeTemplate(StartsThread(), tmp_path, sys_path=(ROOT,), start_method="fork")
    error = template.peer.said[1]["error"]
    assert error.startswith('start_method="fork" is not safe here, use start_method="spawn": ')
    template.close()


@pytest.mark.parametrize(
    ("blob", "error"),
    [(b"cno_such_module\nf\n.", "No module named 'no_such_module'"), (b"csys\nexit\n(I5\ntR.", "SystemExit: 5")],
)
def test_a_training_function_that_cannot_be_loaded_is_told(tmp_path: Path, blob: bytes, error: str) -> None:
    template = FakeTemplate(blob, tmp_path)
    broken = template.peer.said[1]
    assert broken["op"] == "broken"
    assert broken["error"].startswith("Traceback")
    assert error in broken["error"]
    template.close()
    assert template.zygote.process.returncode == 0
