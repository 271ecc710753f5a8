"""NORM in microcode, equation (4)."""

from arch.isa import IMMEDIATE_WIDTH, WORD_WIDTH, Opcode
from arch.micro.assembler import Assembler
from arch.micro.config import MicroConfig
from arch.micro.epilogue import (
    COUNT,
    FACTOR,
    LEAST,
    MOST,
    O_ADDR,
    OWN,
    PARAM,
    PARAMS,
    REST,
    RIGHT,
    TAIL,
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
from arch.norm import VALUE_FRACTION
from arch.polynomial import rsqrt_polynomial

_SUM, _SQUARES, _SQUARES_HIGH, _ADDS, _WRITES = OWN[1:6]
_ADDRS = [OPERANDS[f"{name}_addr"] for name in "irs"]
_STRIDES = [OPERANDS[f"{name}_stride"] for name in "irs"]
_EPS, _EPS_HIGH = OPERANDS["eps_low"], OPERANDS["eps_high"]
_OUTPUT_FLAGS = 1 << bit(Opcode.NORM, "wide_out") | 1 << bit(Opcode.NORM, "per_tensor")
"""Flags that an epilogue knows, at the same bits as those of DRAIN."""


def norm(a: Assembler, config: MicroConfig) -> None:
    """Append NORM: a row's sums, then its normalized values, go through the row buffer."""
    row = memory_map(config).row
    a.alu("ANDI", _ADDS, FLAGS, 1 << bit(Opcode.NORM, "add"))
    a.alu("ANDI", _WRITES, FLAGS, 1 << bit(Opcode.NORM, "write_sum"))
    a.move(_SUM, FLAGS)
    a.alu("ANDI", FLAGS, FLAGS, _OUTPUT_FLAGS)
    a.call("begin", LINK)
    choose_loop(a, "words in")
    a.move(FLAGS, _SUM)
    a.alu("ADD", T, N, N)
    for stride in _STRIDES:
        a.alu("SUB", stride, stride, T)
    # The two operands' 28 bits each become a word and the bits above it.
    a.alu("SLLI", _EPS, _EPS, WORD_WIDTH - IMMEDIATE_WIDTH)
    a.alu("SRLI", _EPS, _EPS, WORD_WIDTH - IMMEDIATE_WIDTH)
    a.alu("SLLI", T, _EPS_HIGH, IMMEDIATE_WIDTH)
    a.alu("OR", _EPS, _EPS, T)
    a.alu("SLLI", _EPS_HIGH, _EPS_HIGH, WORD_WIDTH - IMMEDIATE_WIDTH)
    a.alu("SRLI", _EPS_HIGH, _EPS_HIGH, 2 * (WORD_WIDTH - IMMEDIATE_WIDTH))

    a.label("norm row")
    _sums(a, row)
    _root(a)
    _values(a, config, row)
    a.constant(WORD_AT, row)
    a.move(COUNT, N)
    a.move(PARAM, PARAMS)
    run_loop(a)
    a.label("norm written")
    for addr, stride in zip(_ADDRS, _STRIDES, strict=True):
        a.alu("ADD", addr, addr, stride)
    next_row(a, "norm row")


def norm_parts(a: Assembler, config: MicroConfig) -> None:
    """Append NORM's table."""
    if config.norm:
        a.table("rsqrt", segments(rsqrt_polynomial()))


def _sums(a: Assembler, row: int) -> None:
    """Put the row's elements into the row buffer; add up them and their squares."""
    i_addr, r_addr, s_addr = _ADDRS
    a.constant(WORD_AT, row)
    a.move(COUNT, N)
    for sum_ in (_SUM, _SQUARES, _SQUARES_HIGH):
        a.move(sum_, ZERO)
    a.multiply(ZERO, ZERO)
    a.alu("OR", T, _ADDS, _WRITES)
    a.branch("BNE", T, ZERO, "norm element")

    def plain() -> None:
        a.load("LHP", X, i_addr, 2)
        _add_element(a)

    in_pairs(a, "norm plain", plain, T)
    a.jump("norm summed")
    a.label("norm element")
    a.load("LHP", X, i_addr, 2)
    a.branch("BEQ", _ADDS, ZERO, "added")
    a.load("LHP", T, r_addr, 2)
    a.alu("ADD", X, X, T)
    a.alu("MIN", X, X, MOST)
    a.alu("MAX", X, X, LEAST)
    a.label("added")
    a.branch("BEQ", _WRITES, ZERO, "sum written")
    a.store("SHP", s_addr, X, 2)
    a.label("sum written")
    _add_element(a)
    a.loop(COUNT, "norm element")
    a.label("norm summed")
    _add_square(a)
    a.if_flag(FLAGS, bit(Opcode.NORM, "rms"), "with mean", T, clear=True)
    a.move(_SUM, ZERO)
    a.label("with mean")


def _add_element(a: Assembler) -> None:
    """Keep an element, add it, and begin its square."""
    a.store("STP", WORD_AT, X, 1)
    _add_square(a)
    a.multiply(X, X)
    a.alu("ADD", _SUM, _SUM, X)


def _add_square(a: Assembler) -> None:
    """Add the square under way, of at most 31 bits."""
    a.low(T)
    a.alu("ADD", _SQUARES, _SQUARES, T)
    a.alu("SLTU", T, _SQUARES, T)
    a.alu("ADD", _SQUARES_HIGH, _SQUARES_HIGH, T)


def _root(a: Assembler) -> None:
    """Put the mantissa of ``1 / sqrt(V)`` into ``X`` and its exponent into ``RIGHT``."""
    a.multiply(N, _SQUARES)
    a.low(REST)
    a.middle(VALUE)
    a.multiply(N, _SQUARES_HIGH)
    a.alu("SRAI", VALUE, VALUE, 1)
    a.branch("BGE", _SQUARES, ZERO, "squares")
    a.alu("ADD", VALUE, VALUE, N)
    a.label("squares")
    a.low(T)
    a.alu("ADD", VALUE, VALUE, T)
    a.multiply(_SUM, _SUM)
    a.low(T)
    a.middle(X)
    a.alu("SRAI", X, X, 1)
    a.alu("SLTU", RIGHT, REST, T)
    a.alu("SUB", REST, REST, T)
    a.alu("SUB", VALUE, VALUE, X)
    a.alu("SUB", VALUE, VALUE, RIGHT)
    a.alu("ADD", REST, REST, _EPS)
    a.alu("SLTU", T, REST, _EPS)
    a.alu("ADD", VALUE, VALUE, T)
    a.alu("ADD", VALUE, VALUE, _EPS_HIGH)
    a.move(X, ZERO)
    a.alu("OR", T, VALUE, REST)
    a.branch("BEQ", T, ZERO, "rooted")
    a.call("normalize", LINK)
    # The exponent's parity goes above the fraction.
    a.alu("SLLI", T, RIGHT, WORD_WIDTH - 1)
    a.alu("SRLI", VALUE, VALUE, 1)
    a.alu("OR", VALUE, VALUE, T)
    a.alu("SRAI", RIGHT, RIGHT, 1)
    a.emit("ADDI", FACTOR, value="rsqrt")
    a.call("polynomial", LINK)
    a.label("rooted")


def _values(a: Assembler, config: MicroConfig, row: int) -> None:
    """Make values in Q.16 of the elements.

    Bits 31 and up of ``((n * s - sum) << left) * (mantissa << more)`` are twice the value. ``left``
    is as large as values of at most 64 allow, so that the low 32 bits of the difference suffice.
    """
    scaled_n, most, both = _SQUARES, 14, 32 + VALUE_FRACTION
    a.alu("ADDI", T, RIGHT, both - most)
    a.alu("MAX", T, T, ZERO)
    a.alu("SLL", scaled_n, N, T)
    a.alu("SLL", _SUM, _SUM, T)
    a.alu("ADDI", RIGHT, RIGHT, both)
    a.constant(T, most)
    a.alu("MIN", T, T, RIGHT)
    a.alu("SLL", X, X, T)
    a.constant(WORD_AT, row)
    a.move(COUNT, N)
    a.load("LDP", T, WORD_AT, 1)
    a.multiply(T, scaled_n)
    if config.requantizer:
        _bytes(a, config, scaled_n)
    a.label("norm value")
    _value(a)
    a.multiply(T, scaled_n)
    a.store("ST", WORD_AT, VALUE, -2)
    a.loop(COUNT, "norm value")


def _bytes(a: Assembler, config: MicroConfig, scaled_n: int) -> None:
    """Requantize each at once where it becomes a byte, while the one before is written."""
    a.branch("BNE", TAIL, ZERO, "norm value")
    a.move(PARAM, PARAMS)
    _value(a)
    scale(a, config, VALUE)
    a.multiply(T, scaled_n)
    a.loop(COUNT, "norm byte")
    a.jump("last norm byte")
    a.label("norm byte")
    _value(a)
    scale(a, config, VALUE)
    a.multiply(T, scaled_n)
    _write(a)
    a.loop(COUNT, "norm byte")
    a.label("last norm byte")
    _write(a)
    a.jump("norm written")


def _value(a: Assembler) -> None:
    """Make a value of the product under way, and get the next element."""
    a.low(T)
    a.alu("SUB", T, T, _SUM)
    a.multiply(T, X)
    a.load("LDP", T, WORD_AT, 1)
    a.middle(VALUE)
    a.alu("ADDI", VALUE, VALUE, 1)
    a.alu("SRAI", VALUE, VALUE, 1)


def _write(a: Assembler) -> None:
    """Write the oldest requantized byte."""
    a.emit("SCALED", VALUE)
    a.store("SBP", O_ADDR, VALUE, 1)
