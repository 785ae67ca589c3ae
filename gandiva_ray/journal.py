"""The cluster's journal: what happened, what was decided on it, and all that is needed to decide it again. Durable.

One SQLite file, written by one process. An entry is one call of `Scheduler.handle`, in one transaction: a process that
is killed leaves every entry that was appended before. (Loss of power may cost the last ones, never the file.)
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
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
VERSION = 1
_CREATE = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
    "CREATE TABLE header (json TEXT NOT NULL)",
    "CREATE TABLE entries (seq INTEGER PRIMARY KEY, at REAL NOT NULL, events TEXT NOT NULL, decisions TEXT NOT NULL)",
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


@lru_cache(maxsize=1)
def _converter() -> cattrs.Converter:
    """Dataclasses to JSON and back; which event or decision it is stands under "type", by class name."""
    converter = cattrs.Converter(forbid_extra_keys=True)
    for union in (Event, Decision):
        configure_tagged_union(union, converter, tag_name="type")
    return converter


class Journal:
    """Write with `create` and `append`; read with `open`, `header` and by iterating, also while it is being written.

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
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA cache_size = -128")  # KiB; what is written is not read again
        with connection:
            connection.execute("BEGIN")
            for statement in _CREATE:
                connection.execute(statement)
            connection.execute("INSERT INTO header VALUES (?)", (text,))
        return cls(connection, json.loads(text))

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Self:
        """An existing journal, to read. Raises FileNotFoundError, or JournalError where it is none of this version."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"there is no journal at {path}")
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )
        try:
            return cls(connection, _read_header(connection, path))
        except BaseException:
            connection.close()
            raise

    def append(self, at: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
        """Write one call of `Scheduler.handle` down. Raises sqlite3.OperationalError on a journal opened to read."""
        converter = _converter()
        written = json.dumps(converter.unstructure(tuple(events), tuple[Event, ...]))
        decided = json.dumps(converter.unstructure(tuple(decisions), tuple[Decision, ...]))
        self._connection.execute("INSERT INTO entries (at, events, decisions) VALUES (?, ?, ?)", (at, written, decided))

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
