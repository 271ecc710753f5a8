"""Piecewise polynomials in fixed point."""

from amaranth.hdl import Cat, Module, Signal, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from arch.errors import InputError
from arch.functions import WIDE_FUNCTIONS, WIDE_WIDTH
from arch.polynomial import Polynomial, wide_polynomial
from hdl.arithmetic.multiplier import multiply
from hdl.component import Component

POLYNOMIAL_LATENCY = 6
"""Enabled cycles from an operand to its result."""


class PiecewisePolynomial(Component):
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

        t = [Signal(t_width, name=f"t_{i}") for i in range(3)]
        c0 = [Signal(signed(c0_width), name=f"c0_{i}") for i in range(4)]
        c1 = [Signal(signed(c1_width), name=f"c1_{i}") for i in range(2)]
        slope = Signal(signed(polynomial.slope_width))
        # The multipliers' registers stand behind the memory, which answers late, and the sum.
        bend = multiply(m, "bend", read.data.c2, t[0], en=self.en)
        rise = multiply(m, "rise", slope, t[2], en=self.en)
        m.d.comb += slope.eq(c1[1] + (bend >> t_width))
        total = Signal(signed(polynomial.sum_width))
        with m.If(self.en):
            m.d.sync += [
                t[0].eq(self.x[:t_width]),
                Cat(t[1:]).eq(Cat(t[:-1])),
                c0[0].eq(read.data.c0),
                Cat(c0[1:]).eq(Cat(c0[:-1])),
                c1[0].eq(read.data.c1),
                c1[1].eq(c1[0]),
                total.eq(c0[3] + (rise >> t_width)),
            ]
        m.d.comb += self.y.eq(total >> polynomial.guard_width)
        return m


class FunctionUnit(Component):
    """A function of 16-bit fixed-point operands, ``lanes`` of them in every cycle.

    ``function`` is a key of :data:`arch.functions.WIDE_FUNCTIONS`, which states the formats; for
    each operand, the result is within 1 of the last bit of the saturated exact one.
    Latency is ``POLYNOMIAL_LATENCY`` cycles, throughput one payload per cycle.
    Raises :class:`InputError` where ``function`` is unknown or ``lanes`` not positive.
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self, function: str, lanes: int):
        if function not in WIDE_FUNCTIONS:
            raise InputError(
                f"Unknown 16-bit function {function!r}; known are {', '.join(WIDE_FUNCTIONS)}"
            )
        if lanes < 1:
            raise InputError(f"Function unit lanes must be a positive integer, not {lanes!r}")
        self.polynomial = wide_polynomial(WIDE_FUNCTIONS[function])
        self.lanes = lanes
        payload = data.ArrayLayout(signed(WIDE_WIDTH), lanes)
        super().__init__({"i": In(stream.Signature(payload)), "o": Out(stream.Signature(payload))})

    def elaborate(self, platform):
        """Place one polynomial per lane; all hold still while a result waits."""
        m = Module()
        en = Signal()
        valid = Signal(POLYNOMIAL_LATENCY)
        with m.If(en):
            m.d.sync += valid.eq(Cat(self.i.valid, valid))
        m.d.comb += [
            en.eq(~self.o.valid | self.o.ready),
            self.i.ready.eq(en),
            self.o.valid.eq(valid[-1]),
        ]
        for lane in range(self.lanes):
            m.submodules[f"lane_{lane}"] = polynomial = PiecewisePolynomial(self.polynomial)
            m.d.comb += [
                polynomial.en.eq(en),
                polynomial.x.eq(self.i.payload[lane]),
                self.o.payload[lane].eq(polynomial.y),
            ]
        return m
