"""A multiplier of 32 bits, of four products of 16."""

from amaranth.hdl import Cat, Module, Signal, signed
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component


class HalfProducts(Component):
    """The four products of the halves of two signed words of 32 bits, which are held.

    ``a`` is taken in cycles with ``a_en``, ``b`` with ``b_en``. From the next one on ``high`` is
    the product of the upper halves, which are signed, ``low`` that of the lower ones, which are
    not; ``left`` that of a's upper and b's lower half, ``right`` of the others. No register follows
    the reset.

    A module of its own for the same reason as ``celosia.hdl.arithmetic.multiplier.Multiplier``.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "a": In(32),
                "b": In(32),
                "a_en": In(1),
                "b_en": In(1),
                "high": Out(signed(32)),
                "left": Out(signed(32)),
                "right": Out(signed(32)),
                "low": Out(32),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        a, b = (Signal(32, name=f"{name}_held", reset_less=True) for name in "ab")
        with m.If(self.a_en):
            m.d.sync += a.eq(self.a)
        with m.If(self.b_en):
            m.d.sync += b.eq(self.b)
        m.d.comb += [
            self.high.eq(a[16:].as_signed() * b[16:].as_signed()),
            self.left.eq(a[16:].as_signed() * b[:16]),
            self.right.eq(a[:16] * b[16:].as_signed()),
            self.low.eq(a[:16] * b[:16]),
        ]
        return m


class WideMultiplier(Component):
    """The product of ``a`` and ``b``, both signed; with ``rounds``, plus ``2**30``.

    ``start`` takes ``a``, and ``b_en``, then or before, ``b``; ``busy`` is 1 in the cycle behind
    the start, and from the next one on ``p`` is the product, all 64 bits of it, until the next.
    """

    a: In(32)
    b: In(32)
    rounds: In(1)
    start: In(1)
    b_en: In(1)
    busy: Out(1)
    p: Out(64)

    def elaborate(self, _platform):
        m = Module()
        m.submodules.halves = halves = HalfProducts()
        rounds = Signal()
        m.d.comb += [
            halves.a.eq(self.a),
            halves.b.eq(self.b),
            halves.a_en.eq(self.start),
            halves.b_en.eq(self.b_en),
        ]
        m.d.sync += self.busy.eq(self.start)
        with m.If(self.start):
            m.d.sync += rounds.eq(self.rounds)
        middle = Signal(signed(34))
        m.d.comb += middle.eq(halves.left + halves.right + (rounds << 14))
        with m.If(self.busy):
            upper = Cat(halves.low[16:], halves.high).as_signed() + middle
            m.d.sync += self.p.eq(Cat(halves.low[:16], upper[:48]))
        return m
