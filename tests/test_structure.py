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
from mypy.main import process_options

ROOT = Path(__file__).parents[1]

ALLOWED = {
    "arch": {"arch"},
    "hdl": {"arch", "hdl"},
    "sim": {"arch", "sim"},
    "generators": {"arch", "sim", "generators"},
    "tb": {"arch", "hdl", "sim", "generators", "tb"},
    "fpga": {"arch", "hdl", "sim", "generators", "fpga"},
    "celosia": {"arch", "hdl", "sim", "generators", "tb", "fpga", "celosia"},
    "cli": {"arch", "hdl", "sim", "generators", "tb", "fpga", "celosia", "cli"},
    "tools": {"arch", "hdl", "sim", "generators", "tb", "fpga", "celosia", "cli", "tools"},
}
"""The packages that each package may import: imports point down only."""
CIRCUIT_WRITERS = Path("generators", "verilog")
"""The one folder of generators that imports circuits: the compiler knows none."""

ROOMS = ALLOWED.keys() - {"tools", "celosia"}
"""The packages below celosia, whose own modules are the library."""

SOURCES = sorted(path for package in ALLOWED for path in (ROOT / package).rglob("*.py"))
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
            yield "." * node.level + (node.module or ""), node


def test_imports_point_down() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {finding}"
        for path in SOURCES
        for finding in wrong_imports(
            path.relative_to(ROOT).parent, path.read_text(encoding="utf-8")
        )
    ]
    assert not wrong, "\n".join(wrong)


def wrong_imports(folder: Path, source: str) -> Iterator[str]:
    """Yield the imports of a module that lead upward, to a second copy of a room, or in a block."""
    tree, allowed = ast.parse(source), ALLOWED[folder.parts[0]]
    allowed = allowed | {"hdl"} if folder.is_relative_to(CIRCUIT_WRITERS) else allowed
    for name, node in imported(tree):
        top, _, below = name.partition(".")
        room = below.partition(".")[0] if top == "celosia" else top
        rooms = [room] if room else [getattr(alias, "name", "") for alias in node.names]
        known = {each if each in ALLOWED else "celosia" for each in rooms}
        upward = top in {"celosia", "tools"} and not known <= allowed
        if upward or top in {"", "tests", *ROOMS}:
            yield f"line {node.lineno} imports {name}"
        if node not in tree.body:
            yield f"line {node.lineno} imports within a block"
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            yield f"line {node.lineno} imports all names"


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
        ("generators/program", "from celosia.hdl.matrix.array import array_members"),
        ("generators/verilog", "import celosia.tb.machine"),
        ("tb", "import celosia"),
        ("celosia", "from celosia.cli.output import say"),
        ("tb", "def f():\n    import celosia.tb.machine"),
        ("tb", "from celosia.tb.machine import *"),
        ("tb", "from .machine import port"),
    ],
)
def test_the_rules_can_fail(package: str, source: str) -> None:
    assert len(list(wrong_imports(Path(package), source))) == 1


def test_a_room_is_imported_by_one_name() -> None:
    for room in ROOMS:
        link = ROOT / "celosia" / room
        assert link.is_symlink()
        assert link.resolve() == ROOT / room
        done = subprocess.run(
            [sys.executable, "-c", f"import {room}"], cwd=ROOT, capture_output=True, text=True
        )
        assert f"import celosia.{room}" in done.stderr


def test_types_are_checked_in_every_module(monkeypatch) -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    rooms = [name.partition(".")[2] for name in built["mypy"]["packages"]]
    files = {path for room in rooms for path in (ROOT / room).rglob("*.py")}
    monkeypatch.chdir(ROOT)
    sources, _ = process_options([])  # as `make lint` calls it
    assert files <= {Path(source.path).resolve() for source in sources}


NAMES_IN = {ROOT / "celosia", ROOT / "hdl"}
"""The folders whose ``__init__.py`` has public names, imported when they are used."""


def takers(source: str) -> set[str]:
    """Return the classes whose constructors take the whole configuration."""
    return {
        kind.name
        for kind in ast.walk(ast.parse(source))
        if isinstance(kind, ast.ClassDef)
        for method in kind.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        for each in (*method.args.args, *method.args.kwonlyargs)
        if each.annotation is not None and ast.unparse(each.annotation) == "Config"
    }


def test_components_take_the_records_that_they_use() -> None:
    assert takers("class A:\n    def __init__(self, config: Config): ...") == {"A"}
    classes = set().union(*(takers(path.read_text("utf-8")) for path in ROOT.glob("hdl/**/*.py")))
    assert classes == {"Accelerator", "BusAccelerator", "MicroMachine"}


def test_package_files_are_docstrings_only() -> None:
    files = [path for path in SOURCES if path.name == "__init__.py" and path.parent not in NAMES_IN]
    for path in files:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), path
        asserts = path.parent.parent == ROOT and path.parent.name in ROOMS
        assert [type(each) for each in tree.body[1:]] == [ast.Assert] * asserts, path


FORBIDDEN = {
    r"\b(TODO|FIXME|XXX)\b|# noqa|# type: ignore(?!\[)": SOURCES,
    "|".join(map(re.escape, REGISTRIES)): SOURCES,
    r"raise (Value|Type|Runtime)Error\b": SOURCES,  # celosia.arch.errors has the kinds of errors
    "from __future__ import annotations": [
        path for path in SOURCES if ROOT / "hdl" in path.parents
    ],
}
"""Patterns that no line of some files has."""


def test_sources_are_finished_and_own_their_words() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for pattern, paths in FORBIDDEN.items()
        for path in paths
        for match in re.finditer(pattern, path.read_text(encoding="utf-8"))
    ]
    assert not wrong, "\n".join(wrong)


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


def test_docstrings_begin_with_their_subject() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{text.lineno}: {str(text.value).strip()[:60]}"
        for path in [path for package in WORDED for path in (ROOT / package).rglob("*.py")]
        for text in texts(ast.parse(path.read_text(encoding="utf-8")))
        if QUESTIONS.match(str(text.value).strip())
    ]
    assert not wrong, "\n".join(wrong)


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
