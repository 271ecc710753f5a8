"""Verilog templates for Python's ``str.format``."""

from pathlib import Path

_FOLDER = Path(__file__).parent / "verilog"


def template(name: str) -> str:
    """Return a Verilog template of the folder ``fpga/verilog`` by its name."""
    return (_FOLDER / f"{name}.v").read_text(encoding="utf-8")
