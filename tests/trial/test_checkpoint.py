from __future__ import annotations

import os
from pathlib import Path

import pytest

from gandiva_ray.trial.checkpoint import Checkpoint


def test_a_dict_comes_back(tmp_path: Path) -> None:
    checkpoint = Checkpoint.from_dict({"epoch": 3, "weights": [1.0, 2.0]})
    checkpoint.save(tmp_path / "kept")
    assert Checkpoint(tmp_path / "kept").to_dict() == {"epoch": 3, "weights": [1.0, 2.0]}
    assert checkpoint == Checkpoint(tmp_path / "kept")


def test_what_is_made_from_a_dict_is_moved_and_a_folder_of_the_users_is_copied(tmp_path: Path) -> None:
    made = Checkpoint.from_dict({})
    scratch = made.path
    made.save(tmp_path / "made")
    assert not os.path.exists(scratch)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "weights").write_text("1 2 3")
    Checkpoint.from_directory(tmp_path / "mine").save(tmp_path / "copy")
    assert (tmp_path / "mine" / "weights").read_text() == (tmp_path / "copy" / "weights").read_text() == "1 2 3"


def test_saving_in_place_of_another_leaves_nothing_of_it(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
        Checkpoint.from_directory(tmp_path / name).save(tmp_path / "kept")
    assert os.listdir(tmp_path / "kept") == ["second"]
    assert sorted(os.listdir(tmp_path)) == ["first", "kept", "second"]


def test_a_save_that_fails_leaves_the_one_that_is_there(tmp_path: Path) -> None:
    Checkpoint.from_dict({"x": 1}).save(tmp_path / "kept")
    with pytest.raises(OSError, match="missing"):
        Checkpoint(tmp_path / "missing").save(tmp_path / "kept")
    assert Checkpoint(tmp_path / "kept").to_dict() == {"x": 1}


def test_to_directory_and_as_directory(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "weights").write_text("1")
    checkpoint = Checkpoint.from_directory(tmp_path / "mine")
    assert Path(checkpoint.to_directory(tmp_path / "copy"), "weights").read_text() == "1"
    with checkpoint.as_directory() as folder:
        assert Path(folder, "weights").read_text() == "1"


def test_metadata(tmp_path: Path) -> None:
    checkpoint = Checkpoint.from_directory(tmp_path)
    assert checkpoint.get_metadata() == {}
    checkpoint.set_metadata({"a": 1})
    checkpoint.update_metadata({"b": 2})
    assert Checkpoint(tmp_path).get_metadata() == {"a": 1, "b": 2}


def test_errors_name_the_fix(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="a checkpoint is a folder; there is none at /"):
        Checkpoint.from_directory(tmp_path / "missing")
    with pytest.raises(ValueError, match=r"was not made by Checkpoint\.from_dict: read it by as_directory"):
        Checkpoint.from_directory(tmp_path).to_dict()
