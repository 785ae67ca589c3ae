"""A script as it is submitted to a cluster: its modules and its variables come with its runtime environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gandiva_ray.core.model import Outcome
from gandiva_ray.run_log import read_log
from tests.runtime.conftest import MakeCluster

MODULE = """
import os
import time
import gandiva_ray as tune

def train(config):
    for _ in range(3):
        time.sleep(0.4)  # so that the second node's device is there before all trials are
        tune.report({"value": config["x"], "node": os.environ["RAY_RAYLET_PID"], "data": os.environ["DATA"]})
"""
SCRIPT = """
import sys
import ray
import gandiva_ray as tune
from neighbour import train

ray.init(runtime_env={"working_dir": sys.argv[1], "env_vars": {"DATA": "/mnt/data"}}, log_to_driver=False)
results = tune.Tuner(
    train,
    param_space={"x": tune.uniform(0, 1)},
    tune_config=tune.TuneConfig("value", "max", num_samples=6, max_concurrent_trials=2),
    run_config=tune.RunConfig(name="run", storage_path=sys.argv[2], verbose=0),
).fit()
print(results.num_terminated, {result.metrics["data"] for result in results})
"""


@pytest.mark.slow
def test_modules_and_variables_of_the_runtime_environment_are_there_in_trials_on_every_node(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    make_cluster({"num_cpus": 1}, {"num_cpus": 1})
    code, results = tmp_path / "code", tmp_path / "results"
    code.mkdir()
    (code / "neighbour.py").write_text(MODULE)
    (code / "search.py").write_text(SCRIPT)
    script = [sys.executable, str(code / "search.py"), str(code), str(results)]
    run = subprocess.run(script, env=dict(os.environ), capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "6 {'/mnt/data'}\n"
    lines = list(read_log(results / "run"))
    assert {line["outcome"] for line in lines if line["what"] == "ended"} == {Outcome.COMPLETED.value}
    assert len({line["node"] for line in lines if line["what"] == "started"}) == 2
