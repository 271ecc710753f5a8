"""Draw public docstrings to be rated: `python -m tools.docstrings [COMMIT]`.

The sample of 60 docstrings depends on the hash of the commit alone (the last one by default).
`docs/readability.md` has the rubric and the ratings of a sample.
"""

import argparse
import ast
import random
from collections.abc import Iterator
from pathlib import Path

from tools.check import ROOT, git

ROOMS = ("arch", "hdl", "sim", "generators", "tb", "fpga", "celosia", "cli")
SIZE = 60
"""Docstrings in a sample."""

Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def public(path: Path) -> Iterator[tuple[str, str]]:
    """Yield name and docstring of a module and of its public classes, functions and methods."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    place = str(path.relative_to(ROOT))
    yield place, ast.get_docstring(tree) or ""
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else []
        owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        if isinstance(node, Documented) and not node.name.startswith("_"):
            yield f"{place}: {node.name}", ast.get_docstring(node) or ""
            for method in inner:
                if isinstance(method, Documented) and not method.name.startswith("_"):
                    yield f"{place}: {owner}{method.name}", ast.get_docstring(method) or ""


def sample(commit: str) -> list[tuple[str, str]]:
    """Return the docstrings that a commit's hash draws, in the order of their places."""
    paths = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    everything = [each for path in paths for each in public(path) if each[1]]
    return sorted(random.Random(commit).sample(everything, SIZE))


def main() -> None:
    """Print the sample of a commit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default="HEAD")
    commit = git("rev-parse", "--verify", parser.parse_args().commit).strip()
    for number, (place, text) in enumerate(sample(commit), 1):
        print(f"{number}. {place}\n\n{text}\n")


if __name__ == "__main__":
    main()
