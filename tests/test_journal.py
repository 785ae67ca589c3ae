from __future__ import annotations

import dataclasses
import math
import signal
import sqlite3
import subprocess
import sys
import time
import types
import typing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gandiva_ray.core.decisions import Decision, Launch, Stop
from gandiva_ray.core.events import Event, JobEnded, JobFailed, JobStarted, JobSubmitted, NodeJoined, TimerFired
from gandiva_ray.core.model import Assignment, Device, JobSpec, Node, Outcome
from gandiva_ray.journal import VERSION, Entry, Journal, JournalError, Note

HEADER = {
    "policy": "tiresias-l",
    "knobs": {"thresholds": [3600.0], "weights": None},
    "versions": {"gandiva_ray": "0.1.0"},
}
GANG = (Device("node", 0), Device("node", 1))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    first = (NodeJoined(0.0, Node("node", GANG, 2**40, True)), JobSubmitted(1.0, JobSpec("a", "search", 2, until=3)))
    second = (JobFailed(2.5, "a", Outcome.LOST, "its node: «gone»"), TimerFired(math.inf))
    with Journal.create(tmp_path / "journal", HEADER) as journal:
        journal.append(1.0, first, [Launch("a", Assignment(GANG, 0.5, True, "pack"), 3, "it fits")])
        journal.append(2.5, second, [])
    with Journal.open(tmp_path / "journal") as journal:
        assert journal.header == HEADER
        assert list(journal) == [
            Entry(1, 1.0, first, (Launch("a", Assignment(GANG, 0.5, True, "pack"), 3, "it fits"),)),
            Entry(2, 2.5, second, ()),
        ]


NUMBERS = st.floats(allow_nan=False)
WEIGHTS = st.floats(min_value=0.0, allow_nan=False, allow_infinity=False)


def _node(name: str, devices: set[int], free_bytes: int, rehomes: bool) -> Node:
    return Node(name, tuple(Device(name, index) for index in devices), free_bytes, rehomes)


def any_of(hint: typing.Any) -> st.SearchStrategy[typing.Any]:
    """Values of a type; like st.from_type, but without nan, which equals nothing, and with legal values."""
    if hint is float:
        return NUMBERS
    if hint is Assignment:
        devices = st.lists(any_of(Device), min_size=1, unique=True).map(tuple)
        return st.builds(Assignment, devices, WEIGHTS, st.booleans(), any_of(str | None))
    if hint is JobSpec:
        until = st.none() | st.integers()
        return st.builds(JobSpec, st.text(), st.text(), st.integers(min_value=1), WEIGHTS, st.booleans(), until)
    if hint is Node:
        own = st.sets(st.integers(), max_size=3)
        return st.builds(_node, st.text(), own, st.integers(), st.booleans())
    if dataclasses.is_dataclass(hint):
        return st.builds(hint, **{name: any_of(part) for name, part in typing.get_type_hints(hint).items()})
    if isinstance(hint, types.UnionType):
        return st.one_of([any_of(part) for part in typing.get_args(hint)])
    if typing.get_origin(hint) is tuple:
        return st.lists(any_of(typing.get_args(hint)[0]), max_size=3).map(tuple)
    return st.from_type(hint)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> typing.Iterator[tuple[Path, Journal]]:
    path = tmp_path_factory.mktemp("journal") / "journal"
    with Journal.create(path, {}) as journal:
        yield path, journal


@settings(deadline=None, max_examples=200)
@given(st.lists(any_of(Event), max_size=4), st.lists(any_of(Decision), max_size=4), NUMBERS)
def test_every_event_and_decision_comes_back_equal(
    shared: tuple[Path, Journal], events: list[Event], decisions: list[Decision], at: float
) -> None:
    path, journal = shared
    journal.append(at, events, decisions)
    with Journal.open(path) as reader:
        last = list(reader)[-1]
    assert (last.at, last.events, last.decisions) == (at, tuple(events), tuple(decisions))
    assert [type(thing) for thing in (*last.events, *last.decisions)] == [
        type(thing) for thing in (*events, *decisions)
    ]


def test_a_journal_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "journal", HEADER) as writer, Journal.open(tmp_path / "journal") as reader:
        for count in range(3):
            writer.append(float(count), [JobStarted(float(count), "a")], [])
            assert len(list(reader)) == count + 1


def test_the_latest_note_of_its_kind_and_name_counts(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "journal", HEADER) as journal:
        journal.append(0.0, [], [], [Note("driver", "a", b"1"), Note("driver", "b", b"2"), Note("outbox", "a", b"3")])
        journal.note(Note("driver", "a", b"4"), Note("driver", "b", None), Note("driver", "never there", None))
        assert journal.notes("driver") == {"a": b"4"}
        assert journal.notes("outbox") == {"a": b"3"}
        assert journal.notes("no such kind") == {}
        assert len(list(journal)) == 1, "a note is no entry"


