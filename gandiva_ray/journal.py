"""The cluster's journal: what happened, what was decided on it, and all that is needed to decide it again. Durable.

One SQLite file, written by one process at a time. An entry is one call of `Scheduler.handle`, in one transaction: a
process that is killed leaves every entry that was appended before. (Loss of power may cost the last ones, never the
file.) Beside the entries stand notes: what the writer needs, and no decision depends on, to go on where it was killed.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import cattrs
from cattrs.strategies import configure_tagged_union

from gandiva_ray.core.decisions import Decision
from gandiva_ray.core.events import Event

APPLICATION_ID = 0x47414E44  # "GAND": how SQLite marks whose file this is
VERSION = 2
_CREATE = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
    "CREATE TABLE header (json TEXT NOT NULL)",
    "CREATE TABLE entries (seq INTEGER PRIMARY KEY, at REAL NOT NULL, events TEXT NOT NULL, decisions TEXT NOT NULL)",
    "CREATE TABLE notes (kind TEXT NOT NULL, name TEXT NOT NULL, content BLOB NOT NULL, PRIMARY KEY (kind, name))",
)


class JournalError(Exception):
    """A file that is no journal, or not one that this version reads."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The `seq`-th call of `Scheduler.handle`, from 1. `at` is the time of its last event."""

    seq: int
    at: float
    events: tuple[Event, ...]
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """The latest of its kind and name counts; one without content strikes it out. The content is the writer's own."""

    kind: str
    name: str
    content: bytes | None


@lru_cache(maxsize=1)
def _converter() -> cattrs.Converter:
    """Dataclasses to JSON and back; which event or decision it is stands under "type", by class name."""
    converter = cattrs.Converter(forbid_extra_keys=True)
    for union in (Event, Decision):
        configure_tagged_union(union, converter, tag_name="type")
    return converter


class Journal:
    """Write with `create`, `append` and `note`; read with `open`, `header` and by iterating, also while it is being
    written. The writer's successor takes it up with `go_on`.

    Any thread may use it, one at a time.
    """

    def __init__(self, connection: sqlite3.Connection, header: Mapping[str, Any]) -> None:
        self._connection = connection
        self.header = header

    @classmethod
    def create(cls, path: str | PathLike[str], header: Mapping[str, Any]) -> Self:
        """A new journal. `header` is JSON: the policy and its knobs, versions. Raises FileExistsError."""
        path = Path(path)
        text = json.dumps(header)
        path.touch(exist_ok=False)
        connection = _connect_to_write(path)
        with connection:
            connection.execute("BEGIN")
            for statement in _CREATE:
                connection.execute(statement)
            connection.execute("INSERT INTO header VALUES (?)", (text,))
        return cls(connection, json.loads(text))

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Self:
        """An existing journal, to read. Raises FileNotFoundError, or JournalError where it is none of this version."""
        path = _existing(path)
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )
        return cls._checked(connection, path)

    @classmethod
    def go_on(cls, path: str | PathLike[str]) -> Self:
        """An existing journal whose writer is no more, to read and then to write on. Raises like `open`."""
        path = _existing(path)
        return cls._checked(_connect_to_write(path), path)

    @classmethod
    def _checked(cls, connection: sqlite3.Connection, path: Path) -> Self:
        try:
            return cls(connection, _read_header(connection, path))
        except BaseException:
            connection.close()
            raise

    def append(
        self, at: float, events: Sequence[Event], decisions: Sequence[Decision], notes: Sequence[Note] = ()
    ) -> None:
        """Write one call of `Scheduler.handle` down, and the notes with it: both or none, whatever happens.

        Raises sqlite3.OperationalError on a journal opened to read.
        """
        converter = _converter()
        written = json.dumps(converter.unstructure(tuple(events), tuple[Event, ...]))
        decided = json.dumps(converter.unstructure(tuple(decisions), tuple[Decision, ...]))
        with self._connection:
            self._connection.execute("BEGIN")
            self._connection.execute(
                "INSERT INTO entries (at, events, decisions) VALUES (?, ?, ?)", (at, written, decided)
            )
            self._write(notes)

    def note(self, *notes: Note) -> None:
        """Write notes that no event comes with."""
        with self._connection:
            self._connection.execute("BEGIN")
            self._write(notes)

    def notes(self, kind: str) -> dict[str, bytes]:
        """What is noted under this kind, by name."""
        return dict(self._connection.execute("SELECT name, content FROM notes WHERE kind = ?", (kind,)))

    def _write(self, notes: Iterable[Note]) -> None:
        for note in notes:
            if note.content is None:
                self._connection.execute("DELETE FROM notes WHERE kind = ? AND name = ?", (note.kind, note.name))
            else:
                self._connection.execute(
                    "INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", (note.kind, note.name, note.content)
                )

    def __iter__(self) -> Iterator[Entry]:
        converter = _converter()
        rows = self._connection.execute("SELECT seq, at, events, decisions FROM entries ORDER BY seq")
        for seq, at, events, decisions in rows:
            yield Entry(
                seq,
                at,
                converter.structure(json.loads(events), tuple[Event, ...]),
                converter.structure(json.loads(decisions), tuple[Decision, ...]),
            )

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _existing(path: str | PathLike[str]) -> Path:
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no journal at {path}")
    return path


def _connect_to_write(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA cache_size = -128")  # KiB; what is written is seldom read again
    return connection


def _read_header(connection: sqlite3.Connection, path: Path) -> Mapping[str, Any]:
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.DatabaseError as error:
        raise JournalError(f"{path} is no journal: {error}") from error
    if application != APPLICATION_ID:
        raise JournalError(f"{path} is no journal of gandiva_ray: its SQLite application id is {application:#x}")
    if version != VERSION:
        raise JournalError(f"{path} is a journal of version {version}; this gandiva_ray reads version {VERSION}")
    (text,) = connection.execute("SELECT json FROM header").fetchone()
    header: Mapping[str, Any] = json.loads(text)
    return header
