"""A 32x32-bit multiplier that adds the four products of 16-bit halves."""

from amaranth.hdl import Cat, Signal, signed
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component


class HalfProducts(Component):
    """The four products of the 16-bit halves of two 32-bit words, which are stored in registers.

    ``a`` is stored in cycles with ``a_en`` at 1, ``b`` in cycles with ``b_en`` at 1. From the next
    cycle on, the outputs are products of the stored words. ``high`` is the product of the upper
    halves, both signed. ``low`` is the product of the lower halves, both unsigned. ``left`` is the
    signed product of a's upper half (signed) and b's lower half (unsigned). ``right`` is the signed
    product of a's lower half (unsigned) and b's upper half (signed). The registers have no reset. A
    build can replace this module by a module with hardware multipliers.
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

    def circuit(self, m):
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


class WideMultiplier(Component):
    """A multiplier whose ``p`` is the 64-bit product of signed ``a`` and ``b``.

    A cycle with ``start`` at 1 loads ``a`` and begins a product. A cycle with ``b_en`` at 1 loads
    ``b``; it must be the cycle of ``start`` or an earlier cycle. If ``rounds`` is 1 in the cycle of
    ``start``, ``p`` is the product plus ``2**30``. ``busy`` is 1 in the cycle after ``start``.
    ``p`` is valid from two cycles after ``start`` until the next product replaces it.
    """

    a: In(32)
    b: In(32)
    rounds: In(1)
    start: In(1)
    b_en: In(1)
    busy: Out(1)
    p: Out(64)

    def circuit(self, m):
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
