"""What holds for the repository as a whole. Style and types are `make lint`'s, imports test_imports.py's."""

from __future__ import annotations

import re
import subprocess
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from experiments.__main__ import names

ROOT = Path(__file__).parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
# In halves, so that this file names none of them.
REGISTRIES = [
    "py" + "pi.",
    "python" + "hosted",
    "index" + "-url",
    "find" + "-links",
    "download.py" + "torch",
    "ana" + "conda",
    "conda" + "-forge",
    "docker" + ".io",
    "gh" + "cr.io",
    "npm" + "js",
    "hugging" + "face",
]


def tracked() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_names_a_registry_or_a_place_to_download_from() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {registry}"
        for path in tracked()
        for registry in REGISTRIES
        if registry in path.read_text(encoding="utf-8").lower()
    ]
    assert found == []


def test_the_wheel_holds_the_library_and_the_searchers_alone() -> None:
    patterns = PYPROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert {"gandiva_ray", "searchers", "workloads", "experiments", "tests"} <= packages
    packed = {name for name in packages if any(fnmatchcase(name, pattern) for pattern in patterns)}
    assert packed == {"gandiva_ray", "searchers"}


@pytest.mark.parametrize("package", ["gandiva_ray", "searchers"])
def test_the_wheel_is_typed_and_whole(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()
    assert "py.typed" in PYPROJECT["tool"]["setuptools"]["package-data"][package]
    folders = {path.parent for path in (ROOT / package).rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}


def test_constraints_are_exact_versions_and_nothing_else() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9A-Za-z.]*", line)] == []
    assert len(constraints()) == len(lines)
    assert constraints()["torch"] == "2.13.0"


def test_what_the_project_depends_on_is_pinned_to_a_version_that_it_allows() -> None:
    project = PYPROJECT["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    wanted = [Requirement(line) for group in groups for line in group]
    pinned = constraints()
    for requirement in wanted:
        name = canonicalize_name(requirement.name)
        if name != canonicalize_name(project["name"]):
            assert requirement.specifier.contains(pinned[name]), f"{requirement}: pinned to {pinned[name]}"


def test_the_commands_of_the_readme_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    experiments = set(re.findall(r"python -m experiments ([a-z_]+)", readme))
    assert {"ray_tune", "overheads", "many_trials"} <= experiments <= {*names(), "list"}
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test"} <= set(re.findall(r"`make ([a-z]+)`", readme)) <= targets


def test_the_layout_of_the_readme_is_the_layout_of_the_code() -> None:
    layout = (ROOT / "README.md").read_text().partition("## Layout")[2].split("```")[1]
    folder, found = "", []
    for line in layout.strip().splitlines():
        name = line.split()[0]
        folder = folder if line.startswith(" ") else ""
        found.append(folder + name)
        folder = folder if line.startswith(" ") else name
    assert [name for name in found if not (ROOT / name).exists()] == []
    assert {f"{path.parent.name}/" for path in ROOT.glob("*/__init__.py")} <= set(found)
    assert {f"gandiva_ray/{path.parent.name}/" for path in ROOT.glob("gandiva_ray/*/__init__.py")} <= set(found)
