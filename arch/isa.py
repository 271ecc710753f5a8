"""The instruction set, defined once.

An instruction is a header word and one word per operand, all of 32 bits, least significant bit
first:

======== =======================================================================
header   bits 4:0 opcode; 8:5 pop, one bit per engine; 12:9 push, one bit per
         engine; 15:13 zero; 31:16 flags
operand  bits 27:0 immediate, two's complement; 31:28 register; the value is
         immediate plus register, modulo 2**28 and taken as signed; register 0 is 0
======== =======================================================================

``pop`` makes an engine wait, before it starts the instruction, for one token from each engine
named; ``push`` gives each engine named one token when the instruction has completed. Instructions
of one engine run in program order. A flag is the same bit in all of an engine's instructions; a
header with a bit that its instruction does not have is no instruction.
"""

import enum
from dataclasses import dataclass

WORD_WIDTH = 32
IMMEDIATE_WIDTH = 28
REGISTERS = 16
MAX_TOKENS = 255
"""Most tokens of one engine that wait for another; one more stops the run."""
LOOP_LEVELS = 4
RING_SLOTS = 2
"""Weight slots that streamed weights take in turn; resident ones are in those behind."""
COUNT_WIDTH = 16
"""Width of a count: of rows, columns, products or rounds (bits)."""
COLUMN_WIDTH = 24
"""Width of the number of the column that argmax tells (bits)."""
POP_SHIFT = 5
PUSH_SHIFT = 9
FLAG_SHIFT = 16
_UNUSED_BITS = 7 << 13


class Engine(enum.IntEnum):
    """The engines that run instructions; the value is the bit in pop and push."""

    LOAD = 0
    MATRIX = 1
    VECTOR = 2
    STORE = 3


class Opcode(enum.IntEnum):
    """The value of a header's opcode field."""

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
    """One instruction: who runs it, what follows its header, and which flags it knows."""

    opcode: Opcode
    engine: Engine | None
    """The engine that runs the instruction; none where the sequencer runs it."""
    operands: tuple[str, ...]
    flags: tuple[str, ...]
    summary: str
    unit: str | None = None
    """The configuration field without which the instruction does not exist."""

    @property
    def words(self) -> int:
        """Length of the instruction (words)."""
        return 1 + len(self.operands)

    @property
    def reserved(self) -> int:
        """Header bits that must be 0: unknown flags, and tokens that it cannot exchange."""
        own = 0xF if self.engine is None else 1 << self.engine
        tokens = own << POP_SHIFT | own << PUSH_SHIFT
        known = sum(1 << self.flag_bit(flag) for flag in self.flags)
        return _UNUSED_BITS | tokens | (0xFFFF & ~known) << FLAG_SHIFT

    def flag_bit(self, name: str) -> int:
        """Position of a flag in the header's flags field: the same in all of an engine's."""
        return _FLAGS[self.engine].index(name)


_OUT = ("o_addr", "o_stride", "o_zero")
FORMAT_FLAGS = ("format_1", "format_2", "format_4", "grouped")
"""The bits of a weight format's number, and whether its groups have scales."""
WIDE_FLAGS = ("a_wide", "b_high", "b_low")
"""Rows of INT16, and which byte of weights of INT16."""
PAIR_FLAGS = ("pair", "second", "lower", "block")
"""Marks of one of two tiles in each byte, of the second, of lower bits in the last rows, and of
exponents of rows."""
_VECTOR_FLAGS = ("wide_out", "per_tensor", "table", "add")
_SUM_FLAGS = ("per_row", "relu", "rotate", "argmax", "times")
_FLAGS: dict[Engine | None, tuple[str, ...]] = {
    Engine.MATRIX: ("b_transpose", "resident", "append", *FORMAT_FLAGS, *WIDE_FLAGS, *PAIR_FLAGS),
    Engine.VECTOR: (
        *(*_VECTOR_FLAGS, "wide_in", "diagonal", "write_sum", "rms"),
        *(*_SUM_FLAGS, "drain", "followed", "polynomial"),
    ),
}
"""Flags of each engine's instructions, from bit 0 of the flags field on."""

