"""Reciprocal and reciprocal square root in microcode, equation (7)."""

from arch.micro.assembler import Assembler
from arch.micro.config import MicroConfig
from arch.micro.epilogue import FACTOR, REST, RIGHT, VALUE, T, X
from arch.micro.memory import LINK, ZERO
from arch.polynomial import FRACTION_WIDTH, GUARD_WIDTH, MANTISSA_WIDTH, Polynomial

_WORD = 32
_SLOPE_SHIFT = 16


def segments(polynomial: Polynomial) -> list[int | str]:
    """Return two words for each segment: c1 above c2, and c0."""
    return [
        word % (1 << _WORD)
        for c0, c1, c2 in polynomial.coefficients
        for word in (c1 << _SLOPE_SHIFT | c2, c0)
    ]


def inverse(a: Assembler, config: MicroConfig) -> None:
    """Append the routines ``normalize`` and ``polynomial``, called with ``LINK``.

    ``normalize`` takes a positive integer of 64 bits in ``VALUE`` and ``REST`` and returns the
    exponent of its leading one in ``RIGHT``, and in ``VALUE`` the bits after that, the first one
    in bit 31, those behind the last one that counts 0.

    ``polynomial`` takes the operand likewise, of 64 segments, and the exponent, halved where it
    has to be; ``FACTOR`` holds the address of the segments. It returns the mantissa in ``X`` and
    the result's exponent in ``RIGHT``.
    """
    if not (config.softmax or config.norm):
        return
    a.label("normalize")
    a.constant(RIGHT, 2 * _WORD - 1)
    a.branch("BNE", VALUE, ZERO, "long")
    a.move(VALUE, REST)
    a.constant(RIGHT, _WORD - 1)
    a.label("long")
    a.label("bytes")
    a.alu("SRLI", T, VALUE, _WORD - 8)
    a.branch("BNE", T, ZERO, "bits")
    a.alu("SRLI", T, REST, _WORD - 8)
    a.alu("SLLI", REST, REST, 8)
    a.alu("SLLI", VALUE, VALUE, 8)
    a.alu("OR", VALUE, VALUE, T)
    a.alu("ADDI", RIGHT, RIGHT, -8)
    a.jump("bytes")
    a.label("bits")
    a.branch("BLT", VALUE, ZERO, "leading")
    a.label("shift")
    a.alu("SRLI", T, REST, _WORD - 1)
    a.alu("ADD", REST, REST, REST)
    a.alu("ADD", VALUE, VALUE, VALUE)
    a.alu("ADD", VALUE, VALUE, T)
    a.alu("ADDI", RIGHT, RIGHT, -1)
    a.branch("BGE", VALUE, ZERO, "shift")
    a.label("leading")
    a.alu("ADD", VALUE, VALUE, VALUE)
    a.alu("ANDI", VALUE, VALUE, -1 << _WORD - FRACTION_WIDTH)
    a.back(LINK)

    a.label("polynomial")
    a.alu("SRLI", T, VALUE, _WORD - 6)
    a.alu("ADD", T, T, T)
    a.alu("ADD", T, T, FACTOR)
    a.load("LC", REST, T)
    a.alu("SLLI", VALUE, VALUE, 6)
    a.alu("SRLI", VALUE, VALUE, 1)  # the place in the segment, of 31 bits
    a.alu("ANDI", X, REST, (1 << 12) - 1)
    a.multiply(X, VALUE)
    a.load("LC", T, T, 1)
    a.alu("SRAI", REST, REST, _SLOPE_SHIFT)
    a.middle(X)
    a.alu("ADD", X, X, REST)
    a.multiply(X, VALUE)
    a.middle(X)
    a.alu("ADD", X, X, T)
    a.alu("SRLI", X, X, GUARD_WIDTH)
    a.alu("SRLI", T, X, MANTISSA_WIDTH)  # 1 for 2**17, or 0
    a.alu("SRL", X, X, T)
    a.alu("SUB", RIGHT, T, RIGHT)
    a.alu("ADDI", RIGHT, RIGHT, -MANTISSA_WIDTH)
    a.back(LINK)
