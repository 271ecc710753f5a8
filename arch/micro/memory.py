"""The regions of a microcoded machine's data memory, and the uses of the core's registers.

The data memory has 32-bit words. The instruction set's registers are words of the data memory; the
core's own registers are in :data:`REGISTERS` and :data:`OPERANDS`.
"""

from dataclasses import dataclass

from celosia.arch.config import Config
from celosia.arch.isa import DEFINITIONS, LOOP_LEVELS, Engine, Opcode
from celosia.arch.isa import REGISTERS as ISA_REGISTERS

LOOP_WORDS = 2
"""Words of an open loop: address of the body, and rounds left."""
SCRATCH_WORDS = 32
"""Words that any instruction may overwrite."""
TABLE_WORDS = 64
"""Words of an activation table."""
PARAM_WORDS = 3
"""Words of one requantization: bias, multiplier, shift."""


@dataclass(frozen=True)
class Map:
    """Address of the first word of each region in a configuration's data memory."""

    program: int
    """The host's program, then at least one guard word; a read of the first guard word is an error.
    """
    registers: int
    """The instruction set's registers 0 to 15; register 0 is 0."""
    loops: int
    """Address of the body and number of rounds left of each open loop, outermost first."""
    scratch: int
    """32 words that any instruction may overwrite."""
    row: int
    """A row of a softmax or a normalization, of ``max_row`` words."""
    tables: int
    """Activation tables of 64 words: entry e is byte e % 4, from the lowest one, of word e // 4."""
    params: int
    """Requantization parameters of 3 words: bias, multiplier, shift."""
    end: int
    """Words in total."""


def memory_map(config: Config) -> Map:
    """Return the word address at which each region of a configuration's data memory begins.

    For example, with programs of at most 1000 words, ``program`` is 0 and ``registers`` is 1008.
    """
    registers = (config.control.program_depth // ISA_REGISTERS + 1) * ISA_REGISTERS
    loops = registers + ISA_REGISTERS
    scratch = loops + LOOP_WORDS * LOOP_LEVELS
    row = scratch + SCRATCH_WORDS
    tables = row + (config.vector.longest_row if config.softmax or config.vector.norm else 0)
    params = tables + (TABLE_WORDS * config.table_slots if config.activation else 0)
    end = params + PARAM_WORDS * config.vector.words
    return Map(0, registers, loops, scratch, row, tables, params, end)


LINK = 1
"""Register of the return address of a routine called by an instruction's handler."""
REGISTERS = {"ZERO": 0, "LINK": LINK, "LINK2": 2, "FLAGS": 4, "PC": 5, "DEPTH": 6}
"""Registers by name. ZERO is 0; LINK and LINK2 are the return addresses of routines and of routines
called by them. FLAGS holds the current instruction's flags from bit 0 on, PC the word address of
the next instruction, and DEPTH the words of the open loops."""


def _operands() -> dict[str, int]:
    """Return the register of every operand; those of the vector engine are all different."""
    names: dict[str, int] = {}
    for definition in DEFINITIONS.values():
        if definition.engine == Engine.VECTOR:
            for name in definition.operands:
                names.setdefault(name, 32 + len(names))
    for others in (Opcode.MATMUL, Opcode.LOAD, Opcode.LOOP, Opcode.SET):
        used = {names[name] for name in DEFINITIONS[others].operands if name in names}
        room = (number for number in range(32, 64) if number not in used)
        for name in DEFINITIONS[others].operands:
            if name not in names:
                names[name] = next(room)
    return names


OPERANDS = _operands()
"""Register that holds each operand of the current instruction by name, resolved and signed.

An instruction may change the registers of its operands.
"""
