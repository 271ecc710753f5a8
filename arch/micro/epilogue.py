"""The end of every vector instruction in microcode: equations (1) and (2) over a row of values.

There is a loop for each *front*, which puts the next value into ``X``, and *tail*, which writes
what has become of a value. While a value is requantized, the next one and its parameters are
fetched.

``begin`` makes everything ready for an instruction whose flags are in ``FLAGS``: ``params`` becomes
a data address, ``o_stride`` the way from behind a row to the next one, ``r_stride`` likewise where
``add`` makes the tail read it, and ``TAIL`` the tail's number. :func:`choose_loop` puts the address
of a front's loop into ``LOOP_AT``, and :func:`run_loop` takes ``COUNT`` values, at least one, whose
first parameters are at ``PARAM``, and moves ``o_addr`` on. ``words in`` takes the data words from
``WORD_AT`` on, ``sums in`` accumulators, ``map in`` what the routine in ``ELEMENT_IN`` fetches.
"""

from collections.abc import Callable

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
"""Registers that a loop may change; the last two hold its first addresses."""
PARAM_STEP, ROW_STEP, LOWEST, HIGHEST, LOOP_AT, TAIL = FREE[9:15]
"""Words from a column's, and a row's, parameters to the next; bounds."""
MOST, LEAST = FREE[15:17]
"""Constants: the bounds of INT16."""
OWN = FREE[17:]
"""Registers that belong to an instruction and its front."""
WORD_AT = ELEMENT_IN = OWN[0]
"""Data address of the next word, or address of the routine that fetches the next element."""
TILE, LEFT, COLUMNS, ROW_COUNT = OWN[:4]
"""The accumulators' next row, columns left of the last one, columns of one, and what a loop of them
counts."""

INT16_MAX = (1 << 15) - 1
TAILS = ("byte", "wide", "sum", "table")
"""Tails by their numbers."""
O_ADDR, O_STRIDE, O_ZERO, M, N, PARAMS = (
    OPERANDS[name] for name in ("o_addr", "o_stride", "o_zero", "m", "n", "params")
)
_R_ADDR, _R_STRIDE, _TABLE, _ACC_STRIDE = (
    OPERANDS[name] for name in ("r_addr", "r_stride", "table", "acc_stride")
)


def bit(opcode: Opcode, name: str) -> int:
    """Return the position of an instruction's flag in ``FLAGS``."""
    return DEFINITIONS[opcode].flag_bit(name)


def in_pairs(a: Assembler, label: str, body: Callable[[], None], spare: int) -> None:
    """Append a loop that runs a body ``COUNT`` times, at least once, two times a jump."""
    a.alu("ANDI", spare, COUNT, 1)
    a.alu("ADDI", COUNT, COUNT, 1)
    a.alu("SRLI", COUNT, COUNT, 1)
    a.branch("BNE", spare, ZERO, f"{label} odd")
    a.label(label)
    body()
    a.label(f"{label} odd")
    body()
    a.loop(COUNT, label)


def next_row(a: Assembler, label: str) -> None:
    """Go on to the next row at a label, or past the last one."""
    a.alu("ADD", O_ADDR, O_ADDR, O_STRIDE)
    a.loop(M, label)


def choose_loop(a: Assembler, front: str) -> None:
    """Put the address of a front's loop with the instruction's tail into ``LOOP_AT``."""
    a.load("LC", LOOP_AT, TAIL, front)


def run_loop(a: Assembler) -> None:
    """Take a row's values."""
    a.emit("JUMP", LINK2, LOOP_AT)


def epilogue(a: Assembler, config: MicroConfig) -> None:
    """Append the routine ``begin``, called with ``LINK``, and the loops."""
    _begin(a, config)
    if not config.requantizer:
        _requantize(a)
    tails = TAILS if config.activation else TAILS[:-1]
    fronts: dict[str, tuple[str, ...]] = {"sums in": tails, "map in": tails}
    if whole_tiles(config):
        a.table("tiles in", [f"tiles in, {tail} out" for tail in tails])
        for tail in tails:
            _tile_loop(a, config, tail)
    if config.softmax or config.norm:
        fronts["words in"] = TAILS[:2]
    for front, wanted in fronts.items():
        a.table(front, [f"{front}, {tail} out" for tail in wanted])
        for tail in wanted:
            _loop(a, config, front, tail)


