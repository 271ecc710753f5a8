"""Decoder of micro-instructions, for the golden model of the microcoded machine."""

from dataclasses import dataclass

from celosia.arch.errors import ProgramError
from celosia.arch.micro.isa import IMMEDIATE_WIDTH, OPERATIONS, Form

_NAMES = {operation.number: name for name, operation in OPERATIONS.items()}


def signed(value: int, width: int = 32) -> int:
    """Return the low ``width`` bits of a value as a signed integer."""
    half = 1 << (width - 1)
    return (value + half) % (1 << width) - half


@dataclass(frozen=True)
class Micro:
    """A decoded micro-instruction: name, register numbers, and immediate or branch target."""

    name: str
    ra: int
    rb: int
    rd: int
    value: int


def decode(word: int) -> Micro:
    """Return the micro-instruction that a word encodes.

    Raises :class:`ProgramError` if the word encodes none.
    """
    name = _NAMES.get(word & 63)
    if name is None:
        raise ProgramError(f"There is no micro-instruction {word & 63}")
    form = OPERATIONS[name].form
    ra, rb, rd, high = word >> 6 & 63, word >> 12 & 63, word >> 18 & 63, word >> 24
    value = 0
    if form == Form.IMMEDIATE:
        value = signed(high << 6 | rb, IMMEDIATE_WIDTH)
    elif form == Form.STORE:
        value = signed(high << 6 | rd, IMMEDIATE_WIDTH)
    elif form == Form.BRANCH:
        value = high << 6 | rd
    return Micro(name, ra, rb, rd, value)
