"""Mutants of Python modules: drawn by a seed, and run by the tests that reach their lines."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.mutate_python import TABLE, report
from tools.python_mutants import draw, mutant, statement_lines
from tools.python_patch import pairs
from tools.python_tests import within_functions

ROOT = Path(__file__).parents[1]
MODULE = """\
LIMIT = 3


@staticmethod
def counted(values, most=LIMIT):
    total = 0
    while total < most and (
        values
    ):
        total += values.pop()

    return total
"""
TESTS = """\
import pytest
from box import counted

@pytest.fixture(scope="module")
def shared():
    return counted([1])

def test_first(shared):
    assert shared == 1

def test_second(shared):
    assert shared == 1

def test_other():
    assert counted([]) == 0
"""
PROGRAM = """\
import json, sys
from functools import partial
from pathlib import Path
sys.path[:0] = [{root!r}, {folder!r}]
from tools import python_tests
folder = Path({folder!r})
recorded = folder / "recorded.json"
write = lambda: python_tests.write(recorded, python_tests.record(folder, ["."], "test_box.py"))
list(python_tests.forked(iter([(write, 60)]), 1, folder))
python_tests.FREE_SECONDS = 1
tests = [f"test_box.py::test_{{name}}" for name in ("other", "first")]
texts, changed = json.loads({texts!r}), (folder / "box.py",)
run = partial(python_tests.run_changed, *changed)
calls = [(partial(run, text, tests), 0) for text in texts]
print(json.dumps(sorted(python_tests.forked(iter(calls), 2, folder))))

def campaign(session):
    run = partial(python_tests.run_patched, session, *changed)
    within = [text for text in texts if python_tests.within_functions(*changed, text)]
    calls = [(partial(run, text, tests), 0) for text in within]
    print("\\n", json.dumps(sorted(python_tests.forked(iter(calls), 2, folder))), sep="")

python_tests.collected(["test_box.py"], campaign)
"""


def test_the_seed_decides_which_mutants_are_drawn(tmp_path: Path) -> None:
    (tmp_path / "box.py").write_text(MODULE, encoding="utf-8")
    drawn = [draw(tmp_path, ["box.py"], 5, seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len({one.name for one in drawn[0]}) == 5
    every = [one.name for one in draw(tmp_path, ["box.py"], 1000, 1)]
    assert "box.py: LIMIT = 3 -> LIMIT = 4" in every  # outside functions
    assert "box.py: total += values.pop() -> total -= values.pop()" in every  # with a decorator


@pytest.mark.parametrize(
    ("line", "lines"),
    [(1, None), (4, None), (5, None), (6, [6]), (7, [7, 8, 9]), (8, [7, 8, 9]), (10, [10])],
)
def test_the_lines_of_a_statement_leave_out_those_within_it(line: int, lines) -> None:
    span = statement_lines(MODULE, line)
    assert (span if span is None else list(span)) == lines


def test_comprehensions_outside_functions_run_at_import(tmp_path: Path) -> None:
    path = tmp_path / "box.py"
    lines = ("ALL = {n: 1 for n in (2, 3)}", "ONE = lambda n: n + 1", "def f():", "    return [4]")
    path.write_text("\n".join(lines), encoding="utf-8")
    for old, new, inside in (("1 for", "9 for", False), ("+ 1", "+ 9", True), ("4", "9", True)):
        assert within_functions(path, path.read_text("utf-8").replace(old, new)) == inside


def test_functions_that_functions_have_made_are_changed(tmp_path: Path) -> None:
    path, text = tmp_path / "box.py", "def f():\n    def g():\n        return 1\n    return g\n"
    codes = [compile(some, path, "exec") for some in (text, text.replace("1", "2"))]
    found = pairs(*codes)
    assert found is not None
    assert [(old.co_name, new.co_consts) for old, new in found][1:] == [("g", (None, 2))]


def test_a_mutant_is_noticed_survives_or_has_no_end(tmp_path: Path) -> None:
    (tmp_path / "box.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "test_box.py").write_text(TESTS, encoding="utf-8")
    changes = [("+=", "-="), ("LIMIT = 3", "LIMIT = 4"), ("values.pop()", "0")]
    texts = [MODULE.replace(*change) for change in changes]
    program = PROGRAM.format(root=str(ROOT), folder=str(tmp_path), texts=json.dumps(texts))
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("[[")]
    statuses, patched = (dict(json.loads(line)) for line in lines)
    assert statuses[0] == 1
    assert statuses[1] == 0
    assert statuses[2] < 0
    # In place, for the changes within functions: the first and the last.
    assert patched == {0: 1, 1: statuses[2]}
    recorded = json.loads((tmp_path / "recorded.json").read_text("utf-8"))
    reached = recorded["lines"]["box.py"]["10"]  # what a fixture runs counts for all that ask
    users = {name for name, (_, contexts) in recorded["tests"].items() if {*contexts} & {*reached}}
    assert users == {"test_box.py::test_first", "test_box.py::test_second"}


def test_equivalent_mutants_do_not_count() -> None:
    known = TABLE["equivalent"][0]["name"]
    results = [
        {"name": "a: b -> c", "line": 1, "outcome": "killed"},
        {"name": "a: d -> e", "line": 2, "outcome": "no test"},
        {"name": known, "line": 3, "outcome": "survived"},
    ]
    assert report("sim", results, 9, 5.0).splitlines()[-1] == (
        "sim: 3 of 9 mutants, 1 killed, 1 equivalent, score 50.0 %, 5 s"
    )


def test_a_mutant_names_the_lines_that_differ() -> None:
    changed = mutant("box.py", MODULE, MODULE.replace("values\n    ):", "None\n    ):"))
    assert (changed.line, changed.name) == (8, "box.py: values -> None")
