"""The requantizer of the microcoded machine: it works beside the core."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component

_SUM_WIDTH = 18
"""Width of a rounded value: one without room in it is beyond INT16 bounds with any zero point."""


class MicroRequantizer(Component):
    """Equations (1) and (2) of one value after the other, but for tables and residuals.

    ``begin`` says that in the next cycle ``value`` is there, and ``word`` its bias, in the one
    behind ``word`` is the multiplier, which the wide multiplier takes as its ``b`` (``b_en``), and
    then the shift. In the first cycle with ``multiply`` the wide multiplier takes ``product_a``,
    and two cycles later ``p`` is the product, with ``2**30``. Before it, a left shift takes a cycle
    a bit, and one; until the product begins ``blocked`` is 1 once the shift is there, and neither a
    value nor another's product may begin. ``ready`` is 1 from two cycles
    behind the product until ``take``, and ``result`` the rounded value with the zero point, between
    the bounds. In cycles with ``limit`` ``bounds`` is the upper one above the lower one, and
    ``zero`` the zero point. Nothing moves in cycles with ``hold``.
    """

    value: In(32)
    word: In(32)
    begin: In(1)
    bounds: In(32)
    zero: In(signed(16))
    limit: In(1)
    take: In(1)
    hold: In(1)
    p: In(64)
    b_en: Out(1)
    multiply: Out(1)
    product_a: Out(32)
    blocked: Out(1)
    ready: Out(1)
    result: Out(signed(16))

    def elaborate(self, _platform):
        m = Module()
        adds, scales, shifts, busy, rounds, ends = (
            Signal(name=name) for name in ("adds", "scales", "shifts", "busy", "rounds", "ends")
        )
        x, right, left, shifting = Signal(32), Signal(5), Signal(5), Signal()
        negative, some = self.word[31], self.word.any()
        m.d.comb += [
            self.b_en.eq(scales & ~self.hold),
            self.product_a.eq(x),
            self.multiply.eq(
                ((shifts & (negative | ~some)) | (shifting & ~left.any())) & ~self.hold
            ),
            self.blocked.eq(shifts | shifting),
        ]
        with m.If(~self.hold):
            m.d.sync += [
                adds.eq(self.begin),
                scales.eq(adds),
                shifts.eq(scales),
                busy.eq(self.multiply),
                rounds.eq(busy),
                ends.eq(rounds),
            ]
            with m.If(adds):
                m.d.sync += x.eq(self.value + self.word)
            with m.If(shifting):
                m.d.sync += [left.eq(left - 1), shifting.eq(left.any())]
                with m.If(left.any()):
                    m.d.sync += x.eq(x << 1)
            with m.If(shifts):
                m.d.sync += [
                    right.eq(Mux(negative, -self.word[:5], 0)),
                    left.eq(self.word[:5]),
                    shifting.eq(~negative & some),
                ]
            self._round(m, right, rounds, ends)
        return m

    def _round(self, m, right, rounds, ends):
        """Shift the product's upper part, round it, and clamp it with the zero point."""
        upper = self.p[31:].as_signed()
        below = Signal(signed(34))
        shifted = Signal(signed(35))
        # One less of what is negative, so that halves go away from 0; then half of twice as much.
        m.d.comb += below.eq(upper - (upper[-1] & right.any()))
        with m.If(rounds):
            m.d.sync += shifted.eq(Cat(Const(0, 1), below).as_signed() >> right)
        # Beyond the width that counts a value is beyond its bounds, whatever rounding does.
        high = shifted[_SUM_WIDTH:]
        beyond = high.any() & ~high.all()
        rounded = Signal(signed(_SUM_WIDTH + 1))
        m.d.comb += rounded.eq((shifted[: _SUM_WIDTH + 1].as_signed() + 1) >> 1)
        low, top, zero = (Signal(signed(16), name=name) for name in ("low", "top", "zero_point"))
        with m.If(self.limit):
            m.d.sync += [Cat(low, top).eq(self.bounds), zero.eq(self.zero)]
        # Bounds without the zero point, so that it is added while a value is compared.
        low_bound, top_bound = (
            Signal(signed(17), name=name) for name in ("low_bound", "top_bound")
        )
        m.d.sync += [low_bound.eq(low - zero), top_bound.eq(top - zero)]
        with m.If(self.take):
            m.d.sync += self.ready.eq(0)
        with m.If(ends):
            m.d.sync += [self.ready.eq(1), self.result.eq(rounded + zero)]
            with m.If(Mux(beyond, shifted[-1], rounded < low_bound)):
                m.d.sync += self.result.eq(low)
            with m.Elif(Mux(beyond, 1, rounded > top_bound)):
                m.d.sync += self.result.eq(top)
