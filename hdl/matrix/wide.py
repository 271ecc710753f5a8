"""Multiplication of INT16 operands byte by byte: equation (19) of docs/formats.md."""

from collections.abc import Iterable
from typing import Any

from amaranth.hdl import Module, Mux, Value, ValueLike

from celosia.arch.formats import OPERAND_BITS
from celosia.arch.isa import DEFINITIONS, Opcode
from celosia.arch.matrix_config import MatrixConfig
from celosia.hdl.stream.fields import present
from celosia.hdl.stream.pipeline import delay


def byte_select_fields(config: MatrixConfig) -> dict[str, Any]:
    """Return the optional fields that select which bytes of INT16 elements the array multiplies.

    The result is a dictionary from a field's name to its shape, empty if the machine has only INT8
    elements. ``wide`` is 1 for INT16 elements. ``low`` is 1 to multiply by their low bytes, 0 for
    their high bytes.
    """
    return present(wide=config.array.wide, low=config.array.wide)


def shift_members(config: MatrixConfig) -> dict[str, Any]:
    """Return the field ``shifted`` of an activation vector: a dictionary from name to shape.

    If ``shifted`` is 1, the vector has the high bytes of INT16 elements, and its sums of products
    must be multiplied by 256 (:func:`in_place`). The dictionary is empty if the machine has INT8
    elements only.
    """
    return present(shifted=config.array.wide)


def bytes_of(
    line: Any, count: int, wide: ValueLike, low: ValueLike
) -> tuple[list[Value], list[Value]]:
    """Return two lists: the byte to multiply of each of ``count`` elements, and each byte's carry.

    If ``wide`` is 0, elements of ``line`` have one byte. If ``wide`` is 1, they have two; ``low``
    selects the low byte (1) or the high byte (0). The carry is 1 for a high byte whose low byte is
    negative, otherwise 0.
    """
    places = range(count)
    words = [Mux(wide, Mux(low, line[2 * at], line[2 * at + 1]), line[at]) for at in places]
    return words, [wide & ~low & line[2 * at][OPERAND_BITS - 1] for at in places]


def add_carries(words: Iterable[Any], more: Iterable[Value]) -> list[Value]:
    """Return a list of signed sums of 9 bits: each byte of ``words`` plus the byte's carry bit.

    ``more`` has the carry bits; :func:`bytes_of` returns bytes and carry bits. Low bytes are
    multiplied as signed numbers, so an element is ``256 * (high + carry) + low``.
    """
    return [byte.as_signed() + carry_bit for byte, carry_bit in zip(words, more, strict=True)]


def in_place(m: Module, totals: list[Value], shifted: Value, latency: int) -> list[Value]:
    """Return the sums ``totals``, multiplied by 256 if ``shifted`` was 1 for their activations.

    ``shifted`` is a field of each vector of activations (:func:`shift_members`). It is read when
    the vector enters the array, ``latency`` cycles before the vector's sums arrive in ``totals``.
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
