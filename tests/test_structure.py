"""The rules that the sources keep about themselves, read from the sources."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

ALLOWED = {
    "arch": {"arch"},
    "hdl": {"arch", "hdl"},
    "sim": {"arch", "sim"},
    "generators": {"arch", "hdl", "sim", "generators"},
    "tb": {"arch", "hdl", "sim", "generators", "tb"},
    "fpga": {"arch", "hdl", "sim", "generators", "fpga"},
    "celosia": {"arch", "hdl", "sim", "generators", "tb", "fpga", "celosia"},
    "cli": {"arch", "hdl", "sim", "generators", "tb", "fpga", "celosia", "cli"},
    "tools": {"arch", "hdl", "sim", "generators", "tb", "fpga", "celosia", "cli", "tools"},
}
"""What the modules of each package may import: imports point down only."""

ROOMS = ALLOWED.keys() - {"tools", "celosia"}
"""The packages below celosia, whose own modules are the library."""

SOURCES = sorted(path for package in ALLOWED for path in (ROOT / package).rglob("*.py"))
NAMES = [str(path.relative_to(ROOT)) for path in SOURCES]

REGISTRIES = tuple(
    f"{name}.{domain}"
    for name, domain in (("pypi", "org"), ("pythonhosted", "org"), ("crates", "io"))
)


def imported(tree: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            yield node.module or "", node


@pytest.mark.parametrize("path", SOURCES, ids=NAMES)
def test_imports_point_down(path: Path) -> None:
    check_imports(path.relative_to(ROOT).parts[0], path.read_text(encoding="utf-8"))


def check_imports(package: str, source: str) -> None:
    """Fail if a module of a package imports upward, a second copy of a room, or within a block."""
    tree = ast.parse(source)
    for name, node in imported(tree):
        top, _, below = name.partition(".")
        room = below.partition(".")[0] if top == "celosia" else top
        assert top not in {"tests", *ROOMS}, f"line {node.lineno} imports {name}"
        rooms = [room] if room else [getattr(alias, "name", "") for alias in node.names]
        if top == "tools":
            rooms = ["tools"]
        for each in rooms if top in {"celosia", "tools"} else []:
            known = each if each in ALLOWED else "celosia"
            assert known in ALLOWED[package], f"line {node.lineno} imports {name}"
        assert node in tree.body, f"line {node.lineno} imports within a block"
        if isinstance(node, ast.ImportFrom):
            assert all(alias.name != "*" for alias in node.names), f"line {node.lineno}"


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("hdl", "from celosia.generators.program import draft"),
        ("hdl", "import celosia.sim.softmax"),
        ("sim", "from celosia import hdl"),
        ("arch", "import hdl.matrix"),
        ("cli", "from tests import support"),
        ("cli", "from tools.gate import measure"),
        ("generators", "from celosia.programs import Program"),
        ("tb", "import celosia"),
        ("celosia", "from celosia.cli.output import say"),
        ("tb", "def f():\n    import celosia.tb.machine"),
        ("tb", "from celosia.tb.machine import *"),
    ],
)
def test_the_rules_can_fail(package: str, source: str) -> None:
    with pytest.raises(AssertionError, match="line"):
        check_imports(package, source)


def test_a_room_is_imported_by_one_name() -> None:
    for room in ROOMS:
        link = ROOT / "celosia" / room
        assert link.is_symlink()
        assert link.resolve() == ROOT / room
        done = subprocess.run(
            [sys.executable, "-c", f"import {room}"], cwd=ROOT, capture_output=True, text=True
        )
        assert f"import celosia.{room}" in done.stderr


def test_types_are_checked_in_every_module() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    rooms = [name.partition(".")[2] for name in built["mypy"]["packages"]]
    checked = sum(len(list((ROOT / room).rglob("*.py"))) for room in rooms)
    told = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True
    ).stdout
    # What these import of the circuits is followed, too.
    assert int(re.search(r"in (\d+) source files", told)[1]) >= checked


NAMES_IN = {ROOT / "celosia", ROOT / "hdl"}
"""The folders whose ``__init__.py`` has public names, imported when they are used."""


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_package_files_are_docstrings_only(package: str) -> None:
    for path in set((ROOT / package).rglob("__init__.py")) - {
        folder / "__init__.py" for folder in NAMES_IN
    }:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), path
        top = path.parent == ROOT / package and package in ROOMS
        assert [type(each) for each in tree.body[1:]] == [ast.Assert] * top, path


@pytest.mark.parametrize("path", SOURCES, ids=NAMES)
def test_sources_are_finished_and_own_their_words(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\b(TODO|FIXME|XXX)\b|# noqa|# type: ignore(?!\[)", text)
    assert not any(name in text for name in REGISTRIES)
    assert not re.search(r"raise (Value|Type|Runtime)Error\b", text), (
        "celosia.arch.errors has what to raise"
    )
    if path.is_relative_to(ROOT / "hdl"):
        assert "from __future__ import annotations" not in text


QUESTIONS = re.compile(r"(What|Where|How|Which|Whether|Who|Whose|When)\b")
"""Words that begin a question: a docstring begins with the thing that it is about."""

WORDED = ("arch", "hdl", "sim", "generators", "tb", "fpga", "cli", "examples", "tools")
"""Packages whose docstrings keep that rule throughout."""


def texts(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the strings that stand alone: docstrings of modules, classes, functions, values."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                yield statement.value


@pytest.mark.parametrize("package", WORDED)
def test_docstrings_begin_with_their_subject(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        for text in texts(ast.parse(path.read_text(encoding="utf-8"))):
            begins = QUESTIONS.match(str(text.value).strip())
            assert not begins, f"{path}:{text.lineno} begins with {begins}"


def test_a_question_is_found() -> None:
    nodes = list(texts(ast.parse('def f():\n    "How it works."\nX = 1\n"Width (bits)."')))
    assert sorted(bool(QUESTIONS.match(text.value)) for text in nodes) == [False, True]


def test_an_install_has_every_package_and_file() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    patterns = built["setuptools"]["packages"]["find"]["include"]
    data = built["setuptools"]["package-data"]
    for name in sorted(ROOMS):
        folders = {path.parent for path in (ROOT / name).rglob("__init__.py")}
        packages = {".".join(("celosia", *path.relative_to(ROOT).parts)): path for path in folders}
        for package in packages:
            assert any(fnmatch(package, pattern) for pattern in patterns), package
        beside = set(_data(name))
        files = {
            file
            for package, path in packages.items()
            for pattern in data.get(package, [])
            for file in path.glob(pattern)
        }
        assert not beside - files


def _data(package: str) -> list[Path]:
    """Return the files of a package that are no sources of Python."""
    kept = [path for path in (ROOT / package).rglob("*") if path.is_file()]
    return [path for path in kept if path.suffix not in {".py", ".pyc"}]