def _requantize(a: Assembler) -> None:
    """Append the routine ``scale``, called with ``LINK``: it makes ``VALUE`` of ``X``.

    Where the product's upper part would be ``2**31``, it is taken as ``2**31 - 1``, which neither a
    right shift nor a clamp to 16 bits can tell from it.
    """
    a.label("scale")
    a.load("LD", SHIFT, PARAM, 2)
    a.load("LD", T, PARAM, 0)
    a.load("LD", FACTOR, PARAM, 1)
    a.alu("ADD", X, X, T)
    a.branch("BLT", SHIFT, ZERO, "scale product")
    a.alu("SLL", X, X, SHIFT)
    a.label("scale product")
    a.multiply(X, FACTOR)
    a.alu("SUB", RIGHT, ZERO, SHIFT)
    a.alu("ADDI", RIGHT, RIGHT, -1)
    a.low(T)
    a.middle(VALUE)
    a.alu("SLLI", T, T, 1)
    a.alu("SRLI", T, T, 31)
    a.alu("ADD", VALUE, VALUE, T)  # rounded
    a.branch("BLT", RIGHT, ZERO, "scale alone")
    a.alu("SRAI", T, VALUE, 31)
    a.alu("ADD", VALUE, VALUE, T)
    a.alu("SRA", VALUE, VALUE, RIGHT)
    a.alu("SRAI", T, VALUE, 1)
    a.alu("SUB", VALUE, VALUE, T)  # half of it, rounded up, without overflow
    a.label("scale clamp")
    a.alu("MAX", VALUE, VALUE, LOWEST)
    a.alu("MIN", VALUE, VALUE, HIGHEST)
    a.alu("ADD", VALUE, VALUE, O_ZERO)
    a.back(LINK)
    a.label("scale alone")
    a.alu("ADDI", T, VALUE, -1)  # only from 2**31, which has wrapped, to something larger
    a.alu("MAX", VALUE, VALUE, T)
    a.jump("scale clamp")


def whole_tiles(config: MicroConfig) -> bool:
    """Return whether rows of whole tiles have loops of their own."""
    return config.requantizer and config.cols > 1 and config.cols & (config.cols - 1) == 0


def _tile_loop(a: Assembler, config: MicroConfig, tail: str) -> None:
    """Append a loop of ``COUNT`` tiles, each of them without a jump."""
    name = f"tiles in, {tail} out"
    a.label(name)
    _take_tile(a)
    scale(a, config)
    a.jump(f"{name} rest")
    a.label(f"{name} next")
    _take_tile(a)
    scale(a, config)
    _tail(a, config, tail)
    a.label(f"{name} rest")
    for _ in range(config.cols - 1):
        a.emit("SUM", X)
        scale(a, config)
        _tail(a, config, tail)
    a.loop(COUNT, f"{name} next")
    _tail(a, config, tail)
    a.back(LINK2)


def _take_tile(a: Assembler) -> None:
    """Take a row of the accumulators, and its first column."""
    a.emit("SUMS", ra=TILE)
    a.alu("ADD", TILE, TILE, _ACC_STRIDE)
    a.emit("SUM", X)


def scale(a: Assembler, config: MicroConfig, value: int = X) -> None:
    """Begin a value's requantization; without a requantizer, requantize ``X`` into ``VALUE``."""
    if config.requantizer:
        a.emit("SCALE", ra=value, rb=PARAM)
    else:
        a.call("scale", LINK)
    a.alu("ADD", PARAM, PARAM, PARAM_STEP)


def _loop(a: Assembler, config: MicroConfig, front: str, tail: str) -> None:
    name = f"{front}, {tail} out"
    a.label(name)
    if not config.requantizer:
        _fetch(a, config, front, f"{name} value")
        _tail(a, config, tail)
        a.loop(COUNT, name)
        a.back(LINK2)
        return
    _fetch(a, config, front, f"{name} first")
    a.loop(COUNT, f"{name} next")
    a.jump(f"{name} last")
    a.label(f"{name} next")
    _fetch(a, config, front, f"{name} value")
    _tail(a, config, tail)
    a.loop(COUNT, f"{name} next")
    a.label(f"{name} last")
    _tail(a, config, tail)
    a.back(LINK2)


