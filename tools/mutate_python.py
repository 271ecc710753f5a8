"""Change Python modules at random and count the changes that tests notice.

`python -m tools.mutate_python sim` draws 300 mutants of `sim/` and runs for each the tests that
run its line, quickest first, until one fails. `docs/mutation.md` has the scores.
"""

import argparse
import hashlib
import importlib
import json
import os
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tools.python_mutants import Mutant, draw, statement_lines
from tools.python_tests import (
    collected,
    forked,
    record,
    run_changed,
    run_patched,
    within_functions,
    write,
)

ROOT = Path(__file__).resolve().parents[1]
TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""Folders and tests of each package, and the mutants that are known to change nothing."""
BUILD = ROOT / "build" / "mutate_python"
PRELOADED = ("numpy", "amaranth.sim", "amaranth.back.rtlil", "click", "rich", "msgspec", "jinja2")
"""Packages that are imported once, before processes are forked."""
TESTS_SECONDS = 15
"""Processor time of the tests that run for a mutant, as they took without it."""
Lines = dict[str, dict[str, list[str]]]


class Reach:
    """The tests of a package and the lines that each runs, by recordings that are kept."""

    def __init__(self, folders: list[str], patterns: list[str], jobs: int) -> None:
        self.seconds: dict[str, float] = {}
        self._tests: dict[str, list[str]] = {}
        self._lines: list[tuple[str, Lines]] = []
        names = {path for pattern in patterns for path in ROOT.glob(pattern)}
        sources = "".join((ROOT / file).read_text("utf-8") for file in modules(folders))
        recordings = {}
        for path in sorted(names):
            key = hashlib.sha256((sources + path.read_text("utf-8")).encode()).hexdigest()[:16]
            recordings[str(path.relative_to(ROOT))] = BUILD / f"{path.stem}-{key}.json"
        missing = [file for file, recording in recordings.items() if not recording.exists()]
        calls = ((partial(_record, folders, file, recordings[file]), 600.0) for file in missing)
        for number, status in forked(calls, jobs, BUILD):
            print(f"recorded {missing[number]}: status {status}", flush=True)
        for file, recording in recordings.items():
            if recording.exists():
                self._add(file, json.loads(recording.read_text("utf-8")))

    def _add(self, file: str, recorded: dict[str, Any]) -> None:
        self._lines.append((file, recorded["lines"]))
        for test, (seconds, contexts) in recorded["tests"].items():
            self.seconds[test] = seconds
            for context in contexts:
                self._tests.setdefault(f"{file} {context}", []).append(test)

    def of(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the mutant's statement, quickest first.

        For a line that runs at the import of its module these are the tests that run any of it.
        """
        span = statement_lines((ROOT / mutant.file).read_text("utf-8"), mutant.line)
        tests: set[str] = set()
        for file, lines in self._lines:
            for line, contexts in lines.get(mutant.file, {}).items():
                if span is None or int(line) in span:
                    for context in contexts:
                        tests.update(self._tests.get(f"{file} {context}", ()))
        return sorted(tests, key=lambda test: (self.seconds[test], test))


def modules(folders: list[str]) -> list[str]:
    """Return the paths of the modules in some folders, from the repository's root."""
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def _record(folders: list[str], file: str, out: Path) -> int:
    return write(out, record(ROOT, folders, file))


def _limited(tests: list[str], seconds: dict[str, float]) -> tuple[list[str], float]:
    """Return the first tests that take ``TESTS_SECONDS`` together, at least one, and their time."""
    total, kept = 0.0, []
    for test in tests:
        if kept and total + seconds[test] > TESTS_SECONDS:
            break
        kept.append(test)
        total += seconds[test]
    return kept, total


