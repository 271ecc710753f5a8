"""A 32x32-bit multiplier that adds the four products of 16-bit halves."""

from amaranth.hdl import Cat, Signal, signed
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component


class HalfProducts(Component):
    """The four products of the 16-bit halves of two stored words, ``a`` and ``b``.

    ``a_en`` stores ``a``, and ``b_en`` stores ``b``, for products from the next cycle on. Upper
    halves are signed, lower halves unsigned.

    - ``high``: the upper half of a times the upper half of b.
    - ``low``: the lower half of a times the lower half of b.
    - ``left``: the upper half of a times the lower half of b.
    - ``right``: the lower half of a times the upper half of b.
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
    """A multiplier whose ``p`` is the 64-bit product of the signed numbers ``a`` and ``b``.

    ``b_en`` loads ``b``. In the same or a later cycle, ``start`` loads ``a``; ``p`` is valid two
    cycles later, and ``busy`` is 1 in between. If ``rounds`` is 1 together with ``start``,
    ``2**30`` is added to the product ``p``.
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
