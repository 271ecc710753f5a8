"""Multiplication of INT16 operands byte by byte: equation (19) of docs/formats.md."""

from collections.abc import Iterable
from typing import Any

from amaranth.hdl import Module, Mux, Value, ValueLike

from celosia.arch.formats import OPERAND_BITS
from celosia.arch.isa import DEFINITIONS, Opcode
from celosia.arch.matrix_config import MatrixConfig
from celosia.hdl.stream.fields import present
from celosia.hdl.stream.pipeline import delay


def byte_members(config: MatrixConfig) -> dict[str, Any]:
    """Return a dictionary from name to shape with the fields ``wide`` and ``low``.

    ``wide`` is 1 for INT16 elements. If ``low`` is 1, the low byte of each INT16 element is used,
    otherwise the high byte. The dictionary is empty if the machine has INT8 elements only.
    """
    return present(wide=config.array.wide, low=config.array.wide)


def shift_members(config: MatrixConfig) -> dict[str, Any]:
    """Return a dictionary from name to shape with the field ``shifted``.

    ``shifted`` is 1 for a vector of high bytes of INT16 elements, whose sums of products are
    multiplied by 256. The dictionary is empty if the machine has INT8 elements only.
    """
    return present(shifted=config.array.wide)


def bytes_of(
    line: Any, count: int, wide: ValueLike, low: ValueLike
) -> tuple[list[Value], list[Value]]:
    """Return a byte of each of the first ``count`` elements of a line, and a carry for each byte.

    The result is a list of bytes and a list of carries. If ``wide`` is 1, elements are INT16. The
    bytes are then the low bytes if ``low`` is 1, else the high bytes. Low bytes are signed;
    therefore 1 must be added to a high byte, as its carry, if the element's low byte is negative.
    If ``wide`` is 0, elements are bytes, and the carries are 0.
    """
    places = range(count)
    words = [Mux(wide, Mux(low, line[2 * at], line[2 * at + 1]), line[at]) for at in places]
    return words, [wide & ~low & line[2 * at][OPERAND_BITS - 1] for at in places]


def rounded(words: Iterable[Any], more: Iterable[Value]) -> list[Value]:
    """Return a list of signed 9-bit sums: each byte of ``words`` plus its carry bit in ``more``.

    :func:`bytes_of` returns the bytes and the carry bits.
    """
    return [byte.as_signed() + carry_bit for byte, carry_bit in zip(words, more, strict=True)]


def in_place(m: Module, totals: list[Value], shifted: Value, latency: int) -> list[Value]:
    """Return the sums ``totals``, multiplied by 256 if they are sums of products of high bytes.

    ``shifted`` must be 1 for a vector of high bytes; it arrives ``latency`` cycles before the
    vector's sums.
    """
    times_256 = delay(m, shifted, latency)
    return [Mux(times_256, total << OPERAND_BITS, total) for total in totals]


def flag_of(command: Any, name: str) -> Value:
    """Return the flag ``name`` of ``command``, which is a MATMUL or a PRELOAD.

    Each flag has the same position in both instructions. If the instruction of ``command`` does not
    have the flag, the bit at this position is reserved, and the result is 0.
    """
    flag: Value = command.flags[DEFINITIONS[Opcode.MATMUL].flag_bit(name)]
    return flag
