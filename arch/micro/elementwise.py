"""ADD and MUL in microcode, equations (5) and (6)."""

from arch.micro.assembler import Assembler
from arch.micro.config import MicroConfig
from arch.micro.epilogue import (
    COUNT,
    FACTOR,
    ONES,
    OWN,
    PARAM,
    PARAM_STEP,
    PARAMS,
    RIGHT,
    SHIFT,
    VALUE,
    WORD_AT,
    N,
    T,
    X,
    next_row,
    not_shifted,
    round_product,
)
from arch.micro.memory import LINK, LINK2, OPERANDS, PARAM_WORDS, SCRATCH_WORDS, ZERO, memory_map

_LEFT, _PIECE, _FIRST, _SECOND = OWN[1:5]
_FRACTION = 20
_I_ADDR, _I_STRIDE, _I_ZERO, _R_ADDR, _R_STRIDE, _R_ZERO = (
    OPERANDS[f"{name}_{part}"] for name in "ir" for part in ("addr", "stride", "zero")
)


def add(a: Assembler, config: MicroConfig) -> None:
    """Append ADD."""
    a.call("begin", LINK)
    a.alu("ADDI", PARAMS, PARAMS, 2 * PARAM_WORDS)
    _begin_rows(a, config, "add")
    a.move(_SECOND, T)
    _scale(a, -2 * PARAM_WORDS)
    a.move(_FIRST, VALUE)
    a.move(X, _SECOND)
    _scale(a, -PARAM_WORDS)
    a.alu("ADD", VALUE, VALUE, _FIRST)
    _end_rows(a, config, "add")


def mul(a: Assembler, config: MicroConfig) -> None:
    """Append MUL."""
    a.call("begin", LINK)
    _begin_rows(a, config, "mul")
    a.multiply(X, T)
    a.low(VALUE)
    _end_rows(a, config, "mul")


def elementwise_parts(a: Assembler, config: MicroConfig) -> None:
    """Append ``scale``: ``X`` rescaled by ``FACTOR`` and ``SHIFT`` becomes ``VALUE``."""
    if config.elementwise:
        a.label("scale")
        a.multiply(X, FACTOR, rounds=True)
        a.alu("SUB", RIGHT, ONES, SHIFT)
        round_product(a, "scaled")
        a.back(LINK)
        not_shifted(a, "scaled")


def _scale(a: Assembler, params: int) -> None:
    """Rescale an input by the factor at a place relative to the output's parameters."""
    a.alu("SLLI", X, X, _FRACTION)
    a.load("LD", FACTOR, PARAMS, params + 1)
    a.load("LD", SHIFT, PARAMS, params + 2)
    a.call("scale", LINK)


def _begin_rows(a: Assembler, config: MicroConfig, name: str) -> None:
    """Begin rows in pieces that fit the scratch words: an element in ``X``, the second in ``T``."""
    a.alu("SUB", _I_STRIDE, _I_STRIDE, N)
    a.alu("SUB", _R_STRIDE, _R_STRIDE, N)
    a.label(f"{name} row")
    a.move(_LEFT, N)
    a.move(PARAM, PARAMS)
    a.label(f"{name} piece")
    a.constant(T, SCRATCH_WORDS)
    a.alu("MIN", _PIECE, _LEFT, T)
    a.alu("SUB", _LEFT, _LEFT, _PIECE)
    a.move(COUNT, _PIECE)
    a.constant(WORD_AT, memory_map(config).scratch)
    a.label(f"{name} element")
    a.load("LBP", X, _I_ADDR, 1)
    a.alu("SUB", X, X, _I_ZERO)
    a.load("LBP", T, _R_ADDR, 1)
    a.alu("SUB", T, T, _R_ZERO)


def _end_rows(a: Assembler, config: MicroConfig, name: str) -> None:
    """End what :func:`_begin_rows` began; the element's value is in ``VALUE``."""
    a.store("STP", WORD_AT, VALUE, 1)
    a.loop(COUNT, f"{name} element")
    a.constant(WORD_AT, memory_map(config).scratch)
    a.move(COUNT, _PIECE)
    a.call("words", LINK2)
    a.alu("SUB", PARAM, PARAM, PARAM_STEP)
    a.branch("BNE", _LEFT, ZERO, f"{name} piece")
    a.alu("ADD", _I_ADDR, _I_ADDR, _I_STRIDE)
    a.alu("ADD", _R_ADDR, _R_ADDR, _R_STRIDE)
    next_row(a, f"{name} row")
