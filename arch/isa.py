"""The instruction set, defined once for circuit, golden machine and compiler.

An instruction is a header word, followed by one word for each operand. Each word has 32 bits. Its
fields, from the least significant bit on, are:

- header: bits 4:0 opcode; 8:5 pop, one bit per engine; 12:9 push, one bit per engine; 15:13 zero;
  31:16 flags
- operand: bits 27:0 immediate, two's complement; 31:28 register; register 0 is 0. The value
  of an operand is its immediate plus the value of its register, modulo 2**28. It is signed, except
  that an address of external memory is unsigned.

Tokens synchronize the engines. An engine starts an instruction only after it has received one token
from each engine in the instruction's ``pop``. When the instruction has completed, the engine sends
one token to each engine in ``push``. Instructions of one engine run in program order. If several
instructions of an engine have the same flag, it is the same bit in each. In a valid header, all
bits that the opcode does not define are 0.
"""

import enum
import functools
from dataclasses import dataclass
from typing import Any

from celosia.arch.tables import own_table

WORD_WIDTH = 32
IMMEDIATE_WIDTH = 28
REGISTERS = 16
MAX_TOKENS = 255
"""Most unconsumed tokens from one engine to another; one more stops the run."""
LOOP_LEVELS = 4
RING_SLOTS = 2
"""Weight slots that streamed weights use in turn; resident weights use the slots above them."""
COUNT_WIDTH = 16
"""Width of a count of rows, columns, products or rounds (bits)."""
COLUMN_WIDTH = 24
"""Width of the column number that argmax returns (bits)."""
POP_SHIFT = 5
PUSH_SHIFT = 9
FLAG_SHIFT = 16
_UNUSED_BITS = 7 << 13


class Engine(enum.IntEnum):
    """The engines that run instructions; the value is the engine's bit in the masks of a header.

    Mask ``pop`` has the engines that the instruction waits for. Mask ``push`` has the engines that
    may wait for the instruction.
    """

    LOAD = 0
    MATRIX = 1
    VECTOR = 2
    STORE = 3


class Opcode(enum.IntEnum):
    """Opcodes of the instructions: values of the field ``opcode`` in an instruction's header."""

    HALT = 0
    LOOP = 1
    ENDLOOP = 2
    SET = 3
    LOAD = 4
    STORE = 5
    MATMUL = 6
    PRELOAD = 7
    DRAIN = 8
    MAP = 9
    SOFTMAX = 10
    NORM = 11
    PARAMS = 12
    TABLE = 13
    SPARSE = 14


@dataclass(frozen=True)
class Definition:
    """The definition of one instruction: the engine that runs it, its operands, and its flags."""

    opcode: Opcode
    engine: Engine | None
    """Engine that runs the instruction; None if the sequencer runs it."""
    operands: tuple[str, ...]
    flags: tuple[str, ...]
    summary: str
    unit: str | None = None
    """Configuration field that must be set for the instruction to exist; None if it always
    exists."""

    @property
    def words(self) -> int:
        """Length of the instruction (words of 32 bits)."""
        return 1 + len(self.operands)

    @functools.cached_property
    def reserved(self) -> int:
        """Mask of header bits that must be 0.

        These are the unused bits, the bits of flags that the instruction does not have, and the
        token bits of its engine. (An engine sends no token to itself.) If an instruction has no
        engine, all token bits must be 0.
        """
        own = 0xF if self.engine is None else 1 << self.engine
        tokens = own << POP_SHIFT | own << PUSH_SHIFT
        known = sum(1 << self.flag_bit(flag) for flag in self.flags)
        return _UNUSED_BITS | tokens | (0xFFFF & ~known) << FLAG_SHIFT

    def flag_bit(self, name: str) -> int:
        """Return the number of a flag's bit in the flags field of a header, counted from 0.

        A flag has the same number in all instructions of an engine.
        """
        return _FLAGS[self.engine].index(_SHARED.get(name, name))


FORMAT_FLAGS = ("format_1", "format_2", "format_4", "grouped")
"""Flags for a weight format's number, and for groups with scales."""
WIDE_FLAGS = ("a_wide", "b_high", "b_low")
"""Flags for rows of INT16, and for the high or low byte of INT16 weights."""
PAIR_FLAGS = ("pair", "second", "lower", "block")
"""Flags for slots with two tiles in each byte: the slot has pairs, use the second tile, the last
rows hold lower bits, rows have exponents."""
_FLAGS: dict[Engine | None, tuple[str, ...]] = {
    Engine.MATRIX: ("b_transpose", "resident", "append", *FORMAT_FLAGS, *WIDE_FLAGS, *PAIR_FLAGS),
    Engine.VECTOR: (
        *("wide_out", "per_tensor", "table", "add", "wide_in", "diagonal", "write_sum", "rms"),
        *("per_row", "relu", "rotate", "argmax", "times", "drain", "followed", "polynomial"),
    ),
}
"""Flags of each engine's instructions, from bit 0 of the flags field on."""


_SHARED = {"factors": "wide_in", "by_tile": "diagonal", "spaced": "rms"}
"""Flags that share another flag's bit; no instruction has both."""
FACTOR_SHIFT = 16
"""Lowest bit of a row factor's number in operand ``params``, used with flag ``factors``."""


def _definition(opcode: Opcode, values: dict[str, Any]) -> Definition:
    engine = Engine[values["engine"]] if "engine" in values else None
    operands, flags = tuple(values.get("operands", ())), tuple(values.get("flags", ()))
    return Definition(opcode, engine, operands, flags, values["summary"], values.get("unit"))


DEFINITIONS = {
    Opcode[name]: _definition(Opcode[name], values)
    for name, values in own_table("instructions").items()
}
"""Every instruction by opcode."""

OPERAND_MEANINGS: dict[str, str] = own_table("operands")["meanings"]
"""Meaning of each operand; a name means the same in every instruction."""

MAX_WORDS = max(definition.words for definition in DEFINITIONS.values())
