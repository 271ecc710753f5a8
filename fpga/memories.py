"""Choice of the memories that become block RAM where a device has too few for all."""

import math
import re
from collections import Counter
from dataclasses import dataclass

from fpga.devices import Device

_MEMORY = re.compile(r"^  memory width (\d+) size (\d+) (?:offset \d+ )?(\S+)$", re.MULTILINE)
_WRITTEN = re.compile(r"^  cell \$memwr\S* .*\n(?:    .*\n)*?    parameter \\MEMID \"(\S+)\"", re.M)

_ENABLED_BITS = 9  # of a block RAM that are written together
_CELL_BITS, _CELL_WORDS = 4, 16  # of a memory cell that is made of tables
_CELL_TABLES = 6  # of which two write


@dataclass(frozen=True)
class _Memory:
    name: str
    blocks: int
    """Block RAMs that it needs."""
    tables: int
    """Tables that it needs instead."""


def _side_by_side(width: int, parts: int, bits: int) -> int:
    """Return how many block RAMs of some bits hold a word whose parts are written alone.

    One enable writes 9 bits of a block RAM.
    """
    if parts < 2:
        return math.ceil(width / bits)
    part = math.ceil(width / parts)
    together = bits // _ENABLED_BITS // math.ceil(part / _ENABLED_BITS)
    return math.ceil(parts / together) if together else parts * math.ceil(part / bits)


def share_block_rams(flat: str, device: Device) -> str:
    """Return a flat design's RTLIL in which no more memories ask for block RAM than get it.

    Where there are too few, memories become tables: those first that need the fewest tables for
    each block RAM that they leave. For 16 words of a bit that is one where nobody writes, and else
    one and a half, and half a one to choose. A family without memory cells made of tables stays as
    it is.
    """
    shapes = device.family.block_ram_shapes
    found = []
    written = Counter(name.replace("\\\\", "\\") for name in _WRITTEN.findall(flat))
    for width, size, name in _MEMORY.findall(flat) if shapes else ():
        blocks = min(
            _side_by_side(int(width), written[name], bits) * math.ceil(int(size) / words)
            for bits, words in shapes
        )
        rows = math.ceil(int(size) / _CELL_WORDS)
        tables = rows * int(width)
        if name in written:
            tables = rows * (_CELL_TABLES * math.ceil(int(width) / _CELL_BITS) + int(width) // 2)
        if rows > 1:
            found.append(_Memory(name, blocks, tables))
    missing = sum(memory.blocks for memory in found) - device.capacity["block_rams"]
    styles = {}
    for memory in sorted(found, key=lambda one: (one.tables / one.blocks, one.name)):
        if missing > 0:
            missing -= memory.blocks
            styles[memory.name] = "distributed" if memory.name in written else "logic"

    def mark(match: re.Match[str]) -> str:
        style = styles.get(match[3])
        return f'  attribute \\ram_style "{style}"\n{match[0]}' if style else match[0]

    return _MEMORY.sub(mark, flat)


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
