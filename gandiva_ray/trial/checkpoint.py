"""A trial's state on disk, by which it may go on in another process: a folder, or a dict kept in one."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

_DICT, _METADATA = "dict.pkl", ".metadata.json"


class Checkpoint:
    """A folder with whatever the training function wrote there, as with Ray Tune.

    `report(metrics, checkpoint=...)` copies it into the trial's folder; after that the original may go. `path` says
    where it is.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)
        self._scratch = False

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Self:
        """Raises NotADirectoryError where there is no such folder."""
        if not os.path.isdir(path):
            raise NotADirectoryError(f"a checkpoint is a folder; there is none at {os.path.abspath(path)}")
        return cls(path)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """One that holds this dict, pickled. Raises what pickling raises."""
        folder = tempfile.mkdtemp(prefix="checkpoint-")
        try:
            Path(folder, _DICT).write_bytes(pickle.dumps(dict(data)))
        except BaseException:
            shutil.rmtree(folder)
            raise
        return cls.to_be_moved(folder)

    @classmethod
    def to_be_moved(cls, path: str | os.PathLike[str]) -> Self:
        """One whose folder nobody else needs: it is moved, not copied, when it is reported."""
        checkpoint = cls(path)
        checkpoint._scratch = True
        return checkpoint

    @property
    def holds_dict(self) -> bool:
        """Whether it was made by `from_dict`."""
        return os.path.isfile(os.path.join(self.path, _DICT))

    def to_dict(self) -> dict[str, Any]:
        """The dict that it was made from. Raises ValueError where it was made from a folder."""
        try:
            data: dict[str, Any] = pickle.loads(Path(self.path, _DICT).read_bytes())
        except FileNotFoundError:
            raise ValueError(f"{self!r} was not made by Checkpoint.from_dict: read it by as_directory()") from None
        return data

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copy it into the folder `path` (default: a new one for temporary files); returns where."""
        target = tempfile.mkdtemp(prefix="checkpoint-") if path is None else os.fspath(path)
        shutil.copytree(self.path, target, dirs_exist_ok=True)
        return target

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """The folder itself, to read from."""
        yield self.path

    def get_metadata(self) -> dict[str, Any]:
        """What `set_metadata` left with it."""
        try:
            metadata: dict[str, Any] = json.loads(Path(self.path, _METADATA).read_text())
        except FileNotFoundError:
            return {}
        return metadata

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Keep a dict of JSON with it, in place of the one there."""
        Path(self.path, _METADATA).write_text(json.dumps(dict(metadata)))

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        self.set_metadata({**self.get_metadata(), **metadata})

    def save(self, target: Path) -> None:
        """Copy it to `target`, whole or not at all; in place of what is there. One made from a dict is moved."""
        fresh = target.with_name(f".{target.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        if self._scratch:
            shutil.move(self.path, fresh)
        else:
            shutil.copytree(self.path, fresh)
        old = target.with_name(f".{target.name}.old")
        with contextlib.suppress(FileNotFoundError):
            target.rename(old)
        fresh.rename(target)
        shutil.rmtree(old, ignore_errors=True)
        self.path, self._scratch = str(target), False

    def __repr__(self) -> str:
        return f"Checkpoint({self.path!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)
