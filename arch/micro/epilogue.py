"""The end of every vector instruction in microcode: equations (1) and (2) over a row of values.

A row's values come one by one from a *front*, a routine whose address is in ``FRONT``: it puts the
next value into ``X`` and returns to ``LINK``. While a value's product is under way, the next value
and its parameters are fetched. The *tail*, whose address is in ``TAIL``, writes what has become of
the value.

``begin`` makes everything ready for an instruction whose flags are in ``FLAGS``: ``params`` becomes
a data address, ``o_stride`` the way from behind a row to the next one, ``r_stride`` likewise where
``add`` makes the tail read it. ``epilogue`` then takes ``COUNT`` values, at least one, whose first
parameters are at ``PARAM``, and moves ``o_addr`` on. It does not leave ``FRONT`` as it was, and
``PARAM`` one column too far. ``words`` is an epilogue of the data words from ``WORD_AT`` on.
"""

from arch.isa import DEFINITIONS, Opcode
from arch.micro.assembler import Assembler
from arch.micro.config import MicroConfig
from arch.micro.memory import (
    FLAGS,
    FREE,
    LINK,
    LINK2,
    OPERANDS,
    PARAM_WORDS,
    TABLE_WORDS,
    ZERO,
    memory_map,
)

X, FACTOR, SHIFT, RIGHT, VALUE, REST, T, COUNT, PARAM = FREE[:9]
"""Registers that ``epilogue`` changes; the last two hold its first addresses."""
PARAM_STEP, ROW_STEP, LOWEST, HIGHEST, FRONT, TAIL = FREE[9:15]
"""Words from a column's, and a row's, parameters to the next; bounds less the zero point."""
ONES, MOST, LEAST, _END = FREE[15:19]
"""Constants: -1 and the bounds of INT16; and where a tail goes on behind the last value but one."""
OWN = FREE[19:]
"""Registers that belong to an instruction and its front."""
WORD_AT = OWN[0]
"""Data address of the next value that ``words`` takes."""

INT16_MAX = (1 << 15) - 1
O_ADDR, O_STRIDE, O_ZERO, M, N, PARAMS = (
    OPERANDS[name] for name in ("o_addr", "o_stride", "o_zero", "m", "n", "params")
)
_R_ADDR, _R_STRIDE, _TABLE = (OPERANDS[name] for name in ("r_addr", "r_stride", "table"))


def bit(opcode: Opcode, name: str) -> int:
    """Return the position of an instruction's flag in ``FLAGS``."""
    return DEFINITIONS[opcode].flag_bit(name)


def next_row(a: Assembler, label: str) -> None:
    """Go on to the next row at a label, or past the last one."""
    a.alu("ADD", O_ADDR, O_ADDR, O_STRIDE)
    a.loop(M, label)


def round_product(a: Assembler, label: str) -> None:
    """Make ``VALUE`` of the rounding product under way: equation (1) behind its second line.

    ``RIGHT`` is the right shift less 1, or negative where there is none. The label is where
    rounding ends. Where the high half would be ``2**31``, it is taken as ``2**31 - 1``, which
    neither a right shift nor a clamp to 16 bits can tell from it.
    """
    a.middle(VALUE)
    a.branch("BLT", RIGHT, ZERO, f"{label} alone")
    a.alu("SRAI", T, VALUE, 31)
    a.alu("ADD", VALUE, VALUE, T)
    a.alu("SRA", VALUE, VALUE, RIGHT)
    a.alu("SRAI", T, VALUE, 1)
    a.alu("SUB", VALUE, VALUE, T)  # half of it, rounded up, without overflow
    a.label(label)


def not_shifted(a: Assembler, label: str) -> None:
    """Append what :func:`round_product` goes to, and comes back from, without a right shift."""
    a.label(f"{label} alone")
    a.alu("ADDI", T, VALUE, -1)  # only from 2**31, which has wrapped, to something larger
    a.alu("MAX", VALUE, VALUE, T)
    a.jump(label)


def epilogue(a: Assembler, config: MicroConfig) -> None:
    """Append the routines ``begin`` and ``epilogue``, called with ``LINK`` and ``LINK2``."""
    _begin(a, config)
    if config.softmax or config.norm:
        a.label("words")
        a.emit("ADDI", FRONT, value="word in")
    a.label("epilogue")
    _fetch(a)
    a.emit("ADDI", _END, value="last value")
    a.loop(COUNT, "value")
    a.label("last value")
    a.constant(COUNT, 1)
    a.move(_END, LINK2)
    a.emit("ADDI", FRONT, value="nothing in")
    a.label("value")
    a.branch("BGE", SHIFT, ZERO, "left")
    a.label("multiply")
    a.multiply(X, FACTOR, rounds=True)
    a.alu("SUB", RIGHT, ONES, SHIFT)
    _fetch(a)
    round_product(a, "rounded")
    a.alu("MAX", VALUE, VALUE, LOWEST)
    a.alu("MIN", VALUE, VALUE, HIGHEST)
    a.alu("ADD", VALUE, VALUE, O_ZERO)
    a.back(TAIL)
    a.label("left")
    a.alu("SLL", X, X, SHIFT)
    a.jump("multiply")
    not_shifted(a, "rounded")
    _tails(a, config)
    if config.softmax or config.norm:
        a.label("word in")
        a.load("LDP", X, WORD_AT, 1)
    a.label("nothing in")
    a.back(LINK)


