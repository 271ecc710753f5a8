"""Bytes of INT16 operands, multiplied one after another: equation (19) of docs/formats.md."""

from collections.abc import Iterable
from typing import Any

from amaranth.hdl import Module, Mux, Value, ValueLike

from celosia.arch.config import Config
from celosia.arch.formats import OPERAND_BITS
from celosia.arch.isa import DEFINITIONS, Opcode
from celosia.hdl.stream.fields import present
from celosia.hdl.stream.pipeline import delay


def byte_members(config: Config) -> dict[str, Any]:
    """Return the fields that select a byte of each element, a dictionary from name to shape.

    Without ``wide`` elements are INT8; with ``wide`` they are INT16, and ``low`` selects low bytes.
    """
    return present(wide=config.array.wide, low=config.array.wide)


def shift_members(config: Config) -> dict[str, Any]:
    """Return the field ``shifted``, a dictionary; it marks high bytes, whose sums are times 256."""
    return present(shifted=config.array.wide)


def bytes_of(
    line: Any, count: int, wide: ValueLike, low: ValueLike
) -> tuple[list[Value], list[Value]]:
    """Return a byte of each of the first ``count`` elements of a line, and a carry for each byte.

    The result is a pair of lists. With ``wide`` elements are INT16, and ``low`` selects low bytes.
    Low bytes are signed, so the carry of a high byte is 1 if the low byte is negative.
    """
    places = range(count)
    words = [Mux(wide, Mux(low, line[2 * at], line[2 * at + 1]), line[at]) for at in places]
    return words, [wide & ~low & line[2 * at][OPERAND_BITS - 1] for at in places]


def rounded(words: Iterable[Any], more: Iterable[Value]) -> list[Value]:
    """Return the bytes ``words`` plus the carries ``more``, as signed operands of one bit more."""
    return [byte.as_signed() + carry_bit for byte, carry_bit in zip(words, more, strict=True)]


def in_place(m: Module, totals: list[Value], shifted: Value, latency: int) -> list[Value]:
    """Return the sums ``totals``, times 256 if ``shifted`` was 1 ``latency`` cycles before."""
    times_256 = delay(m, shifted, latency)
    return [Mux(times_256, total << OPERAND_BITS, total) for total in totals]


def flag_of(command: Any, name: str) -> Value:
    """Return the flag ``name``, which only MATMUL has, of a command."""
    flag: Value = command.flags[DEFINITIONS[Opcode.MATMUL].flag_bit(name)]
    return flag
