"""Multiplication by parts of weights (groups of bits): equation (14) of docs/formats.md."""

from amaranth.hdl import Cat, Const, Mux, Value, ValueLike, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.arch.formats import OPERAND_BITS, PAIRED_BITS
from celosia.hdl.component import Component
from celosia.hdl.stream.fields import present
from celosia.hdl.stream.pipeline import delay


def part_layout(width: int, *, paired: bool = False) -> data.StructLayout:
    """Return the layout of the fields that select a part of each weight: a group of ``width`` bits.

    ``place`` is the number of the part; part 0 has the lowest bits. ``last`` is 1 for the part with
    the highest bits, which is signed. If ``paired`` is true, each byte of a weight slot (storage
    for one tile) can have either one 8-bit weight or two 4-bit weights. There is then a third
    field, ``alone``: if it is 1, bytes have two weights, and ``place`` is the index (0 or 1) of one
    of them. The layout has no bits if weights have only one part and ``paired`` is false.
    """
    places = OPERAND_BITS // (min(width, PAIRED_BITS) if paired else width)
    alone = present(alone=paired)
    return data.StructLayout({"place": range(places), "last": int(places > 1), **alone})


def part_of(weight: Value, part: ValueLike, width: int, *, paired: bool = False) -> Value:
    """Return a group of bits of a stored weight, as a signed operand of a multiplier.

    ``weight`` is a byte of a weight slot (storage for one tile). ``part`` (:func:`part_layout`)
    selects the bits. If ``part.alone`` is 0, the byte is one weight, and the result is a group of
    ``width`` bits of this weight; if ``width`` is 8, it is the whole weight. If ``part.alone`` is
    1, the byte has two 4-bit weights, and the result is the weight with index ``part.place``.
    """
    view = data.View(part_layout(width, paired=paired), part)
    if width == OPERAND_BITS:
        half = weight.word_select(view.place, PAIRED_BITS).as_signed()
        return Mux(view.alone, half, weight.as_signed())
    bits = weight.word_select(view.place, width)
    sign = weight[-1] if width == 1 else bits[-1]
    return Cat(bits, view.last & sign).as_signed()


def at_place(total: Value, part: ValueLike, width: int, *, paired: bool = False) -> Value:
    """Return a sum of products with one part of each weight, multiplied by the part's place value.

    ``total`` is the sum. A part is a group of ``width`` bits of a weight, and ``part.place`` is its
    number (:func:`part_layout`). The sum is shifted left by the number of weight bits below the
    part. If ``part.alone`` is 1, the part is a whole 4-bit weight, and the sum is not shifted.
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
