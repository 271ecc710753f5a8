"""Encoding, storage and decoding of blocks, which are values that share an exponent."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.arch.formats import EXPONENT_BITS, OPERAND_BITS, PAIRED_BITS
from celosia.arch.latency import SHIFTS
from celosia.arch.matrix_config import MatrixConfig
from celosia.hdl.component import Component


class BlockEncoder(Component):
    """Encodes two rows of numbers as 4-bit mantissas with one shared exponent.

    - ``first``, ``second``: 1 if ``elements`` is the first or the second row.
    - ``count``: number of valid elements per row.
    - ``held``: the first row, which the caller must supply while it reads ``o``.
    - ``o``: a byte per column, from the cycle after ``second`` on: the first row's mantissa in the
      low half, the second row's in the high half.
    - ``exponent``: shared exponent minus 1, together with ``o``.
    """

    def __init__(self, *, rows: int, cols: int):
        row = data.ArrayLayout(OPERAND_BITS, cols)
        super().__init__(
            {
                "first": In(1),
                "second": In(1),
                "count": In(range(max(rows, cols) + 1)),
                "elements": In(row),
                "held": In(row),
                "o": Out(row),
                "exponent": Out(EXPONENT_BITS),
            }
        )

    def circuit(self, m):
        late = Signal.like(self.elements)
        # Magnitude bits that overflow the mantissa at the smallest exponents.
        large = slice(PAIRED_BITS, OPERAND_BITS - 1)
        overflow = [
            Mux(self.count > index, (element ^ element[-1].replicate(OPERAND_BITS))[large], 0)
            for index, element in enumerate(self.elements)
        ]
        here = Signal(SHIFTS)
        seen = Signal(SHIFTS)
        before = Signal(SHIFTS)
        m.d.comb += [here.eq(reduce(or_, overflow)), seen.eq(before | here)]
        with m.If(self.first):
            m.d.sync += before.eq(here)
        with m.If(self.second):
            m.d.sync += late.eq(self.elements)
            m.d.sync += self.exponent.eq(0)
            for place, bit in enumerate(seen):
                with m.If(bit):
                    m.d.sync += self.exponent.eq(place + 1)
        for out, low, high in zip(self.o, self.held, late, strict=True):
            m.d.comb += out.eq(Cat(self._mantissa(low), self._mantissa(high)))

    def _mantissa(self, value):
        """Return the bits of a value above its exponent plus one."""
        return value[1:].bit_select(self.exponent, PAIRED_BITS)


def exponent_widths(config: MatrixConfig) -> list[int]:
    """Return how many bits of a row's shared exponent each column of the array stores, as a list.

    An exponent has ``EXPONENT_BITS`` bits. The first columns store ``config.slot_exponents`` bits
    each, the lowest bits first. Columns after the last bit store 0 bits.
    """
    above = config.slot_exponents
    left = EXPONENT_BITS if above else 0
    return [max(0, min(above, left - column * above)) for column in range(config.array.cols)]


def operand(half: Value) -> Value:
    """Return the signed operand that a 4-bit mantissa stands for: ``2 * mantissa + 1``.

    The mantissa is a signed number in the low 4 bits of the argument ``half``; higher bits are
    ignored. The operand does not include the exponent that the mantissas of a row share.
    """
    return Cat(1, half[:PAIRED_BITS]).as_signed()
