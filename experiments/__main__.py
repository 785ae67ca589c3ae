"""`python -m experiments list` says what there is; `python -m experiments NAME [options]` runs one."""

from __future__ import annotations

import ast
import importlib
import sys
from difflib import get_close_matches
from pathlib import Path

USAGE = "usage: python -m experiments list | python -m experiments NAME [options] (NAME --help says which)"


def names() -> list[str]:
    """The experiments: the modules of this package that do not begin with an underscore."""
    return sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))


def summary(name: str) -> str:
    """The first line of the experiment's docstring. Read, not imported: torch and ray take seconds."""
    source = Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(source)) or ""
    return docstring.partition("\n")[0]


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if arguments else 2
    name, *options = arguments
    if name == "list":
        width = max(map(len, names()))
        print("\n".join(f"{known:{width}}  {summary(known)}" for known in names()))
        return 0
    if name not in names():
        nearest = get_close_matches(name, names(), n=1, cutoff=0.0)[0]
        print(f"there is no experiment {name!r}: did you mean {nearest!r}? `list` names all of them", file=sys.stderr)
        return 2
    importlib.import_module(f"experiments.{name}").main(options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
