"""The whole microcode of a configuration, made from the Jinja templates ``code/*.s``."""

import functools
from pathlib import Path

from celosia.arch import functions, isa, norm, polynomial
from celosia.arch.config import Config
from celosia.arch.isa import DEFINITIONS, WORD_WIDTH, Opcode
from celosia.arch.micro import memory
from celosia.arch.micro.assembler import Microcode
from celosia.arch.micro.isa import Signal
from celosia.arch.micro.memory import OPERANDS, REGISTERS, memory_map
from celosia.arch.short_names import PATHS
from celosia.arch.templates import rendered

_FILES = ("common", "control", "move", "matmul", "fill", "drain", "softmax", "norm")
_ENDS = ("epilogue", "inverse")
COUNT_BITS = 8
"""Bits of the operand count in a word of ``shapes``."""
SLOPE_SHIFT = 16
"""Lowest bit of ``c1`` in a segment's word."""
WEIGHT_SHIFT = functions.WEIGHT_FRACTION - functions.OCTAVE_MANTISSA
_NUMBERS_A_WORD = 4


@functools.cache
def assemble(config: Config) -> Microcode:
    """Return the microcode of a microcoded machine; equal configurations share one object."""
    names = [name for name in _FILES if _needed(name, config)]
    files = [Path(__file__).parent / "code" / f"{name}.s" for name in (*names, *_ENDS)]
    modules = (vars(module) for module in (functions, isa, norm, polynomial, memory))
    shapes, lists = _shapes(config)
    made = rendered(
        *files,
        **{
            name: value
            for names_of_module in modules
            for name, value in names_of_module.items()
            if name.isupper()
        },
        COUNT_BITS=COUNT_BITS,
        SLOPE_SHIFT=SLOPE_SHIFT,
        WEIGHT_SHIFT=WEIGHT_SHIFT,
        config=config,
        where=memory_map(config),
        signal={cause.name: int(cause) for cause in Signal},
        bit=lambda opcode, flag: DEFINITIONS[Opcode[opcode]].flag_bit(flag),
        log2=lambda value: (value - 1).bit_length(),
        is_power=lambda value: not value & (value - 1),
        handlers=[f"op_{op.name}" if _handled(op, config) else "fail" for op in Opcode],
        shapes=shapes,
        reserved=[DEFINITIONS[opcode].reserved for opcode in Opcode],
        operands=lists,
        octave=[int(mantissa) << WEIGHT_SHIFT for mantissa in functions.octave_table()],
        reciprocal=_segments(polynomial.reciprocal_polynomial()),
        rsqrt=_segments(polynomial.rsqrt_polynomial()),
    )
    return Microcode(made, REGISTERS | OPERANDS)


def _needed(file: str, config: Config) -> bool:
    """Return whether a machine has the unit that a microcode file is for."""
    return file not in PATHS or bool(config.read(file))


def _handled(opcode: Opcode, config: Config) -> bool:
    """Return whether the machine has an instruction; a microcoded machine has no weight slots."""
    unit = DEFINITIONS[opcode].unit
    return opcode != Opcode.PRELOAD and (unit is None or bool(config.read(unit)))


def _shapes(config: Config) -> tuple[list[int], list[int]]:
    """Return every opcode's operand count and list start, and the register lists, four a word."""
    shapes, lists = list[int](), list[int]()
    for opcode in Opcode:
        names = DEFINITIONS[opcode].operands if _handled(opcode, config) else ()
        shapes.append(len(names) | len(lists) << COUNT_BITS)
        for first in range(0, len(names), _NUMBERS_A_WORD):
            part = names[first : first + _NUMBERS_A_WORD]
            lists.append(sum(OPERANDS[name] << 8 * place for place, name in enumerate(part)))
    return shapes, lists


def _segments(fitted: polynomial.Polynomial) -> list[int]:
    """Return two words for each segment: c1 above c2, and c0."""
    return [
        word % (1 << WORD_WIDTH)
        for c0, c1, c2 in fitted.coefficients
        for word in (c1 << SLOPE_SHIFT | c2, c0)
    ]
