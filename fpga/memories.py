"""Chooses the memories that are built from LUTs if a device has too few block RAMs."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from celosia.fpga.devices import Device

_MEMORY = re.compile(r"^  memory width (\d+) size (\d+) (?:offset \d+ )?(\S+)$", re.MULTILINE)
_WRITTEN = re.compile(r"^  cell \$memwr\S* .*\n(?:    .*\n)*?    parameter \\MEMID \"(\S+)\"", re.M)

_ENABLED_BITS = 9  # of a block RAM that are written together
_CELL_BITS, _CELL_WORDS = 4, 16  # of a memory cell that is made of tables
_CELL_TABLES = 6  # two of them for writing


@dataclass(frozen=True)
class Memory:
    """A memory of a design, and the number of block RAMs or of LUTs from which it can be built."""

    name: str
    blocks: int
    """Number of block RAMs that the memory needs."""
    tables: int
    """Number of LUTs that the memory needs without block RAM."""


def memory_needs(
    name: str, width: int, size: int, parts: int, shapes: Sequence[tuple[int, int]]
) -> Memory | None:
    """Return the block RAMs that a memory needs, and the LUTs that it needs without block RAM.

    The memory has ``size`` words of ``width`` bits. ``parts`` is the number of write enables of a
    word, or 0 for a memory that is never written. ``shapes`` has (bits, words) for each possible
    shape of a block RAM. The result is None for at most 16 words.
    """
    rows = math.ceil(size / _CELL_WORDS)
    if rows < 2:
        return None
    blocks = min(
        _side_by_side(width, parts, bits) * math.ceil(size / words) for bits, words in shapes
    )
    tables = rows * width
    if parts:
        tables = rows * (_CELL_TABLES * math.ceil(width / _CELL_BITS) + width // 2)
    return Memory(name, blocks, tables)


def beyond(memories: Iterable[Memory], block_rams: int) -> list[Memory]:
    """Return the memories to build from LUTs, if only ``block_rams`` block RAMs are available.

    ``memories`` are all memories of the design. Memories that need the fewest LUTs per saved block
    RAM are chosen first, until the other memories fit the block RAMs. The list is empty if all
    memories fit.
    """
    memories = sorted(memories, key=lambda memory: (memory.tables / memory.blocks, memory.name))
    missing = sum(memory.blocks for memory in memories) - block_rams
    chosen = []
    for memory in memories:
        if missing > 0:
            missing -= memory.blocks
            chosen.append(memory)
    return chosen


def _side_by_side(width: int, parts: int, bits: int) -> int:
    """Return the number of block RAMs of some bits for a word whose parts are written alone.

    One enable writes 9 bits of a block RAM.
    """
    if parts < 2:
        return math.ceil(width / bits)
    part = math.ceil(width / parts)
    together = bits // _ENABLED_BITS // math.ceil(part / _ENABLED_BITS)
    return math.ceil(parts / together) if together else parts * math.ceil(part / bits)


def share_block_rams(flat: str, device: Device) -> str:
    """Return a flat design's RTLIL, changed to use no more block RAMs than the device has.

    The memories that :func:`beyond` chooses get the attribute ``ram_style``, so that Yosys builds
    them from LUTs. The design is not changed for a family in which LUTs cannot replace block RAM.
    """
    shapes = device.family.block_ram_shapes
    written = Counter(name.replace("\\\\", "\\") for name in _WRITTEN.findall(flat))
    memories = [
        memory_needs(name, int(width), int(size), written[name], shapes)
        for width, size, name in _MEMORY.findall(flat)
        if shapes
    ]
    styles = {
        memory.name: table_style(written[memory.name])
        for memory in beyond(filter(None, memories), device.capacity["block_rams"])
    }

    def mark(match: re.Match[str]) -> str:
        style = styles.get(match[3])
        return f'  attribute \\ram_style "{style}"\n{match[0]}' if style else match[0]

    return _MEMORY.sub(mark, flat)


def table_style(parts: int) -> str:
    """Return the value of Yosys's attribute ``ram_style`` for a memory that is built from LUTs.

    ``parts`` is the number of parts of a word that can be written separately. The value is
    ``logic`` if ``parts`` is 0 (a constant table), otherwise ``distributed`` (LUTs as RAM).
    """
    return "distributed" if parts else "logic"


_BYTE_RAM = re.compile(
    r"^module (?:\w+_)?ByteRam(?:_\d+)? \(.*?^endmodule\n", re.MULTILINE | re.DOTALL
)
_CONTENTS = re.compile(r"^ *(?:integer _entry;|initial for \(_entry\b.*)\n", re.MULTILINE)
_ATTRIBUTE = "(* no_rw_check *)"
_LARGE = '(* no_rw_check, ram_style = "huge" *)'


def place_memories(verilog: str, family: str) -> str:
    """Return a design's Verilog, in which :class:`ByteRam` memories are adapted to an FPGA family.

    For ``ice40``, the memories become SB_SPRAM256KA cells without initial contents. For ``gowin``,
    the memories lose their initial contents, which no circuit reads. For other families, the
    Verilog is returned unchanged.
    """
    if family not in ("ice40", "gowin"):
        return verilog
    attribute = _LARGE if family == "ice40" else _ATTRIBUTE
    return _BYTE_RAM.sub(
        lambda module: _CONTENTS.sub("", module[0]).replace(_ATTRIBUTE, attribute), verilog
    )
