"""The memories of device families in the place of ``hdl.byte_ram.ByteRam``."""

import re

_BYTE_RAM = re.compile(r"^module ByteRam(?:_\d+)? \(.*?^endmodule\n", re.MULTILINE | re.DOTALL)
_CONTENTS = re.compile(r"^ *(?:integer _entry;|initial for \(_entry\b.*)\n", re.MULTILINE)
_ATTRIBUTE = "(* no_rw_check *)"
_LARGE = '(* no_rw_check, ram_style = "huge" *)'


def place_memories(verilog: str, family: str) -> str:
    """Return a design's Verilog with the family's largest memories in it, where it has such.

    For ``ice40`` each is made of SB_SPRAM256KA, which cannot hold anything at first: nobody reads
    what was not written.
    """
    return _BYTE_RAM.sub(_large, verilog) if family == "ice40" else verilog


def _large(module: re.Match[str]) -> str:
    return _CONTENTS.sub("", module[0]).replace(_ATTRIBUTE, _LARGE)
