"""The memories of device families in the place of ``hdl.memory.byte_ram.ByteRam``."""

import re

_BYTE_RAM = re.compile(
    r"^module (?:\w+_)?ByteRam(?:_\d+)? \(.*?^endmodule\n", re.MULTILINE | re.DOTALL
)
_CONTENTS = re.compile(r"^ *(?:integer _entry;|initial for \(_entry\b.*)\n", re.MULTILINE)
_ATTRIBUTE = "(* no_rw_check *)"
_LARGE = '(* no_rw_check, ram_style = "huge" *)'


def place_memories(verilog: str, family: str) -> str:
    """Return a design's Verilog in which these may hold anything at first, where that is better.

    For ``ice40`` they are made of SB_SPRAM256KA, which cannot hold anything at first; for ``gowin``
    Yosys reads them in a tenth of the time. Nobody reads what was not written.
    """
    if family not in ("ice40", "gowin"):
        return verilog
    attribute = _LARGE if family == "ice40" else _ATTRIBUTE
    return _BYTE_RAM.sub(
        lambda module: _CONTENTS.sub("", module[0]).replace(_ATTRIBUTE, attribute), verilog
    )