def test_a_successor_reads_the_notes_and_writes_on(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "journal", HEADER) as first:
        first.append(1.0, [JobStarted(1.0, "a")], [], [Note("driver", "a", b"1")])
    with Journal.go_on(tmp_path / "journal") as second:
        assert second.header == HEADER
        assert second.notes("driver") == {"a": b"1"}
        second.append(2.0, [JobStarted(2.0, "b")], [], [Note("driver", "a", None)])
        assert [(entry.seq, entry.at) for entry in second] == [(1, 1.0), (2, 2.0)]
        assert second.notes("driver") == {}
    with pytest.raises(FileNotFoundError, match="there is no journal at"):
        Journal.go_on(tmp_path / "missing")


def test_an_entry_and_its_notes_are_written_both_or_none(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "journal", HEADER) as journal:
        bad = Note("driver", "b", object())  # type: ignore[arg-type]
        with pytest.raises(sqlite3.Error):
            journal.append(1.0, [JobStarted(1.0, "a")], [], [Note("driver", "a", b"1"), bad])
        with pytest.raises(sqlite3.Error):
            journal.note(Note("driver", "a", b"1"), bad)
        assert list(journal) == []
        assert journal.notes("driver") == {}
        journal.append(2.0, [JobStarted(2.0, "a")], [])
        assert [entry.at for entry in journal] == [2.0]


WRITER = """
import itertools, sys
from gandiva_ray.core.events import JobEnded
from gandiva_ray.core.model import Outcome
from gandiva_ray.journal import Journal, Note
journal = Journal.create(sys.argv[1], {"policy": "fifo"})
for count in itertools.count(1):
    journal.append(float(count), [JobEnded(float(count), str(count), Outcome.COMPLETED, "x" * 1000)], [],
        [Note("count", "", b"%d" % count)])
    sys.stdout.write(f"{count}\\n")
    sys.stdout.flush()
"""


def test_a_journal_of_a_killed_process_holds_every_entry_that_was_appended(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent
    )
    with process:
        assert process.stdout is not None
        while int(process.stdout.readline()) < 200:
            pass
        process.send_signal(signal.SIGKILL)
        lines = process.stdout.read().splitlines(keepends=True)
    written = max([200, *(int(line) for line in lines if line.endswith("\n"))])
    with Journal.open(path) as journal:
        assert journal.header == {"policy": "fifo"}
        entries = list(journal)
        assert journal.notes("count") == {"": b"%d" % len(entries)}
    assert written <= len(entries) <= written + 1
    for count, entry in enumerate(entries, 1):
        assert entry == Entry(count, float(count), (JobEnded(count, str(count), Outcome.COMPLETED, "x" * 1000),), ())


def test_a_file_that_is_no_journal_is_named(tmp_path: Path) -> None:
    text, other, empty = tmp_path / "notes.txt", tmp_path / "other.sqlite", tmp_path / "empty"
    text.write_text("not a database at all, but long enough to have a header of its own\n" * 10)
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE header (json TEXT)")
    connection.close()
    empty.touch()
    for path in (text, other, empty):
        with pytest.raises(JournalError, match=f"{path.name} is no journal"):
            Journal.open(path)
    with pytest.raises(FileNotFoundError, match="there is no journal at"):
        Journal.open(tmp_path / "missing")


def test_a_journal_of_another_version_is_refused(tmp_path: Path) -> None:
    Journal.create(tmp_path / "journal", HEADER).close()
    connection = sqlite3.connect(tmp_path / "journal")
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    with pytest.raises(JournalError, match=f"version {VERSION + 1}; this gandiva_ray reads version {VERSION}"):
        Journal.open(tmp_path / "journal")


def test_a_journal_is_not_written_over(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "journal", HEADER) as journal:
        journal.append(0.0, [JobStarted(0.0, "a")], [])
        with pytest.raises(FileExistsError):
            Journal.create(tmp_path / "journal", {})
        assert len(list(journal)) == 1


def test_a_journal_opened_to_read_cannot_be_appended_to(tmp_path: Path) -> None:
    Journal.create(tmp_path / "journal", HEADER).close()
    with Journal.open(tmp_path / "journal") as journal, pytest.raises(sqlite3.OperationalError, match="readonly"):
        journal.append(0.0, [], [])


def test_an_entry_costs_a_small_part_of_a_millisecond(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "journal", HEADER) as journal:
        began = time.process_time()
        for count in range(2000):
            journal.append(
                float(count), [JobEnded(count, "a", Outcome.STOPPED, "why")], [Stop("a", "node", Outcome.CUT, "")]
            )
        assert (time.process_time() - began) / 2000 < 1e-3
