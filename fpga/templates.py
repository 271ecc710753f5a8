"""Reads Verilog templates, whose fields Python's ``str.format`` fills."""

from pathlib import Path

_FOLDER = Path(__file__).parent / "verilog"


def template(name: str) -> str:
    """Return the Verilog template ``name``, the text of the file ``fpga/verilog/NAME.v``."""
    return (_FOLDER / f"{name}.v").read_text(encoding="utf-8")
