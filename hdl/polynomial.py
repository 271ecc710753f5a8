"""Piecewise polynomials in fixed point."""

from amaranth.hdl import Cat, Module, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from arch.polynomial import Polynomial

POLYNOMIAL_LATENCY = 6
"""Enabled cycles from an operand to its result."""


class PiecewisePolynomial(wiring.Component):
    """A polynomial of degree 2 whose coefficients depend on the operand's segment.

    ``y`` is :class:`Polynomial`'s result for the raw bits ``x``, bit for bit.

    Latency is ``POLYNOMIAL_LATENCY`` cycles in which ``en`` is 1 (the pipeline holds still in all
    others), throughput one operand per such cycle. The products have registers on both sides.
    """

    def __init__(self, polynomial: Polynomial):
        self.polynomial = polynomial
        super().__init__(
            {
                "en": In(1),
                "x": In(unsigned(polynomial.x_width)),
                "y": Out(signed(polynomial.y_width)),
            }
        )

    def elaborate(self, platform):
        """Place the coefficient memory and the two multipliers of Horner's rule."""
        m = Module()
        polynomial = self.polynomial
        t_width = polynomial.t_width
        c0_width, c1_width, c2_width = polynomial.widths
        row = data.StructLayout(
            {"c0": signed(c0_width), "c1": signed(c1_width), "c2": signed(c2_width)}
        )
        m.submodules.coefficients = coefficients = Memory(
            shape=row,
            depth=polynomial.segments,
            init=[{"c0": c0, "c1": c1, "c2": c2} for c0, c1, c2 in polynomial.coefficients],
        )
        read = coefficients.read_port()
        m.d.comb += [read.en.eq(self.en), read.addr.eq(self.x[t_width:])]

        t = [Signal(t_width, name=f"t_{i}") for i in range(4)]
        c0 = [Signal(signed(c0_width), name=f"c0_{i}") for i in range(4)]
        c1 = [Signal(signed(c1_width), name=f"c1_{i}") for i in range(2)]
        c2 = Signal(signed(c2_width))
        bend = Signal(signed(c2_width + t_width))
        slope = Signal(signed(polynomial.slope_width))
        rise = Signal(signed(polynomial.slope_width + t_width))
        total = Signal(signed(polynomial.sum_width))
        with m.If(self.en):
            m.d.sync += [
                # A register after the memory's own: block RAM answers late.
                t[0].eq(self.x[:t_width]),
                Cat(t[1:]).eq(Cat(t[:-1])),
                c0[0].eq(read.data.c0),
                Cat(c0[1:]).eq(Cat(c0[:-1])),
                c1[0].eq(read.data.c1),
                c1[1].eq(c1[0]),
                c2.eq(read.data.c2),
                bend.eq(c2 * t[1]),
                slope.eq(c1[1] + (bend >> t_width)),
                rise.eq(slope * t[3]),
                total.eq(c0[3] + (rise >> t_width)),
            ]
        m.d.comb += self.y.eq(total >> polynomial.guard_width)
        return m
