"""What the loop does beside what a Tuner shows: with very many trials."""

from __future__ import annotations

import pickle
import time
from contextlib import closing
from pathlib import Path

import gandiva_ray as tune
from gandiva_ray.core.multi_job import MultiJob
from gandiva_ray.core.search import Create, Problem, TrialEvent
from gandiva_ray.progress import Silence
from gandiva_ray.run_log import RunLog
from gandiva_ray.search_loop import SearchLoop
from gandiva_ray.serialize import dump_trainable
from tests.fake_search_session import FakeSearchSession


class FarSession(FakeSearchSession):
    """What it says comes in messages; `sizes` are those of what it was given to submit."""

    sizes: list[int]

    def submit(self, trials: list[Create]) -> None:  # type: ignore[override]
        self.sizes = [*getattr(self, "sizes", []), len(trials)]
        super().submit(trials)

    def poll(self, timeout: float) -> list[TrialEvent]:
        return [pickle.loads(pickle.dumps(event)) for event in super().poll(timeout)]


def searched(trials: int, folder: Path) -> tuple[MultiJob, FarSession]:
    multi_job = MultiJob(tune.RandomSearch(), Problem({"x": tune.uniform(0, 1)}, "score", "max", trials, 0))
    session = FarSession(dump_trainable(lambda config: [{"score": config["x"]}], "train"), folder)
    with closing(RunLog(folder, time.monotonic)) as log:
        SearchLoop(multi_job, session, log, Silence(), time.monotonic, None).run()
    return multi_job, session


def test_trials_keep_one_copy_of_the_words_that_they_have_in_common(tmp_path: Path) -> None:
    first, second, *_ = searched(2, tmp_path)[0].trials.values()
    assert first.node is second.node != ""
    assert first.reason is second.reason != ""
    assert [*map(id, first.metrics)] == [*map(id, second.metrics)] != []


def test_very_many_trials_are_created_a_few_at_a_time(tmp_path: Path) -> None:
    multi_job, session = searched(500, tmp_path)
    assert len(multi_job.trials) == sum(session.sizes) == 500
    assert max(session.sizes) <= 64
