"""SOFTMAX in microcode, equation (3)."""

from arch.functions import OCTAVE_FRACTION, OCTAVE_MANTISSA, WEIGHT_FRACTION, octave_table
from arch.isa import Opcode
from arch.micro.assembler import Assembler
from arch.micro.config import MicroConfig
from arch.micro.epilogue import (
    COUNT,
    FACTOR,
    LEAST,
    O_ADDR,
    O_ZERO,
    OWN,
    PARAM,
    PARAM_STEP,
    PARAMS,
    REST,
    RIGHT,
    SHIFT,
    VALUE,
    WORD_AT,
    N,
    T,
    X,
    bit,
    choose_loop,
    in_pairs,
    next_row,
    run_loop,
    scale,
)
from arch.micro.inverse import segments
from arch.micro.memory import FLAGS, LINK, OPERANDS, ZERO, memory_map
from arch.polynomial import reciprocal_polynomial

_FIRST, _KEPT, _WORD = OWN[1:4]
_START, _START_STEP, _LIMIT, _LIMIT_STEP, _DIAGONAL, _DIAGONAL_VALUE, _I_ADDR, _I_STRIDE = (
    OPERANDS[name]
    for name in (
        "start",
        "start_step",
        "limit",
        "limit_step",
        "diagonal",
        "diagonal_value",
        "i_addr",
        "i_stride",
    )
)
_WEIGHT_SHIFT = WEIGHT_FRACTION - OCTAVE_MANTISSA
_OUTPUT_FLAGS = 1 << bit(Opcode.SOFTMAX, "per_tensor")
"""The flag that an epilogue knows, at the same bit as that of DRAIN."""


def softmax(a: Assembler, config: MicroConfig) -> None:
    """Append SOFTMAX: the columns that are not masked go through the row buffer."""
    row = memory_map(config).row
    a.move(_WORD, FLAGS)
    a.alu("ANDI", FLAGS, FLAGS, _OUTPUT_FLAGS)
    a.call("begin", LINK)
    choose_loop(a, "words in")
    a.move(FLAGS, _WORD)

    a.label("softmax row")
    a.alu("MAX", _FIRST, _START, ZERO)
    a.alu("MIN", _FIRST, _FIRST, N)
    a.alu("MIN", _KEPT, _LIMIT, N)
    a.alu("SUB", _KEPT, _KEPT, _FIRST)
    a.alu("MAX", _KEPT, _KEPT, ZERO)
    a.move(PARAM, PARAMS)
    a.move(COUNT, _FIRST)
    a.call("fill", LINK)
    a.branch("BEQ", _KEPT, ZERO, "masked")
    _weights(a, row)
    _divide(a, config, row)
    if not config.requantizer:
        a.if_flag(FLAGS, bit(Opcode.SOFTMAX, "diagonal"), "divided", T, clear=True)
    a.alu("SUB", T, _DIAGONAL, _FIRST)
    a.branch("BGEU", T, _KEPT, "divided")
    a.constant(WORD_AT, row)
    a.alu("ADD", WORD_AT, WORD_AT, T)
    a.load("LD", X, WORD_AT)
    a.alu("ADD", X, X, _DIAGONAL_VALUE)
    a.store("ST", WORD_AT, X)
    a.label("divided")
    a.constant(WORD_AT, row)
    a.move(COUNT, _KEPT)
    run_loop(a)
    a.label("masked")
    a.alu("SUB", COUNT, N, _FIRST)
    a.alu("SUB", COUNT, COUNT, _KEPT)
    a.call("fill", LINK)
    a.alu("ADD", _START, _START, _START_STEP)
    a.alu("ADD", _LIMIT, _LIMIT, _LIMIT_STEP)
    a.alu("ADDI", _DIAGONAL, _DIAGONAL, 1)
    a.alu("ADD", _I_ADDR, _I_ADDR, _I_STRIDE)
    next_row(a, "softmax row")


def _weights(a: Assembler, row: int) -> None:
    """Put each weight at octave 0, and its octaves below, into a word; add up the weights."""
    a.alu("ADD", X, _FIRST, _FIRST)
    a.alu("ADD", X, X, _I_ADDR)
    a.move(FACTOR, LEAST)
    a.move(COUNT, _KEPT)

    def largest() -> None:
        a.load("LHP", T, X, 2)
        a.alu("MAX", FACTOR, FACTOR, T)

    in_pairs(a, "largest", largest, T)

    a.alu("SUB", X, X, _KEPT)
    a.alu("SUB", X, X, _KEPT)
    a.constant(WORD_AT, row)
    a.constant(SHIFT, 31)
    a.move(VALUE, ZERO)
    a.move(REST, ZERO)
    a.move(COUNT, _KEPT)
    in_pairs(a, "weight", lambda: _weight(a), T)


