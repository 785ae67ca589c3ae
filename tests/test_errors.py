"""What a person sees who made a mistake: at once, in one screen, what is wrong and the fix.

One program makes the mistakes one after the other, for each would else start a Ray of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from tests.whole_runs import Run, run_python

PROGRAM = """
import os, sys, threading, traceback
import numpy as np
import gandiva_ray as tune

lock = threading.Lock()

def capture(config):
    with lock:
        tune.report({"loss": 1.0})

def report(config):
    for _ in range(3):
        tune.report(dict(config["metrics"]))

def fit(trainable, metrics=None, **run):
    tune.Tuner(
        trainable,
        param_space={"x": tune.uniform(0, 1), "metrics": metrics},
        tune_config=tune.TuneConfig(metric="val_loss", mode="min", num_samples=5),
        run_config=tune.RunConfig(verbose=1, **run),
    ).fit()

def fit_elsewhere():
    os.environ["RAY_ADDRESS"] = "127.0.0.1:1"
    try:
        fit(report)
    finally:
        del os.environ["RAY_ADDRESS"]

MISTAKES = {
    "address": fit_elsewhere,
    "capture": lambda: fit(capture),
    "path is a file": lambda: fit(report, storage_path=__file__),
    "path in proc": lambda: fit(report, storage_path="/proc/nowhere"),
    "argument": lambda: tune.TuneConfig(num_sample=3),
    "close": lambda: fit(report, {"valid_loss": 1.0}),
    "text": lambda: fit(report, {"val_loss": "low"}),
    "nothing": lambda: fit(report, {}),
}
for name, make in MISTAKES.items():
    print(f"== {name}", file=sys.stderr, flush=True)
    try:
        make()
    except Exception as error:
        error.__traceback__ = error.__traceback__.tb_next  # this loop's own frame
        traceback.print_exception(error)
"""

SCREEN = 25  # lines


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    home = tmp_path_factory.mktemp("home")
    script = home / "script.py"
    script.write_text(PROGRAM)
    run = run_python(str(script), home=home)
    assert run.code == 0, run.err
    return run


@pytest.fixture(scope="module")
def screens(run: Run) -> Mapping[str, str]:
    """What stood on the program's stderr after each mistake."""
    before, *parts = run.err.split("== ")
    assert before == ""
    return dict(part.split("\n", 1) for part in parts)


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("address", "ConnectionError: no Ray cluster answers at '127.0.0.1:1' (["),
        (
            "capture",
            "TypeError: capture cannot be sent to the trials' processes: it holds 'lock', a _thread.lock (used in "
            "script.py, line 9), which cannot be pickled",
        ),
        (
            "path is a file",
            "OSError: storage_path HOME/script.py cannot be written (File exists): give another RunConfig(",
        ),
        (
            "path in proc",
            "OSError: storage_path /proc/nowhere cannot be written (No such file or directory): give another",
        ),
        ("argument", "TypeError: TuneConfig has no 'num_sample': did you mean 'num_samples'?"),
        (
            "close",
            "RuntimeError: no trial can be judged: trial TRIAL reported no 'val_loss', only 'valid_loss', "
            "'training_iteration'; report 'val_loss', or search by metric='valid_loss'",
        ),
        (
            "text",
            "RuntimeError: no trial can be judged: trial TRIAL reported 'low' as 'val_loss', which is not a number",
        ),
    ],
)
def test_a_mistake_is_told_in_one_screen_and_one_traceback(screens: Mapping[str, str], mistake: str, said: str) -> None:
    screen = screens[mistake]
    assert screen.count("Traceback") == 1
    assert len(screen.splitlines()) <= SCREEN
    last = re.sub(r"trial \d{5}", "trial TRIAL", re.sub(r"/\S+/script.py", "HOME/script.py", screen.splitlines()[-1]))
    assert last.startswith(said)


def test_a_mistake_in_every_trial_is_told_with_the_line_that_made_it(run: Run, screens: Mapping[str, str]) -> None:
    assert screens["nothing"] == ""
    screen = run.out[run.out.rindex("RandomSearch()") :]
    assert screen.count("Traceback") == 1
    assert len(screen.splitlines()) <= SCREEN
    told = "report() got an empty dict: report at least one metric, as in report({'loss': loss})"
    why = f"ValueError: {told} (script.py:14)"
    assert screen.count(f" failed: {why}") == 5
    assert f"Error:   trial 00000: {why}" in screen


def test_trials_that_could_not_be_judged_have_failed_though_they_returned(run: Run) -> None:
    assert len(re.findall(r" failed after \d reports?: reported no 'val_loss', only 'valid_loss'", run.out)) == 3
    assert len(re.findall(r" failed after \d reports?: reported 'low' as 'val_loss', which is no", run.out)) == 3
