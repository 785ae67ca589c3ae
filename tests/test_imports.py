"""The contracts on imports in pyproject.toml, as a test; and that the contracts can be broken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("gandiva_ray", "searchers", "workloads", "experiments")


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    wide = {**os.environ, "COLUMNS": "200"}  # or the names of contracts are wrapped
    return subprocess.run([sys.executable, "-c", code], cwd=folder, env=wide, capture_output=True, text=True)


def test_every_contract_on_imports_is_kept() -> None:
    outcome = lint(ROOT)
    assert outcome.returncode == 0, outcome.stdout


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("gandiva_ray/core/model.py", "import time", "The core and the policies are pure"),
        ("gandiva_ray/policies/fifo.py", "import pandas", "The core and the policies are pure"),
        ("searchers/asha.py", "import time", "A searcher sees no clock"),
        ("gandiva_ray/core/model.py", "import gandiva_ray.runtime", "Imports run downhill"),
        ("searchers/__init__.py", "import ray", "Ray is known to the runtime alone"),
        ("gandiva_ray/runtime/__init__.py", "import torch", "Torch is known to trials and workloads alone"),
    ],
)
def test_a_wrong_import_breaks_its_contract(file: str, line: str, contract: str, tmp_path: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / file).open("a") as source:
        source.write(f"\n{line}\n")
    outcome = lint(tmp_path)
    assert outcome.returncode == 1
    broken = [text for text in outcome.stdout.splitlines() if text.endswith("BROKEN")]
    assert len(broken) == 1
    assert broken[0].startswith(contract)