def _fetch(a: Assembler) -> None:
    """Get the next value with its bias into ``X``, and its factor."""
    a.emit("JUMP", LINK, FRONT)
    a.load("LD", SHIFT, PARAM, 2)
    a.load("LD", T, PARAM, 0)
    a.load("LD", FACTOR, PARAM, 1)
    a.alu("ADD", PARAM, PARAM, PARAM_STEP)
    a.alu("ADD", X, X, T)


def _begin(a: Assembler, config: MicroConfig) -> None:
    where = memory_map(config)
    a.label("begin")
    a.constant(ONES, -1)
    a.constant(MOST, INT16_MAX)
    a.alu("SUB", LEAST, ONES, MOST)
    a.constant(T, where.params)
    a.alu("ADD", T, T, PARAMS)
    a.alu("SLLI", PARAMS, PARAMS, 1)
    a.alu("ADD", PARAMS, PARAMS, T)
    a.move(ROW_STEP, ZERO)
    a.constant(PARAM_STEP, PARAM_WORDS)
    a.if_flag(FLAGS, bit(Opcode.DRAIN, "per_tensor"), "each column", T, clear=True)
    a.move(PARAM_STEP, ZERO)
    a.label("each column")
    a.if_flag(FLAGS, bit(Opcode.DRAIN, "wide_out"), "wide", T)
    a.alu("SUB", O_STRIDE, O_STRIDE, N)
    a.constant(LOWEST, config.operand_min)
    a.constant(HIGHEST, config.operand_max)
    a.emit("ADDI", TAIL, value="byte out")
    if config.activation:
        a.if_flag(FLAGS, bit(Opcode.DRAIN, "table"), "bounds", T, clear=True)
        a.alu("SLLI", _TABLE, _TABLE, TABLE_WORDS.bit_length() - 1)
        a.constant(T, where.tables)
        a.alu("ADD", _TABLE, _TABLE, T)
        a.emit("ADDI", TAIL, value="table out")
    a.jump("bounds")
    a.label("wide")
    a.alu("SLLI", T, N, 1)
    a.alu("SUB", O_STRIDE, O_STRIDE, T)
    a.move(LOWEST, LEAST)
    a.move(HIGHEST, MOST)
    a.emit("ADDI", TAIL, value="wide out")
    a.if_flag(FLAGS, bit(Opcode.DRAIN, "add"), "bounds", REST, clear=True)
    a.alu("SUB", _R_STRIDE, _R_STRIDE, T)
    a.emit("ADDI", TAIL, value="sum out")
    a.label("bounds")
    a.alu("SUB", LOWEST, LOWEST, O_ZERO)
    a.alu("SUB", HIGHEST, HIGHEST, O_ZERO)
    a.if_flag(FLAGS, bit(Opcode.DRAIN, "relu"), "begun", T, clear=True)
    a.alu("MAX", LOWEST, LOWEST, ZERO)
    a.label("begun")
    a.back(LINK)


def _tails(a: Assembler, config: MicroConfig) -> None:
    a.label("byte out")
    a.store("SBP", O_ADDR, VALUE, 1)
    a.loop(COUNT, "value")
    a.back(_END)
    a.label("sum out")
    a.load("LHP", T, _R_ADDR, 2)
    a.alu("ADD", VALUE, VALUE, T)
    a.alu("MIN", VALUE, VALUE, MOST)
    a.alu("MAX", VALUE, VALUE, LEAST)
    a.label("wide out")
    a.store("SHP", O_ADDR, VALUE, 2)
    a.loop(COUNT, "value")
    a.back(_END)
    if config.activation:
        a.label("table out")
        a.alu("SRAI", T, VALUE, 2)
        a.alu("ADD", T, T, _TABLE)
        a.load("LD", T, T, TABLE_WORDS // 2)  # entry 0 is that of -128
        a.alu("SLLI", VALUE, VALUE, 3)
        a.alu("SRL", T, T, VALUE)
        a.store("SBP", O_ADDR, T, 1)
        a.loop(COUNT, "value")
        a.back(_END)
