"""Multiplication by parts of weights (groups of bits): equation (14) of docs/formats.md."""

from amaranth.hdl import Cat, Const, Mux, Value, ValueLike, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.arch.formats import OPERAND_BITS, PAIRED_BITS
from celosia.hdl.component import Component
from celosia.hdl.stream.fields import present
from celosia.hdl.stream.pipeline import delay


def part_layout(width: int, *, paired: bool = False) -> data.StructLayout:
    """Return the layout of the fields that select a group of ``width`` bits of each stored weight.

    - ``place`` is the number of the group; group 0 has the lowest bits of the weight.
    - ``last`` is 1 for the group with the highest bits, which is a signed number.
    - ``alone`` exists only if ``paired`` is true: each byte in the array then stores either one
      8-bit weight or two 4-bit weights. ``alone`` is 1 if the byte stores two, and the array
      multiplies one of them alone. ``place`` is then the index of that weight: 0 for the low half
      of the byte, 1 for the high half.

    The layout has no bits if ``width`` is 8 and ``paired`` is false.
    """
    places = OPERAND_BITS // (min(width, PAIRED_BITS) if paired else width)
    alone = present(alone=paired)
    return data.StructLayout({"place": range(places), "last": int(places > 1), **alone})


def part_of(weight: Value, part: ValueLike, width: int, *, paired: bool = False) -> Value:
    """Return the bits of a stored byte by which the array multiplies, as a signed number.

    ``weight`` is the byte, and ``part`` has the fields of :func:`part_layout`. Two cases differ:

    - ``part.alone`` is 0 or absent: the byte is one 8-bit weight. It is divided into groups of
      ``width`` bits, and the result is the group with the number ``part.place``. If ``width`` is 8,
      the result is the whole byte.
    - ``part.alone`` is 1: the byte has two 4-bit weights. The result is the low half of the byte if
      ``part.place`` is 0, the high half if it is 1.
    """
    view = data.View(part_layout(width, paired=paired), part)
    if width == OPERAND_BITS:
        half = weight.word_select(view.place, PAIRED_BITS).as_signed()
        return Mux(view.alone, half, weight.as_signed())
    bits = weight.word_select(view.place, width)
    sign = weight[-1] if width == 1 else bits[-1]
    return Cat(bits, view.last & sign).as_signed()


def shifted_to_part(total: Value, part: ValueLike, width: int, *, paired: bool = False) -> Value:
    """Return ``total``, a sum of products, shifted left by ``width * part.place`` bits.

    The array divides each 8-bit weight into groups of ``width`` bits, and multiplies by one group
    at a time. ``total`` is the sum of the products with group ``part.place`` (:func:`part_layout`);
    group 0 has the lowest bits. For example, with ``width`` 2, group 3 has bits 6 and 7 of each
    weight, so the shift is 6 bits. The shifted sums of all groups add up to the sum for whole
    weights.

    If ``part.alone`` is 1, the weights have only four bits and are not divided. The result is then
    ``total`` without a shift.
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
