"""Requantization of 32-bit sums for one lane: equation (1) of docs/numerics.md."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.arch.errors import InputError
from celosia.arch.latency import requantizer_latency
from celosia.arch.rules import MULTIPLIER_WIDTHS
from celosia.hdl.arithmetic.multiplier import multiply
from celosia.hdl.component import Component
from celosia.hdl.stream.pipeline import data_register, delay

LOST_BITS = 8
"""Number of shifted-out bits that each zero test of :class:`RoundingShift` covers."""


class RoundingShift(Component):
    """Rounds ``x / 2**amount`` to nearest, ties away from zero, as the sum ``floor + up``.

    ``floor`` is the quotient rounded down, and ``up`` is 0 or 1. ``amount`` is from 0 to 31.
    Latency is one cycle with ``en`` at 1. Raises :class:`InputError` if ``width`` is not positive.
    """

    x: Signal
    """The signed number to divide; it has ``width`` bits."""

    latency = 1

    def __init__(self, width: int):
        if width < 1:
            raise InputError(f"Rounding shift's width must be a positive integer, not {width!r}")
        super().__init__(
            {
                "en": In(1),
                "x": In(signed(width)),
                "amount": In(5),
                "floor": Out(signed(width)),
                "up": Out(1),
            }
        )

    def circuit(self, m: Module) -> None:
        width = len(self.x)

        # The quotient's lowest bit here is the first bit shifted out. If it is 1 the quotient is
        # rounded up, except at a tie of a negative number, when all further bits are 0.
        quotient = Signal(signed(width + 1))
        m.d.comb += quotient.eq(Cat(C(0, 1), self.x).as_signed() >> self.amount)
        below = Cat(self.amount > place + 1 for place in range(width))
        lost = self.x & below

        floor = data_register(m, self.floor)
        half = Signal(reset_less=True)
        exact = Signal(-(-width // LOST_BITS), reset_less=True)
        m.d.comb += self.up.eq(half & ~exact.all())
        with m.If(self.en):
            m.d.sync += [
                floor.eq(quotient >> 1),
                half.eq(quotient[0]),
                exact.eq(self._exact(lost)),
            ]

    def _exact(self, lost: Value) -> Value:
        """Return for each group of lost bits whether none of them is 1 and ``x`` is negative."""
        return Cat(
            self.x[-1] & ~lost[low : low + LOST_BITS].any()
            for low in range(0, len(lost), LOST_BITS)
        )


def bounds_layout() -> data.StructLayout:
    """Return the layout of the zero point and the clamp bounds of a :class:`Requantizer`.

    ``zero`` is added before the result is clamped to ``low`` and ``high``. ``above_low`` is
    ``zero - low``, and ``above_high`` is ``zero - high``.
    """
    return data.StructLayout(
        {
            "zero": signed(16),
            "low": signed(16),
            "high": signed(16),
            "above_low": signed(17),
            "above_high": signed(17),
        }
    )


def bounds_of(zero: int, low: int, high: int) -> dict[str, int]:
    """Return the fields of :func:`bounds_layout` as a dictionary from name to value.

    ``zero`` is the zero point, and ``low`` and ``high`` are the bounds of the result.
    """
    flags = {"zero": zero, "low": low, "high": high}
    return flags | {"above_low": zero - low, "above_high": zero - high}


class Requantizer(Component):
    """Requantizes one 32-bit sum per cycle: equation (1) of docs/numerics.md.

    ``y`` is ``(x + bias) * multiplier * 2**(shift - 31)``, rounded as in TFLite, plus a zero point,
    and clamped. ``x``, ``bias`` and ``multiplier`` are signed 32-bit numbers; ``x + bias`` and its
    left shift wrap. ``shift`` is from -31 (to the right) to 30. ``bounds`` has the zero point and
    the bounds (:func:`bounds_layout`), ``bounds_delay`` cycles after the sum. Latency is
    ``latency`` cycles with ``en`` at 1. If ``sleep`` is true, the operands load only while ``take``
    is also 1. If ``multiplier_width`` is 16, the low 16 bits of ``multiplier`` count as 0; if it is
    neither 16 nor 32, :class:`InputError` is raised.
    """

    def __init__(
        self, multiplier_width: int = 32, registered: bool = False, *, sleep: bool = False
    ):
        if multiplier_width not in MULTIPLIER_WIDTHS:
            raise InputError(
                f"Requantizer multiplier_width must be {' or '.join(map(str, MULTIPLIER_WIDTHS))} "
                f"bits, not {multiplier_width!r}"
            )
        super().__init__(
            {
                "en": In(1),
                **({"take": In(1)} if sleep else {}),
                "x": In(signed(32)),
                "bias": In(signed(32)),
                "multiplier": In(signed(32)),
                "shift": In(signed(8)),
                "bounds": In(bounds_layout()),
                "y": Out(signed(16)),
            }
        )
        assert self.latency == 5 + RoundingShift.latency + registered

    @property
    def latency(self) -> int:
        """Cycles with ``en`` at 1 from a sum to its result."""
        return requantizer_latency(registered=self.registered)

    @property
    def bounds_delay(self) -> int:
        """Number of cycles with ``en`` at 1 from the input of a sum to the input of its ``bounds``.

        ``bounds`` has the zero point and the limits of the sum's requantized result.
        """
        return self.latency - 1

    def circuit(self, m: Module) -> None:
        """Build the pipeline; a signal's suffix is the number of its pipeline stage.

        The numbers do not count the additional register of a Requantizer with the argument
        ``registered``.
        """
        m.submodules.rounding = rounding = RoundingShift(33)

        take = self.en & self.take if self.sleep else self.en
        left = delay(m, Mux(self.shift < 0, 0, self.shift)[:5], 1, en=take)
        right = delay(m, Mux(self.shift < 0, -self.shift, 0)[:5], 1, en=take)

        biased_1 = Signal(32, reset_less=True)
        shifted_1 = Signal(32)
        doubled_4 = Signal(signed(33), reset_less=True)
        m.d.comb += shifted_1.eq(biased_1 << left)

        # Four products of halves, the lower half unsigned; two products if one half is 0.
        late = int(self.registered)
        shifted = delay(m, shifted_1, late, en=self.en)
        x_low, x_high = shifted[:16], shifted[16:].as_signed()
        held = self.multiplier[32 - self.multiplier_width :]
        multiplier_1 = delay(m, delay(m, held, 1, en=take), late, en=self.en)
        m_high = multiplier_1[-16:].as_signed()
        high_3 = multiply(m, "high", x_high, m_high, en=self.en)
        cross_3 = multiply(m, "cross_0", x_low, m_high, en=self.en)
        outer_3 = (high_3 << 16) + cross_3
        if self.multiplier_width == 32:
            m_low = multiplier_1[:16]
            low_3 = multiply(m, "low", x_low, m_low, en=self.en)
            cross_1_3 = multiply(m, "cross_1", x_high, m_low, en=self.en)
            outer_3 = Cat(low_3[16:], high_3).as_signed() + cross_3 + cross_1_3
        with m.If(take):
            m.d.sync += biased_1.eq(self.x + self.bias)
        with m.If(self.en):
            # 2**30 rounds the product; the result is its bits 63 to 31.
            m.d.sync += doubled_4.eq((outer_3 + (1 << 14)) >> 15)
        m.d.comb += [
            rounding.en.eq(self.en),
            rounding.x.eq(doubled_4),
            rounding.amount.eq(delay(m, right, 3 + late, en=self.en)),
        ]

        # The offset, and its distance beyond each bound, so that no comparison follows an addition.
        bounds, y = self.bounds, data_register(m, self.y)
        sum_5, less_5, more_5 = (
            rounding.floor + offset + rounding.up
            for offset in (bounds.zero, bounds.above_low, bounds.above_high)
        )
        with m.If(self.en):
            m.d.sync += y.eq(
                Mux(less_5 < 0, bounds.low, Mux(more_5 >= 0, bounds.high, sum_5[: len(y)]))
            )
