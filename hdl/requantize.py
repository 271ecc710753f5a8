"""Requantization of 32-bit sums, equation (1), one lane."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.multiplier import multiply
from hdl.pipeline import delay

LOST_BITS = 8
"""Bits below a quotient that are looked at together (bits)."""


class RoundingShift(wiring.Component):
    """Right shift that rounds to nearest, ties away from zero, and then adds an offset.

    ``y = round(x / 2**amount) + offset`` as gemmlowp's RoundingDivideByPOT rounds; the output is
    wide enough for every sum. ``offset`` is taken together with ``x``.

    Latency is ``latency`` cycles with ``en`` at 1, one result per cycle; everything holds still
    while ``en`` is 0.

    ``width`` and ``offset_width`` are the widths of the signed ``x`` and ``offset`` (bits);
    ``amount`` is from 0 to 31.

    Raises :class:`ValueError` where a width is not a positive integer.
    """

    latency = 2

    def __init__(self, width: int, *, offset_width: int):
        if width < 1 or offset_width < 1:
            raise ValueError(
                f"Rounding shift's widths must be positive integers, not {width!r} and "
                f"{offset_width!r}"
            )
        super().__init__(
            {
                "en": In(1),
                "x": In(signed(width)),
                "amount": In(5),
                "offset": In(signed(offset_width)),
                "y": Out(signed(max(width, offset_width) + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Shift and find out whether to round up; then add."""
        m = Module()
        width = len(self.x)

        # The quotient's lowest bit here is the first bit that is shifted out. Where it is 1 the
        # quotient is rounded up, except at a tie of a negative number: nothing but zeros follows.
        quotient = Signal(signed(width + 1))
        m.d.comb += quotient.eq(Cat(C(0, 1), self.x).as_signed() >> self.amount)
        below = Cat(self.amount > place + 1 for place in range(width))
        lost = self.x & below

        shifted = Signal(signed(width))
        half, exact = Signal(), Signal(-(-width // LOST_BITS))
        offset = Signal.like(self.offset)
        up = half & ~exact.all()
        with m.If(self.en):
            m.d.sync += [
                shifted.eq(quotient >> 1),
                half.eq(quotient[0]),
                exact.eq(self._exact(lost)),
                offset.eq(self.offset),
                self.y.eq(shifted + offset + up),
            ]
        return m

    def _exact(self, lost: Value) -> Value:
        """Return a bit each for some of the lost bits: none of them is 1 and ``x`` is negative."""
        return Cat(
            self.x[-1] & ~lost[low : low + LOST_BITS].any()
            for low in range(0, len(lost), LOST_BITS)
        )


class Requantizer(wiring.Component):
    """Requantize one 32-bit sum per cycle, equation (1).

    Input: ``x``, ``bias`` and ``multiplier`` of 32 bits (of either sign), ``shift`` from -31 to 30,
    the zero point ``zero``, and the clamp's bounds ``low`` and ``high`` with ``low <= high``, which
    make the result 8 or 16 bits wide. All are taken together; each may change every cycle.
    Output: ``y`` between the bounds.

    ``x + bias`` and its left shift wrap at 32 bits, nothing after them does. Rounding is TFLite's
    double rounding: the doubled high product rounds ties up, the right shift rounds ties away from
    zero.

    Latency is ``latency`` cycles with ``en`` at 1, one result per cycle; everything holds still
    while ``en`` is 0. Four 17x17-bit multiplications.
    """

    latency = 6 + RoundingShift.latency

    en: In(1)
    x: In(signed(32))
    bias: In(signed(32))
    multiplier: In(signed(32))
    shift: In(signed(8))
    zero: In(signed(16))
    low: In(signed(16))
    high: In(signed(16))
    y: Out(signed(16))

    def elaborate(self, platform: object) -> Module:
        """One stage per operation; signal names end in the stage that writes them."""
        m = Module()
        m.submodules.rounding = rounding = RoundingShift(33, offset_width=16)

        left = Mux(self.shift < 0, 0, self.shift)[:5]
        right = Mux(self.shift < 0, -self.shift, 0)[:5]

        biased_1 = Signal(32, reset_less=True)
        shifted_1 = Signal(32)
        cross_4 = Signal(signed(34), reset_less=True)
        outer_4 = Signal(signed(65), reset_less=True)
        doubled_5 = Signal(signed(33), reset_less=True)
        m.d.comb += shifted_1.eq(biased_1 << delay(m, left, 1, en=self.en))

        # Four products of halves, the lower half taken as unsigned.
        x_low, x_high = shifted_1[:16], shifted_1[16:].as_signed()
        multiplier_1 = delay(m, self.multiplier, 1, en=self.en)
        m_low, m_high = multiplier_1[:16], multiplier_1[16:].as_signed()
        low_3 = multiply(m, "low", x_low, m_low, en=self.en)
        cross_3 = [
            multiply(m, "cross_0", x_low, m_high, en=self.en),
            multiply(m, "cross_1", x_high, m_low, en=self.en),
        ]
        high_3 = multiply(m, "high", x_high, m_high, en=self.en)
        with m.If(self.en):
            m.d.sync += [
                biased_1.eq(self.x + self.bias),
                # 2**30 rounds the product, of which bits 63 to 31 are wanted.
                cross_4.eq(cross_3[0] + cross_3[1]),
                outer_4.eq(Cat(low_3, high_3).as_signed() + (1 << 30)),
                doubled_5.eq(((outer_4 >> 16) + cross_4) >> 15),
            ]
        m.d.comb += [
            rounding.en.eq(self.en),
            rounding.x.eq(doubled_5),
            rounding.amount.eq(delay(m, right, 5, en=self.en)),
            rounding.offset.eq(delay(m, self.zero, 5, en=self.en)),
        ]

        y_7 = rounding.y
        low_7 = delay(m, self.low, 7, en=self.en)
        high_7 = delay(m, self.high, 7, en=self.en)
        with m.If(self.en):
            m.d.sync += self.y.eq(Mux(y_7 < low_7, low_7, Mux(y_7 > high_7, high_7, y_7)))
        return m
