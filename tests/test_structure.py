"""The rules that the sources keep about themselves, read from the sources."""

import ast
import re
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
    "cli": {"arch", "hdl", "sim", "generators", "tb", "fpga", "cli"},
    "tools": {"arch", "hdl", "sim", "generators", "tb", "fpga", "cli", "tools"},
}
"""What the modules of each package may import: imports point down only."""

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
    package = path.relative_to(ROOT).parts[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for name, node in imported(tree):
        top = name.partition(".")[0]
        assert top != "tests", f"line {node.lineno} imports {name}"
        if top in ALLOWED:
            assert top in ALLOWED[package], f"line {node.lineno} imports {name}"
        assert node in tree.body, f"line {node.lineno} imports within a block"
        if isinstance(node, ast.ImportFrom):
            assert all(alias.name != "*" for alias in node.names), f"line {node.lineno}"


def test_the_rules_can_fail() -> None:
    assert [name for name, _ in imported(ast.parse("import a.b\nfrom c.d import e"))] == [
        "a.b",
        "c.d",
    ]


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_package_files_are_docstrings_only(package: str) -> None:
    for path in (ROOT / package).rglob("__init__.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), path
        assert len(tree.body) == 1, path


@pytest.mark.parametrize("path", SOURCES, ids=NAMES)
def test_sources_are_finished_and_own_their_words(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\b(TODO|FIXME|XXX)\b|# noqa|# type: ignore(?!\[)", text)
    assert not any(name in text for name in REGISTRIES)
    assert not re.search(r"raise (Value|Type|Runtime)Error\b", text), (
        "arch.errors has what to raise"
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
    found = list(texts(ast.parse('def f():\n    "How it works."\nX = 1\n"Width (bits)."')))
    assert sorted(bool(QUESTIONS.match(text.value)) for text in found) == [False, True]


def test_an_install_has_every_package_and_file() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    patterns = built["setuptools"]["packages"]["find"]["include"]
    data = built["setuptools"]["package-data"]
    for name in sorted(ALLOWED.keys() - {"tools"}):
        folders = {path.parent for path in (ROOT / name).rglob("__init__.py")}
        packages = {".".join(path.relative_to(ROOT).parts): path for path in folders}
        for package in packages:
            assert any(fnmatch(package, pattern) for pattern in patterns), package
        beside = set(_data(name))
        found = {
            file
            for package, path in packages.items()
            for pattern in data.get(package, [])
            for file in path.glob(pattern)
        }
        assert not beside - found


def _data(package: str) -> list[Path]:
    """Return the files of a package that are no sources of Python."""
    kept = [path for path in (ROOT / package).rglob("*") if path.is_file()]
    return [path for path in kept if path.suffix not in {".py", ".pyc"}]
