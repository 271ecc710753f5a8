"""Multiplication by parts of weights (groups of bits): equation (14) of docs/formats.md."""

from amaranth.hdl import Cat, Const, Mux, Value, ValueLike, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.arch.formats import OPERAND_BITS, PAIRED_BITS
from celosia.hdl.component import Component
from celosia.hdl.stream.fields import present
from celosia.hdl.stream.pipeline import delay


def part_layout(width: int, *, paired: bool = False) -> data.StructLayout:
    """Return the layout of the fields that select ``width`` bits of each stored 8-bit weight.

    - ``place``: number of the group of bits, from the lowest.
    - ``last``: 1 for the highest group, which is signed.
    - ``alone`` (if ``paired``): 1 if ``place`` is the half of the byte that has a 4-bit weight.
    """
    places = OPERAND_BITS // (min(width, PAIRED_BITS) if paired else width)
    alone = present(alone=paired)
    return data.StructLayout({"place": range(places), "last": int(places > 1), **alone})


def part_of(weight: Value, part: ValueLike, width: int, *, paired: bool = False) -> Value:
    """Return the bits of a stored byte by which the array multiplies, as a signed number.

    ``part`` has the fields of :func:`part_layout`. The result is the group ``part.place`` of
    ``width`` bits. If ``part.alone`` is 1, it is the half ``part.place`` of the byte, a 4-bit
    weight.
    """
    view = data.View(part_layout(width, paired=paired), part)
    if width == OPERAND_BITS:
        half = weight.word_select(view.place, PAIRED_BITS).as_signed()
        return Mux(view.alone, half, weight.as_signed())
    bits = weight.word_select(view.place, width)
    sign = weight[-1] if width == 1 else bits[-1]
    return Cat(bits, view.last & sign).as_signed()


def shifted_to_part(total: Value, part: ValueLike, width: int, *, paired: bool = False) -> Value:
    """Return ``total`` shifted left by ``width * part.place`` bits, if ``part.alone`` is not 1.

    ``total`` is a sum of products with the group ``part.place`` of the weights' bits
    (:func:`part_layout`). The shifted sums of all groups add up to the sum for whole weights.
    """
    view = data.View(part_layout(width, paired=paired), part)
    place = Mux(view.alone, 0, view.place) if paired else view.place
    return total << Cat(Const(0, width.bit_length() - 1), place)


class PartAdder(Component):
    """Multiplies ``a`` by ``b`` (-1, 0 or 1); the product is ``p + carry``, two cycles later.

    The unit itself has no adder: the circuit that sums the products must add both ``p`` and
    ``carry`` (:func:`add_carry`).
    """

    def __init__(self, width: int):
        super().__init__(
            {"a": In(signed(width)), "b": In(signed(2)), "p": Out(signed(width)), "carry": Out(1)}
        )

    def circuit(self, m):
        a, b = delay(m, self.a, 1), delay(m, self.b, 1)
        held, minus = (bit.replicate(self.width) for bit in b)
        m.d.sync += [self.p.eq((a & held) ^ minus), self.carry.eq(b[1])]


def add_carry(total: Value, product: Value, carry: Value) -> Value:
    """Return the sum ``total + product + carry``, computed by one adder with a carry input."""
    both = Cat(Const(1, 1), total).as_signed() + Cat(carry, product).as_signed()
    return both[1:].as_signed()
