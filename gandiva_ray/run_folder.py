"""Where a run is kept: a folder of its own, new in any case."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator
from pathlib import Path

from gandiva_ray.config import RunConfig

_DEFAULT_STORAGE = "~/gandiva_ray_results"


def create_folder(run: RunConfig, trainable: str) -> Path:
    """Create `<storage_path>/<name>`; a run without a name is called after its trainable and the time.

    Raises FileExistsError if a run of the given name is there already, OSError if the folder cannot be written; the
    message names the fix.
    """
    storage = Path(run.storage_path or _DEFAULT_STORAGE).expanduser().absolute()
    try:
        storage.mkdir(parents=True, exist_ok=True)
        for name in [run.name] if run.name else _fresh_names(trainable):
            if _create_new(storage / name):
                return storage / name
    except OSError as error:
        raise OSError(
            f"storage_path {storage} cannot be written ({error.strerror}): give another RunConfig(storage_path=...)"
        ) from None
    raise FileExistsError(
        f"there is a run called {run.name!r} in {storage} already: give another RunConfig(name=...), leave it out for "
        "a fresh one, or delete that folder"
    )


def _fresh_names(trainable: str) -> Iterator[str]:
    stem = f"{trainable}_{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}"
    return itertools.chain([stem], (f"{stem}_{n}" for n in itertools.count(2)))


def _create_new(folder: Path) -> bool:
    """False if it is there: two drivers that start in the same second must not share it."""
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True
