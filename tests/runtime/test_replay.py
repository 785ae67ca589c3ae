from pathlib import Path

import pytest

import gandiva_ray as tune
from gandiva_ray.core.events import JobEnded, JobParked, JobPromoted, NodeJoined, StopRequested
from gandiva_ray.core.scheduler import Scheduler
from gandiva_ray.journal import Journal
from gandiva_ray.policies import gandiva
from tests.runtime import trainables
from tests.runtime.cluster_state import scheduler_status


@pytest.mark.usefixtures("embedded_ray")
def test_a_live_journal_replays_to_the_same_decisions(tmp_path: Path) -> None:
    tune.Tuner(
        trainables.count,
        param_space={"x": tune.uniform(0, 1), "seconds": 0.002},
        tune_config=tune.TuneConfig(metric="x", mode="max", num_samples=12, searcher=tune.ASHA(max_t=9)),
        run_config=tune.RunConfig(storage_path=tmp_path, verbose=0),
    ).fit()
    with Journal.open(scheduler_status()["journal"]) as journal:
        assert journal.header["policy"] == "Gandiva"
        scheduler = Scheduler(gandiva.Gandiva(**journal.header["knobs"]))
        entries = list(journal)
    seen = {type(event) for entry in entries for event in entry.events}
    assert {NodeJoined, JobParked, JobPromoted, StopRequested, JobEnded} <= seen
    for entry in entries:
        assert tuple(scheduler.handle(*entry.events)) == entry.decisions, f"entry {entry.seq}"
