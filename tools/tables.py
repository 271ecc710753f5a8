"""The tables of the documents that are made from the definitions: `python -m tools.tables`."""

import ast
import inspect
import itertools
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from celosia.arch.config import Config
from celosia.arch.presets import PRESETS
from celosia.arch.registers import COUNTERS, REGISTER_MAP
from celosia.arch.rules import RANGES
from celosia.arch.short_names import OPTIONAL, RECORDS, SHORT
from celosia.arch.support.pages import between, table

DOCS = Path(__file__).parents[1] / "docs"
ENGINE_COUNTERS = ("BUSY", "STALL", "WAIT", "IDLE")
"""Counters that each engine has."""


def meanings() -> dict[str, str]:
    """Return the docstring of each field of the configuration, by the field's path."""
    texts = {"name": "Name of the configuration; part of no circuit"}
    for name, kind in RECORDS.items():
        (body,) = (
            node.body
            for node in ast.parse(inspect.getsource(kind)).body
            if isinstance(node, ast.ClassDef)
        )
        if name in OPTIONAL:
            texts[name] = _text(inspect.getdoc(kind) or "")
        for field, below in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                assert isinstance(below, ast.Expr), f"field {field.target.id} has no text"
                texts[f"{name}.{field.target.id}"] = _text(ast.literal_eval(below.value))
    return texts


def _text(docstring: str) -> str:
    return " ".join(docstring.split()).replace("``", "`").rstrip(".")


def parameters() -> str:
    """Return the table of every field: its short name, default, the values it admits, meaning."""
    defaults = Config().flat()
    rows = []
    for path, meaning in meanings().items():
        short = SHORT.get(path)
        low, high = RANGES.get(short or "", (None, None))
        admitted = "" if low is None else f"{low}, {high}"
        name, default = (f"`{short}`", _value(defaults[short])) if short else ("", "false")
        rows.append((f"`{path}`", name, default, admitted, meaning))
    return table(("field", "short name", "default", "from, to", "meaning"), rows)


def presets() -> str:
    """Return the table of the fields in which presets differ: most presets' value, then others'."""
    values = {name: preset.flat() for name, preset in PRESETS.items()}
    rows = []
    for path in meanings():
        column = {name: each[SHORT[path]] for name, each in values.items() if path in SHORT}
        if len(set(column.values())) > 1 and path != "name":
            common, _ = Counter(column.values()).most_common(1)[0]
            others = (f"`{name}` {_value(v)}" for name, v in column.items() if v != common)
            rows.append((f"`{path}`", _value(common), ", ".join(others)))
    return table(("field", "most presets", "others"), rows)


def registers() -> str:
    """Return the table of the host's registers: those of R1 to R15 and of each kind in a line."""
    low, high = REGISTER_MAP["R1"], REGISTER_MAP["R15"]
    rows = [
        (str(register.addr), f"`{register.name}`", register.access, register.meaning)
        for register in REGISTER_MAP.values()
        if not low.addr <= register.addr <= high.addr
        and not register.name.endswith(("_LOW", "_HIGH"))
    ]
    places = f"{low.addr} to {high.addr}"
    rows.append((places, "`R1` to `R15`", low.access, "the sequencer's registers"))
    return table(("word", "register", "access", "meaning"), rows)


def counters() -> str:
    """Return the table of the counters; those that each engine has are in one line."""
    grouped: dict[str, list[str]] = {}
    for name, meaning in COUNTERS.items():
        kind, _, last = name.rpartition("_")
        common = kind in ENGINE_COUNTERS
        grouped.setdefault(meaning.replace(f" {last} ", " ") if common else meaning, []).append(
            name
        )
    rows = []
    for meaning, names in grouped.items():
        first = REGISTER_MAP[f"{names[0]}_LOW"].addr
        last = REGISTER_MAP[f"{names[-1]}_HIGH"].addr
        rows.append((f"{first} to {last}", ", ".join(f"`{name}`" for name in names), meaning))
    return table(("words", "counter", "meaning"), rows)


TABLES = {
    "parameters": parameters,
    "presets": presets,
    "registers": registers,
    "counters": counters,
}
"""The maker of each table, by the name in the two comments around its place on a page."""

PAGES = {
    DOCS / "configuration.md": ("parameters",),
    DOCS / "presets.md": ("presets",),
    DOCS / "registers.md": ("registers", "counters"),
}
"""The tables that each page has a place for."""


def refresh(page: str, names: Iterable[str]) -> str:
    """Return a page with the tables of some names made anew, each between its two comments.

    Raises :class:`InputError` if a table's comments are missing.
    """
    for name in names:
        page = between(page, name, TABLES[name]())
    return page


def _value(value: int | str) -> str:
    """Return a value as configuration files write it."""
    return str(value).lower()


if __name__ == "__main__":
    for path, tables in PAGES.items():
        path.write_text(refresh(path.read_text(encoding="utf-8"), tables), encoding="utf-8")
