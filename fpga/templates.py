"""Pieces of Verilog that are filled in by Python's ``str.format``, or used as they are."""

from pathlib import Path

_FOLDER = Path(__file__).parent / "verilog"


def template(name: str) -> str:
    """Return a piece of the folder ``verilog``."""
    return (_FOLDER / f"{name}.v").read_text(encoding="utf-8")