DEFINITIONS = {
    definition.opcode: definition
    for definition in (
        Definition(Opcode.HALT, None, (), (), "wait until every engine is idle, then stop"),
        Definition(Opcode.LOOP, None, ("count",), (), "repeat up to the matching ENDLOOP"),
        Definition(Opcode.ENDLOOP, None, (), (), "end of the innermost loop's body"),
        Definition(Opcode.SET, None, ("register", "value"), (), "write a register"),
        Definition(
            Opcode.LOAD,
            Engine.LOAD,
            ("dram_addr", "dram_stride", "sp_addr", "sp_stride", "m", "row_bytes"),
            (),
            "copy m rows of external memory to the scratchpad",
        ),
        Definition(
            Opcode.STORE,
            Engine.STORE,
            ("dram_addr", "dram_stride", "sp_addr", "sp_stride", "m", "row_bytes"),
            (),
            "copy m rows of the scratchpad to external memory",
        ),
        Definition(
            Opcode.MATMUL,
            Engine.MATRIX,
            (
                "a_addr",
                "a_stride",
                "b_addr",
                "b_stride",
                "acc_addr",
                "acc_stride",
                "m",
                "k",
                "n",
                "a_zero",
                "b_zero",
                "slot",
            ),
            ("b_transpose", "resident", *FORMAT_FLAGS, *WIDE_FLAGS, *PAIR_FLAGS),
            "acc[acc_addr + nt * acc_stride + i, c] += sum over k of (A - a_zero) * (B - b_zero); "
            "resident takes B from the weight slots; format_1, 2, 4: "
            "bits of which weight format, from 1 on, B is stored in; grouped: groups have scales; "
            "a_wide: A is INT16; b_high, b_low: B is INT16, too, of which a product takes the high "
            "byte, rounded, or the low byte, signed, times that of A: both add A * B / 256; "
            "pair: B is the low halves of the slots' bytes, second: the high ones; lower: 16 times "
            "as much, and the last low_rows rows times the first columns of A, that of the first "
            "the last; block: twice each half and one, times 2 to the power of its row's exponent",
        ),
        Definition(
            Opcode.PRELOAD,
            Engine.MATRIX,
            ("b_addr", "b_stride", "k", "n", "b_zero", "slot", "line"),
            ("b_transpose", "append", *FORMAT_FLAGS, "pair", "lower", "block"),
            "place the tiles of B - b_zero in weight slots, filled up with zeros but for rows past "
            "k without b_transpose, which stay; append: as whole lines from line on, while all "
            "other lines stay: with b_transpose column j of B goes to column "
            "(line + j) % cols of tiles slot + (line + j) // cols * ceil(k / rows) + kt, without "
            "it row j, of n up to cols, to row (line + j) % rows of tile slot + (line + j) // rows"
            "; formats as in MATMUL; pair: with append, the upper four bits of each element, and "
            "in the high half those of the element k behind it, n without b_transpose; lower: the "
            "last low_rows rows hold, less 8, the lower four bits of a column's first elements, "
            "those of the first in the last row; block: four bits from the row's exponent and one "
            "on, the least exponent, up to 3, with which they hold every element of the row",
        ),
        Definition(
            Opcode.SPARSE,
            Engine.MATRIX,
            (
                "a_addr",
                "a_stride",
                "b_addr",
                "acc_addr",
                "acc_stride",
                "m",
                "k",
                "n",
                "a_zero",
                "beats",
            ),
            (),
            "as MATMUL, of a sparse B, whose zeros take neither bytes nor cycles: its code "
            "(arch.sparse) lies from b_addr on",
            unit="sparse_lanes",
        ),
        Definition(
            Opcode.DRAIN,
            Engine.VECTOR,
            (
                "acc_addr",
                "acc_stride",
                "r_addr",
                "r_stride",
                *_OUT,
                "m",
                "n",
                "params",
                "table",
            ),
            (*_VECTOR_FLAGS, *_SUM_FLAGS, "polynomial"),
            "requantize m rows of n accumulators, and clear them; per_row: row i takes parameter "
            "word params + i; rotate: turn each pair of columns by the cosine and sine, in Q1.15, "
            "at its place in the second input; argmax: tell the largest element of one row and its "
            "column in ARGMAX; times: multiply by the 8-bit elements of the second input; "
            "polynomial: requantize to 16 bits, of which the table's polynomials make 8-bit "
            "elements",
        ),
        Definition(
            Opcode.MAP,
            Engine.VECTOR,
            (
                "i_addr",
                "i_stride",
                "i_zero",
                "r_addr",
                "r_stride",
                *_OUT,
                "m",
                "n",
                "params",
                "table",
            ),
            ("wide_out", "per_tensor", "add", "wide_in"),
            "requantize m rows of n scratchpad elements",
        ),
        Definition(
            Opcode.SOFTMAX,
            Engine.VECTOR,
            (
                "i_addr",
                "i_stride",
                *_OUT,
                "m",
                "n",
                "params",
                "start",
                "start_step",
                "limit",
                "limit_step",
                "diagonal",
                "diagonal_value",
            ),
            ("per_tensor", "diagonal", "drain", "followed"),
            "softmax of m rows of n 16-bit scores, in units of 2**-8 octaves; drain: of "
            "accumulators, which are cleared, requantized to 16 bits by word params, the output's "
            "parameters follow; followed: the engine's next command is the same but for addresses, "
            "m, n and limit, and may begin before this one ends",
            unit="softmax",
        ),
        Definition(
            Opcode.NORM,
            Engine.VECTOR,
            (
                "i_addr",
                "i_stride",
                "r_addr",
                "r_stride",
                "s_addr",
                "s_stride",
                *_OUT,
                "m",
                "n",
                "params",
                "eps_low",
                "eps_high",
                "pre",
            ),
            ("wide_out", "per_tensor", "add", "drain", "write_sum", "rms"),
            "normalize m rows of n 16-bit elements, after adding the second input with add; drain: "
            "of accumulators, which are cleared, requantized to 16 bits by the words from pre on",
            unit="norm",
        ),
        Definition(
            Opcode.PARAMS,
            Engine.VECTOR,
            ("i_addr", "n", "params"),
            (),
            "read n parameter words from the scratchpad",
        ),
        Definition(
            Opcode.TABLE,
            Engine.VECTOR,
            ("i_addr", "table"),
            (),
            "read an activation table of 256 bytes from the scratchpad, entry 0 for -128",
            unit="activation",
        ),
    )
}
"""Every instruction by opcode."""

MAX_WORDS = max(definition.words for definition in DEFINITIONS.values())