def _weight(a: Assembler) -> None:
    """Put the next weight into a word, and add it up."""
    a.load("LHP", T, X, 2)
    a.alu("SUB", T, FACTOR, T)
    a.alu("SRLI", RIGHT, T, OCTAVE_FRACTION)
    a.alu("ANDI", T, T, (1 << OCTAVE_FRACTION) - 1)
    a.load("LC", T, T, "octave")
    a.alu("OR", _WORD, T, RIGHT)
    a.store("STP", WORD_AT, _WORD, 1)
    a.alu("MIN", RIGHT, RIGHT, SHIFT)  # nothing is left of a weight from 29 octaves on
    a.alu("SRL", T, T, RIGHT)
    a.alu("ADD", REST, REST, T)
    a.alu("SLTU", T, REST, T)
    a.alu("ADD", VALUE, VALUE, T)


def _divide(a: Assembler, config: MicroConfig, row: int) -> None:
    """Make probabilities in Q0.24 of the words, from the sum in ``VALUE`` and ``REST``."""
    a.call("normalize", LINK)
    a.emit("ADDI", FACTOR, value="reciprocal")
    a.call("polynomial", LINK)
    # weight * inverse * 2**12 / 2**31 is mantissa * inverse / 2**7, of 26 bits.
    a.alu("SLLI", X, X, 12)
    a.alu("ADDI", RIGHT, RIGHT, 44)
    a.constant(SHIFT, 30)
    a.constant(WORD_AT, row)
    a.move(COUNT, _KEPT)
    a.load("LDP", T, WORD_AT, 1)
    a.alu("ANDI", _WORD, T, -1 << _WEIGHT_SHIFT)
    if config.requantizer:
        _shares(a, config)
    a.label("probability")
    _probability(a)
    a.store("ST", WORD_AT, VALUE, -2)
    a.loop(COUNT, "probability")


def _shares(a: Assembler, config: MicroConfig) -> None:
    """Requantize each at once where there is no diagonal, while the one before is written."""
    a.if_flag(FLAGS, bit(Opcode.SOFTMAX, "diagonal"), "probability", FACTOR)
    _probability(a)
    scale(a, config, VALUE)
    a.loop(COUNT, "share")
    a.jump("last share")
    a.label("share")
    _probability(a)
    scale(a, config, VALUE)
    _write(a)
    a.loop(COUNT, "share")
    a.label("last share")
    _write(a)
    a.jump("masked")


def _probability(a: Assembler) -> None:
    """Make a probability of a word, and get the next one."""
    a.multiply(_WORD, X)
    a.alu("ANDI", REST, T, (1 << _WEIGHT_SHIFT) - 1)
    a.alu("SUB", REST, REST, RIGHT)
    a.alu("MIN", REST, REST, SHIFT)
    a.load("LDP", T, WORD_AT, 1)
    a.alu("ANDI", _WORD, T, -1 << _WEIGHT_SHIFT)
    a.middle(VALUE)
    a.alu("SRA", VALUE, VALUE, REST)
    a.alu("ADDI", VALUE, VALUE, 1)
    a.alu("SRAI", VALUE, VALUE, 1)


def _write(a: Assembler) -> None:
    """Write the oldest requantized probability."""
    a.emit("SCALED", FACTOR)
    a.store("SBP", O_ADDR, FACTOR, 1)


def softmax_parts(a: Assembler, config: MicroConfig) -> None:
    """Append SOFTMAX's tables, and ``fill``: zero points for ``COUNT`` columns, maybe none."""
    if not config.softmax:
        return
    a.table("octave", [int(mantissa) << _WEIGHT_SHIFT for mantissa in octave_table()])
    a.table("reciprocal", segments(reciprocal_polynomial()))
    a.label("fill")
    a.branch("BEQ", COUNT, ZERO, "filled")
    a.label("fill bytes")
    a.store("SBP", O_ADDR, O_ZERO, 1)
    a.alu("ADD", PARAM, PARAM, PARAM_STEP)
    a.loop(COUNT, "fill bytes")
    a.label("filled")
    a.back(LINK)