def _fetch(a: Assembler, config: MicroConfig, front: str, name: str) -> None:
    """Get the next value into ``X``, and begin its requantization."""
    if front == "sums in":
        a.loop(LEFT, name)
        a.move(LEFT, COLUMNS)
        a.emit("SUMS", ra=TILE)
        a.alu("ADD", TILE, TILE, _ACC_STRIDE)
        a.label(name)
        a.emit("SUM", X)
    elif front == "words in":
        a.load("LDP", X, WORD_AT, 1)
    else:
        a.emit("JUMP", LINK, ELEMENT_IN)
    scale(a, config)


def _tail(a: Assembler, config: MicroConfig, tail: str) -> None:
    """Write the oldest value that has been requantized, which is taken before the next is there."""
    if config.requantizer:
        a.emit("SCALED", VALUE)
    if tail == "byte":
        a.store("SBP", O_ADDR, VALUE, 1)
        return
    if tail == "table":
        a.alu("SRAI", T, VALUE, 2)
        a.alu("ADD", T, T, _TABLE)
        a.load("LD", T, T, TABLE_WORDS // 2)  # entry 0 is that of -128
        a.alu("SLLI", VALUE, VALUE, 3)
        a.alu("SRL", T, T, VALUE)
        a.store("SBP", O_ADDR, T, 1)
        return
    if tail == "sum":
        a.load("LHP", T, _R_ADDR, 2)
        a.alu("ADD", VALUE, VALUE, T)
        a.alu("MIN", VALUE, VALUE, MOST)
        a.alu("MAX", VALUE, VALUE, LEAST)
    a.store("SHP", O_ADDR, VALUE, 2)


def _begin(a: Assembler, config: MicroConfig) -> None:
    where = memory_map(config)
    a.label("begin")
    a.constant(MOST, INT16_MAX)
    a.constant(LEAST, -1 - INT16_MAX)
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
    a.constant(TAIL, TAILS.index("byte"))
    if config.activation:
        a.if_flag(FLAGS, bit(Opcode.DRAIN, "table"), "bounds", T, clear=True)
        a.alu("SLLI", _TABLE, _TABLE, TABLE_WORDS.bit_length() - 1)
        a.constant(T, where.tables)
        a.alu("ADD", _TABLE, _TABLE, T)
        a.constant(TAIL, TAILS.index("table"))
    a.jump("bounds")
    a.label("wide")
    a.alu("SLLI", T, N, 1)
    a.alu("SUB", O_STRIDE, O_STRIDE, T)
    a.move(LOWEST, LEAST)
    a.move(HIGHEST, MOST)
    a.constant(TAIL, TAILS.index("wide"))
    a.if_flag(FLAGS, bit(Opcode.DRAIN, "add"), "bounds", REST, clear=True)
    a.alu("SUB", _R_STRIDE, _R_STRIDE, T)
    a.constant(TAIL, TAILS.index("sum"))
    a.label("bounds")
    a.if_flag(FLAGS, bit(Opcode.DRAIN, "relu"), "begun", T, clear=True)
    a.alu("MAX", LOWEST, LOWEST, O_ZERO)
    a.label("begun")
    if not config.requantizer:
        a.alu("SUB", LOWEST, LOWEST, O_ZERO)
        a.alu("SUB", HIGHEST, HIGHEST, O_ZERO)
        a.back(LINK)
        return
    a.alu("SLLI", HIGHEST, HIGHEST, 16)
    a.alu("SLLI", LOWEST, LOWEST, 16)
    a.alu("SRLI", LOWEST, LOWEST, 16)
    a.alu("OR", LOWEST, LOWEST, HIGHEST)
    a.emit("BOUNDS", ra=LOWEST, rb=O_ZERO)
    a.back(LINK)
