"""Rotary embedding, and products of two inputs: equations (9) and (10) of docs/numerics.md."""

from amaranth.hdl import Mux, Signal, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.arch.errors import InputError
from celosia.arch.latency import ROTARY_LATENCY
from celosia.hdl.arithmetic.multiplier import multiply
from celosia.hdl.component import Component

ROTARY_FRACTION = 15
"""Fraction bits of a cosine or sine (bits)."""
PRODUCT_FRACTION = 4
"""Fraction bits of a product (bits)."""
WIDE_BITS = 16
"""Width of an element of the input, and of a wide result (bits)."""
NARROW_FRACTION = 8
"""Additional bits rounded off for an 8-bit output, compared with a 16-bit one (bits)."""


class RotaryUnit(Component):
    """Rotates pairs of elements of ``y``, or multiplies ``y`` by ``r`` minus ``r_zero``.

    If ``times`` is 1, results are products, divided by ``2**4``. Otherwise, results are rotated
    pairs; ``pairs`` has the cosine and the sine (Q1.15) of each pair's angle. If ``wide`` is 0, all
    results are also divided by ``2**8``. ``o`` has the results, rounded to nearest, ties up, and
    clamped to 16 bits if ``wide`` is 1, else to ``operand_width`` bits. Latency is ``latency``
    cycles with ``en`` at 1. Raises :class:`InputError` if ``lanes`` is odd or not positive, or
    ``operand_width`` is not from 2 to 16.
    """

    latency = ROTARY_LATENCY

    def __init__(self, lanes: int, operand_width: int = 8):
        if lanes < 2 or lanes % 2:
            raise InputError(f"Rotary lanes must be even and positive, not {lanes!r}")
        if not 2 <= operand_width <= WIDE_BITS:
            raise InputError(
                f"Rotary operand_width must be from 2 to {WIDE_BITS} bits, not {operand_width!r}"
            )
        elements = data.ArrayLayout(signed(16), lanes)
        super().__init__(
            {
                "en": In(1),
                "times": In(1),
                "wide": In(1),
                "y": In(elements),
                "pairs": In(elements),
                "r": In(data.ArrayLayout(signed(8), lanes)),
                "r_zero": In(signed(8)),
                "o": Out(elements),
            }
        )

    def circuit(self, m):
        for first in range(0, self.lanes, 2):
            for lane, total in zip((first, first + 1), self._pair(m, first), strict=True):
                with m.If(self.en):
                    m.d.sync += self.o[lane].eq(self._round(m, lane, total))

    def _pair(self, m, first):
        """Return both lanes' results before rounding, three cycles later."""
        y_0, y_1 = self.y[first], self.y[first + 1]
        cosine, sine = self.pairs[first], self.pairs[first + 1]
        r_0, r_1 = self.r[first] - self.r_zero, self.r[first + 1] - self.r_zero

        # u = c (y0 + y1) - y1 (c + s), v = c (y0 + y1) + y0 (s - c); for products c is 0.
        factors = {
            "middle": (y_0 + y_1, Mux(self.times, 0, cosine)),
            "left": (Mux(self.times, y_0, y_1), Mux(self.times, -r_0, cosine + sine)),
            "right": (Mux(self.times, y_1, y_0), Mux(self.times, r_1, sine - cosine)),
        }
        middle, left, right = (
            multiply(m, f"{name}_{first}", a, b, en=self.en) for name, (a, b) in factors.items()
        )
        u, v = (Signal(signed(33), reset_less=True, name=f"{name}_{first}") for name in ("u", "v"))
        with m.If(self.en):
            m.d.sync += [u.eq(middle - left), v.eq(middle + right)]
        return u, v

    def _round(self, m, lane, total):
        """Return a result, rounded one cycle later and clamped."""
        # All fraction bits but the last are dropped first; the last one rounds.
        wide = Mux(self.times, total >> (PRODUCT_FRACTION - 1), total >> (ROTARY_FRACTION - 1))
        half = Signal(signed(22), name=f"half_{lane}")
        rounded = Signal(signed(22), name=f"rounded_{lane}", reset_less=True)
        low, high = Signal(signed(16), name=f"low_{lane}"), Signal(signed(16), name=f"high_{lane}")
        bound = Mux(self.wide, 1 << 15, 1 << (self.operand_width - 1))
        m.d.comb += [
            half.eq(Mux(self.wide, wide, wide >> NARROW_FRACTION)),
            low.eq(-bound),
            high.eq(bound - 1),
        ]
        with m.If(self.en):
            m.d.sync += rounded.eq((half + 1) >> 1)
        return Mux(rounded < low, low, Mux(rounded > high, high, rounded))
