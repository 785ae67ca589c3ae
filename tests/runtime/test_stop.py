"""`gandiva stop` ends one search, and leaves the others alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gandiva_ray import cli
from tests.runtime.cluster_state import eventually, scheduler_status

DRIVER = """
import sys
import gandiva_ray as tune
from tests.runtime import trainables

found = tune.Tuner(
    trainables.count,
    param_space={"x": tune.uniform(0, 1)},
    tune_config=tune.TuneConfig(metric="value", mode="max", num_samples=2, searcher=tune.ASHA(max_t=10**6)),
    run_config=tune.RunConfig(name=sys.argv[2], storage_path=sys.argv[1], verbose=0),
).fit()
print(found.stop_reason, found.interrupted, len(found))
"""


def start(storage: Path, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", DRIVER, str(storage), name]
    return subprocess.Popen(command, env=dict(os.environ), stdout=subprocess.PIPE, text=True)


@pytest.mark.usefixtures("joined_cluster")
def test_the_search_that_is_named_ends_and_the_other_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drivers = {name: start(tmp_path, name) for name in ("mine", "yours")}
    try:
        for name in drivers:
            reports = tmp_path / name / "log.jsonl"
            eventually(lambda log=reports: log.exists() and '"report"' in log.read_text(), 120, "it reports")  # type: ignore[misc]
        cli.main(["stop"])
        listed = capsys.readouterr().out
        for name, driver in drivers.items():
            assert f"search {name}-" in listed
            assert f"driver process {driver.pid} on " in listed
        cli.main(["stop", "mine"])
        assert capsys.readouterr().out.endswith(" has stopped\n")
        assert drivers["mine"].communicate(timeout=60)[0] == "stopped by gandiva stop False 2\n"
        assert drivers["yours"].poll() is None
        with pytest.raises(SystemExit):
            cli.main(["stop", "mine"])
        assert "gandiva stop: no search 'mine' is running; there are yours-" in capsys.readouterr().err
        cli.main(["stop", "--all"])
        assert drivers["yours"].communicate(timeout=60)[0] == "stopped by gandiva stop False 2\n"
        eventually(lambda: scheduler_status()["multi_jobs"] == {}, 10, "no search is left")
    finally:
        for driver in drivers.values():
            driver.kill()
            driver.wait()
