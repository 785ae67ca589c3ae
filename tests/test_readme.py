"""The README's example runs when it is pasted into a file. Its commands and layout are test_house.py's."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.whole_runs import ROOT, run_python


def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert "num_samples=64" in example
    script = tmp_path / "example.py"
    script.write_text(example.replace("num_samples=64", "num_samples=4"))
    run = run_python(str(script), home=tmp_path)
    assert run.code == 0, run.err
    assert run.err == ""
    assert run.left == frozenset()
    best = ast.literal_eval(run.out.splitlines()[-1])
    assert 1e-5 <= best["lr"] <= 1
    assert best["width"] in (4, 8, 16, 32)