def run(
    mutants: list[Mutant],
    reach: Reach,
    jobs: int,
    until: float,
    keep: Callable[[dict[str, Any]], None],
) -> None:
    """Run the tests of each mutant, and call ``keep`` with its outcome.

    A mutant within functions runs in a fork of a process that has collected all tests.
    """
    chosen = [_limited(reach.of(mutant), reach.seconds) for mutant in mutants]
    ran = [number for number, (tests, _) in enumerate(chosen) if tests]
    for number, mutant in enumerate(mutants):
        if number not in ran:
            keep({"name": mutant.name, "line": mutant.line, "outcome": "no test"})

    def forks(numbers: list[int], call: Callable[..., int]) -> None:
        def calls() -> Iterator[tuple[Callable[[], int], float]]:
            for number in numbers:
                if time.monotonic() > until:
                    return
                mutant, (tests, seconds) = mutants[number], chosen[number]
                yield partial(call, ROOT / mutant.file, mutant.text, tests), 4 * seconds

        for place, status in forked(calls(), jobs, BUILD):
            mutant, tests = mutants[numbers[place]], chosen[numbers[place]][0]
            outcome = "survived" if status == 0 else "killed" if status > 0 else "no end"
            result = {"name": mutant.name, "line": mutant.line, "outcome": outcome}
            keep(result | {"status": status, "tests": len(tests)})

    inside = [n for n in ran if within_functions(ROOT / mutants[n].file, mutants[n].text)]
    forks(sorted({*ran} - {*inside}), run_changed)
    files = {test.partition("::")[0] for number in inside for test in chosen[number][0]}
    collected(sorted(files), lambda session: forks(inside, partial(run_patched, session)))


def report(package: str, results: list[dict[str, Any]], drawn: int, seconds: float) -> str:
    """Return the score, and the survivors as a table."""
    known = {entry["name"]: entry["reason"] for entry in TABLE["equivalent"]}
    left = [result for result in results if result["outcome"] in ("survived", "no test")]
    equal = [result for result in left if result["name"] in known]
    killed = len(results) - len(left)
    score = 100 * killed / max(1, len(results) - len(equal))
    rows = [
        f"{result['outcome']:8}  {result['line']:4}  {result['name']}  "
        f"{known.get(result['name'], '')}".rstrip()
        for result in sorted(left, key=lambda result: result["name"])
    ]
    head = f"{package}: {len(results)} of {drawn} mutants, {killed} killed, {len(equal)} equivalent"
    return "\n".join([*rows, f"{head}, score {score:.1f} %, {seconds:.0f} s"])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutate_python", description=__doc__)
    parser.add_argument("package", choices=TABLE["packages"])
    parser.add_argument("--count", type=int, default=300, help="Mutants to draw.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="Processes.")
    parser.add_argument("--seconds", type=float, default=4800, help="No mutant begins later.")
    parser.add_argument("--survivors", action="store_true", help="Run those of the last run again.")
    parser.add_argument("--resume", action="store_true", help="Keep outcomes of the last run.")
    return parser.parse_args()


def main() -> int:
    """Run the mutants of a package, print the outcomes and return the exit status."""
    arguments, began = _arguments(), time.monotonic()
    os.chdir(ROOT)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in PRELOADED:
        importlib.import_module(name)
    BUILD.mkdir(parents=True, exist_ok=True)
    package = TABLE["packages"][arguments.package]
    reach = Reach(package["folders"], package["tests"], arguments.jobs)
    mutants = draw(ROOT, modules(package["folders"]), arguments.count, arguments.seed)
    kept = BUILD / f"{arguments.package}.json"
    outcomes: dict[str, dict[str, Any]] = {}
    if kept.exists() and (arguments.resume or arguments.survivors):
        ends = ("killed", "no end") if arguments.survivors else ("killed", "no end", "survived")
        last = {outcome["name"]: outcome for outcome in json.loads(kept.read_text("utf-8"))}
        drawn = (last[mutant.name] for mutant in mutants if mutant.name in last)
        outcomes = {each["name"]: each for each in drawn if each["outcome"] in ends}
    left = [mutant for mutant in mutants if mutant.name not in outcomes]

    def keep(result: dict[str, Any]) -> None:
        outcomes[result["name"]] = result
        print(f"{len(outcomes)}/{len(mutants)} {result['outcome']:8} {result['name']}", flush=True)
        write(kept, list(outcomes.values()))

    run(left, reach, arguments.jobs, began + arguments.seconds, keep)
    print(
        report(arguments.package, list(outcomes.values()), len(mutants), time.monotonic() - began)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
