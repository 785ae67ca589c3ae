import subprocess
import sys

PROGRAM = """
import threading, time
import pandas, pyarrow
from gandiva_ray.trial.warm import fork_hazard
print(fork_hazard())
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print(fork_hazard())
"""


def test_the_thread_of_pyarrows_allocator_forbids_no_forks_and_any_other_does() -> None:
    environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(sys.path)}
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    first, second = run.stdout.splitlines()
    assert first == ""
    assert second == "loading the training function started 1 thread(s), which a fork would lack"
