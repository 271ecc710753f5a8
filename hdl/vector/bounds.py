"""Computes the smallest and largest value to which the vector engine clamps output elements."""

from amaranth.hdl import C, Mux, Signal, signed
from amaranth.lib.wiring import In, Out

from celosia.hdl.arithmetic.requantize import bounds_layout
from celosia.hdl.component import Component


class OutputBounds(Component):
    """Computes the bounds to which a command's output elements are clamped.

    The bounds are those of 16 bits if ``wide`` is 1, else of ``operand_width`` bits. If ``relu`` is
    1, the lower bound is at least the zero point ``zero``. ``o`` has the bounds and the zero point,
    two cycles after the inputs.
    """

    def __init__(self, *, operand_width: int):
        super().__init__(
            {"zero": In(signed(8)), "wide": In(1), "relu": In(1), "o": Out(bounds_layout())}
        )

    def circuit(self, m):
        zero, low, high = Signal(signed(8)), Signal(signed(16)), Signal(signed(16))
        half = 1 << self.operand_width - 1
        least = Mux(self.wide, C(-(1 << 15), signed(16)), C(-half, signed(16)))
        most = Mux(self.wide, C((1 << 15) - 1, signed(16)), C(half - 1, signed(16)))
        m.d.sync += [
            zero.eq(self.zero),
            low.eq(Mux(self.relu & (self.zero > least), self.zero, least)),
            high.eq(most),
            self.o.zero.eq(zero),
            self.o.low.eq(low),
            self.o.high.eq(high),
            self.o.above_low.eq(zero - low),
            self.o.above_high.eq(zero - high),
        ]
