"""The requantizer of the microcoded machine, which works in parallel with the core."""

from amaranth.hdl import Cat, Const, Mux, Signal, signed
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component

_SUM_WIDTH = 18
"""Width of a rounded value (bits); a value that needs more exceeds INT16 with any zero point."""


class MicroRequantizer(Component):
    """Requantizes one value after another: equations (1) and (2) of docs/numerics.md.

    The result is ``(value + bias) * multiplier * 2**(shift - 31)``, rounded, plus the zero point,
    and clamped to two bounds. The unit leaves out two steps of equation (2): the activation table
    and the residual. The unit has no multiplier. The core must connect it to the core's
    :class:`WideMultiplier`, and drive the inputs ``value`` and ``word``. The core begins with a
    cycle t in which it sets ``begin`` to 1:

    - Cycle t + 1: the core drives ``value``, and drives ``word`` with the bias.
    - Cycle t + 2: the core drives ``word`` with the multiplier. ``b_en`` is 1, and the wide
      multiplier loads ``word`` as its operand ``b``.
    - Cycle t + 3: the core drives ``word`` with the shift. A positive shift is to the left.
    - Cycle u: ``product_a`` is value plus bias, shifted left by a positive shift. ``multiply`` is
      1, and the wide multiplier loads ``product_a`` as its operand ``a``.
    - Cycle u + 2: the wide multiplier drives ``p`` with the product plus ``2**30``, for rounding.
    - Cycle u + 4: ``ready`` becomes 1, and ``result`` has the requantized value.

    For a left shift of s bits, u is t + 4 + s. Without a left shift, u is t + 3. ``blocked`` is 1
    from cycle t + 3 to cycle u; the core must then not set ``begin``, and not use the wide
    multiplier.

    ``ready`` is 1 until a cycle with ``take`` at 1. A cycle with ``limit`` at 1 loads the bounds
    from ``bounds`` and the zero point from ``zero``. The upper half of ``bounds`` is the upper
    bound, and the lower half is the lower bound. All registers hold in cycles with ``hold`` at 1.
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

    def circuit(self, m):
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

    def _round(self, m, right, rounds, ends):
        """Shift the product's upper part, round it, and clamp it with the zero point."""
        upper = self.p[31:].as_signed()
        below = Signal(signed(34))
        shifted = Signal(signed(35))
        # Minus one if negative, so that ties round away from 0; then shift one bit less and halve.
        m.d.comb += below.eq(upper - (upper[-1] & right.any()))
        with m.If(rounds):
            m.d.sync += shifted.eq(Cat(Const(0, 1), below).as_signed() >> right)
        # A value that exceeds the width exceeds its bounds, for any rounding.
        high = shifted[_SUM_WIDTH:]
        beyond = high.any() & ~high.all()
        rounded = Signal(signed(_SUM_WIDTH + 1))
        m.d.comb += rounded.eq((shifted[: _SUM_WIDTH + 1].as_signed() + 1) >> 1)
        low, top, zero = (Signal(signed(16), name=name) for name in ("low", "top", "zero_point"))
        with m.If(self.limit):
            m.d.sync += [Cat(low, top).eq(self.bounds), zero.eq(self.zero)]
        # Bounds minus the zero point, so that it is added while a value is compared.
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
