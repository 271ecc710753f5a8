"""Run the tests nearest to a change: `python -m tools.check`, which `make check` calls.

The change is the difference of the files from the branch `main` (`--base`). Each file of tests has
a distance from it: the number of imports from the tests to a changed module; a file that is no
module stands for the modules that name it. Tests run nearest first, in two processes, until all
are done or `--seconds` have passed. Form and English of the changed files are checked first. The
exit status is that of pytest, or 1 if the form is refused.
"""

import argparse
import ast
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("arch", "hdl", "sim", "generators", "tb", "fpga", "cli")
"""Folders that are imported below ``celosia``."""
SECONDS = 120
"""Time of the tests (s)."""
Graph = Mapping[str, set[str]]


def changed(base: str) -> list[str]:
    """Return the paths of files that differ from a branch or are new."""
    fork = git("merge-base", base, "HEAD").strip()
    known = git("diff", "--name-only", fork).splitlines()
    return sorted({*known, *git("ls-files", "--others", "--exclude-standard").splitlines()})


def git(*words: str) -> str:
    """Return the output of git; end with status 2 and one sentence if git refuses."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        print(f"git {' '.join(words)}: {done.stderr.splitlines()[0]}", file=sys.stderr)
        sys.exit(2)
    return done.stdout


def sources() -> dict[str, str]:
    """Return the text of each module and file of tests, by its place in the root."""
    folders = (*ROOMS, "celosia", "tools", "tests")
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def importers(texts: Mapping[str, str]) -> Graph:
    """Return the modules that import each module, by their places."""
    graph: dict[str, set[str]] = {name: set() for name in texts}
    for name, text in texts.items():
        for imported in _imports(text):
            place = imported.replace(".", "/")
            inner = place.removeprefix("celosia/")
            place = inner if inner.partition("/")[0] in ROOMS else place
            for file in (f"{place}.py", f"{place}/__init__.py"):
                graph.get(file, set()).add(name)
    return graph


def _imports(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def distances(files: Iterable[str], texts: Mapping[str, str]) -> dict[str, int]:
    """Return the imports between each file of tests and the nearest changed file."""
    graph = importers(texts)
    near: set[str] = set()
    for file in files:
        base = Path(file).name
        near |= {file} if file in texts else {name for name in texts if base in texts[name]}
    steps, distance = dict.fromkeys(sorted(near), 0), 0
    while near:
        distance += 1
        near = {name for each in near for name in graph[each]} - steps.keys()
        steps |= dict.fromkeys(sorted(near), distance)
    return {name: step for name, step in steps.items() if Path(name).match("tests/test_*.py")}


class Limit:
    """A plugin of pytest that ends the run some seconds after its first report."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.end = seconds, 0.0
        self.session: pytest.Session | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keep the session that is to be ended."""
        self.session = session

    def pytest_runtest_logreport(self) -> None:
        """End the run if the time has passed, with status 1 if a test failed."""
        self.end = self.end or time.monotonic() + self.seconds
        if self.session is not None and time.monotonic() > self.end:
            failed = bool(self.session.testsfailed)
            pytest.exit("the time is over: farther tests did not run", int(failed))


def main() -> int:
    """Check the changed files, and run the tests near them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default="main", help="Branch to compare with.")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="Time of the tests.")
    parser.add_argument("--list", action="store_true", help="Print the files of tests alone.")
    options = parser.parse_args()
    files = [file for file in changed(options.base) if (ROOT / file).exists()]
    steps = distances(files, sources())
    nearest = sorted(steps, key=lambda name: (steps[name], name))
    print(f"{len(files)} changed files, {len(nearest)} files of tests", flush=True)
    if options.list or not files:
        print("\n".join(f"{steps[name]:3}  {name}" for name in nearest))
        return 0
    python = [file for file in files if file.endswith(".py")]
    checks = [["ruff", "format", "--check", *python], ["ruff", "check", *python]] if python else []
    for words in (*checks, ["tools.prose"]):
        if subprocess.run([sys.executable, "-m", *words], cwd=ROOT).returncode:
            return 1
    words = ["-q", "-n", "2", "-m", "not slow and not long", "--rootdir", str(ROOT)]
    return int(pytest.main([*words, *nearest], [Limit(options.seconds)])) if nearest else 0


if __name__ == "__main__":
    sys.exit(main())
