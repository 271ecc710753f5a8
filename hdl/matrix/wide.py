"""Bytes of INT16 operands, which the array multiplies one after another: equation (19)."""

from collections.abc import Iterable
from typing import Any

from amaranth.hdl import Module, Mux, Value, ValueLike

from celosia.arch.config import Config
from celosia.arch.formats import OPERAND_BITS
from celosia.arch.isa import DEFINITIONS, Opcode
from celosia.hdl.stream.fields import present
from celosia.hdl.stream.pipeline import delay


def byte_members(config: Config) -> dict[str, Any]:
    """Return the fields that select a byte of elements: INT8, or ``wide`` ones high or ``low``."""
    return present(wide=config.array.wide, low=config.array.wide)


def shift_members(config: Config) -> dict[str, Any]:
    """Return the field ``shifted``, for high bytes whose sums are shifted to their position."""
    return present(shifted=config.array.wide)


def bytes_of(
    line: Any, count: int, wide: ValueLike, low: ValueLike
) -> tuple[list[Value], list[Value]]:
    """Return a byte of each of the first elements of a line, and a carry that belongs to it.

    Low bytes are signed, so a high byte has a carry if its low byte is negative.
    """
    places = range(count)
    words = [Mux(wide, Mux(low, line[2 * at], line[2 * at + 1]), line[at]) for at in places]
    return words, [wide & ~low & line[2 * at][OPERAND_BITS - 1] for at in places]


def rounded(words: Iterable[Any], more: Iterable[Value]) -> list[Value]:
    """Return bytes plus their carries as signed operands with one more bit."""
    return [byte.as_signed() + carry_bit for byte, carry_bit in zip(words, more, strict=True)]


def in_place(m: Module, totals: list[Value], shifted: Value, latency: int) -> list[Value]:
    """Return the sums of vectors ``latency`` cycles ago, those of ``shifted`` bytes times 256."""
    times_256 = delay(m, shifted, latency)
    return [Mux(times_256, total << OPERAND_BITS, total) for total in totals]


def flag_of(command: Any, name: str) -> Value:
    """Return a flag of MATMUL that other commands do not have."""
    flag: Value = command.flags[DEFINITIONS[Opcode.MATMUL].flag_bit(name)]
    return flag
