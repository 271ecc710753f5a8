"""Descriptions of the host port's registers, made by PeakRDL: a C header, and HTML pages."""

import tempfile
from pathlib import Path
from typing import Any

from celosia.arch.packages import library
from celosia.arch.registers import MAX_PROGRAM_DEPTH, NAME, systemrdl

HEADER = f"{NAME}.h"
"""File name of the header."""

SOURCE = f"{NAME}.rdl"
"""File name of the SystemRDL source."""

PACKAGES = {
    "systemrdl": "systemrdl-compiler",
    "peakrdl_cheader": "peakrdl-cheader",
    "peakrdl_html": "peakrdl-html",
}
"""The package of each module."""

_TITLE = "Celosia registers"


def header(program_depth: int = MAX_PROGRAM_DEPTH) -> str:
    """Return a C header with the masks of the registers' fields, and a struct of all registers.

    The struct is for offsets only: because it is packed, compilers would access a register byte by
    byte. ``program_depth`` is the size of program memory (words). Raises :class:`InputError` if a
    Python package is missing.
    """
    exporter = _module("peakrdl_cheader.exporter").CHeaderExporter()
    standards = _module("peakrdl_cheader.c_standards").CStandard
    with tempfile.TemporaryDirectory(prefix="celosia.") as folder:
        path = Path(folder) / HEADER
        # C11's assertions need a C library, which firmware may lack.
        root = compiled(Path(folder), program_depth)
        exporter.export(root, str(path), std=standards.gnu99)
        return path.read_text(encoding="utf-8")


def pages() -> dict[str, bytes]:
    """Return HTML pages of the registers: a dictionary from file path to content.

    Raises :class:`InputError` if a Python package that generates the pages is missing.
    """
    exporter = _module("peakrdl_html").HTMLExporter()
    with tempfile.TemporaryDirectory(prefix="celosia.") as folder:
        place = Path(folder) / "html"
        exporter.export(compiled(Path(folder)), str(place), title=_TITLE)
        paths = [path for path in sorted(place.rglob("*")) if path.is_file()]
        return {path.relative_to(place).as_posix(): path.read_bytes() for path in paths}


def compiled(folder: Path, program_depth: int = MAX_PROGRAM_DEPTH) -> Any:
    """Write the registers' SystemRDL to ``folder``, compile it, and return its root node.

    PeakRDL's exporters make other descriptions from this node. ``program_depth`` is the size of
    program memory (words).
    """
    path = folder / SOURCE
    path.write_text(systemrdl(program_depth), encoding="utf-8")
    compiler = _module("systemrdl").RDLCompiler()
    compiler.compile_file(str(path))
    return compiler.elaborate()


def _module(name: str) -> Any:
    return library(name, "The registers' header needs", PACKAGES[name.partition(".")[0]])
