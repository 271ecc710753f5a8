"""The requantizer of the microcoded machine, which works in parallel with the core."""

from amaranth.hdl import Cat, Const, Mux, Signal, signed
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component

_SUM_WIDTH = 18
"""Width of a rounded value (bits); a value that needs more exceeds INT16 with any zero point."""


class MicroRequantizer(Component):
    """Requantizes one value after another: equation (1) of docs/numerics.md.

    The core connects the unit to a :class:`WideMultiplier`. In cycle t, the core sets ``begin`` to
    1. Cycle u is t + 4 + s for a left shift of s bits, otherwise t + 3.

    - t + 1: the core drives ``value``, and ``word`` with the bias.
    - t + 2: the core drives ``word`` with the multiplier; ``b_en`` loads ``word`` in the wide
      multiplier.
    - t + 3: the core drives ``word`` with the shift, positive to the left.
    - u: ``multiply`` starts the multiplication by ``product_a``.
    - u + 2: the wide multiplier drives ``p`` with the product plus ``2**30``.
    - u + 4: ``ready`` becomes 1, and ``result`` is valid.
    """

    value: In(32)
    word: In(32)
    begin: In(1)
    bounds: In(32)
    """Upper bound in the upper half, lower bound in the lower half."""
    zero: In(signed(16))
    """Zero point, added before the result is clamped."""
    limit: In(1)
    """1 to load ``bounds`` and ``zero``."""
    take: In(1)
    """1 to set ``ready`` to 0."""
    hold: In(1)
    """1 to hold all registers."""
    p: In(64)
    b_en: Out(1)
    multiply: Out(1)
    product_a: Out(32)
    blocked: Out(1)
    """1 from t + 3 to u: the core must not set ``begin``, nor use the wide multiplier."""
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
