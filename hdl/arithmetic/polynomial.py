"""Piecewise polynomials in fixed point."""

from amaranth.hdl import Cat, Module, Signal, Value, signed, unsigned
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from celosia.arch.polynomial import Polynomial
from celosia.hdl.arithmetic.multiplier import multiply
from celosia.hdl.component import Component


def horner(
    m: Module,
    coefficients: tuple[Value, Value, Value],
    t: Value,
    *,
    slope_width: int,
    sum_width: int,
    en: Value,
) -> Signal:
    """Place a pipeline in ``m`` for ``c0 + ((c1 + (c2 * t >> len(t))) * t >> len(t))``.

    The result is the pipeline's signed output. It follows ``coefficients`` (c0, c1, c2) and the
    unsigned ``t`` by ``POLYNOMIAL_LATENCY - 1`` cycles with ``en`` at 1. ``slope_width`` and
    ``sum_width`` are the widths (bits) of inner and outer sum.
    """
    c0_0, c1_0, c2_0 = coefficients
    t_width = len(t)
    ts = [Signal(t_width, name=f"t_{i}", reset_less=True) for i in (1, 2)]
    c0 = [Signal(c0_0.shape(), name=f"c0_{i}", reset_less=True) for i in range(4)]
    c1 = [Signal(c1_0.shape(), name=f"c1_{i}", reset_less=True) for i in range(2)]
    slope = Signal(signed(slope_width))
    # The multipliers' operand registers follow the slow memory output and the sum.
    bend = multiply(m, "bend", c2_0, t, en=en)
    rise = multiply(m, "rise", slope, ts[1], en=en)
    m.d.comb += slope.eq(c1[1] + (bend >> t_width))
    total = Signal(signed(sum_width), reset_less=True)
    with m.If(en):
        m.d.sync += [
            Cat(ts).eq(Cat(t, ts[:-1])),
            c0[0].eq(c0_0),
            Cat(c0[1:]).eq(Cat(c0[:-1])),
            c1[0].eq(c1_0),
            c1[1].eq(c1[0]),
            total.eq(c0[3] + (rise >> t_width)),
        ]
    return total


class PiecewisePolynomial(Component):
    """A polynomial of degree 2 whose coefficients depend on the segment of the operand.

    The upper bits of ``x`` are a segment's number, the lower bits the position in it. The value
    ``y`` follows by ``POLYNOMIAL_LATENCY`` cycles with ``en`` at 1. Throughput is one value per
    such cycle.
    """

    def __init__(self, polynomial: Polynomial):
        super().__init__(
            {
                "en": In(1),
                "x": In(unsigned(polynomial.x_width)),
                "y": Out(signed(polynomial.y_width)),
            }
        )

    def circuit(self, m):
        """Place the coefficient memory and the two multipliers of Horner's rule."""
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

        t = Signal(t_width, reset_less=True)
        with m.If(self.en):
            m.d.sync += t.eq(self.x[:t_width])
        total = horner(
            m,
            (read.data.c0, read.data.c1, read.data.c2),
            t,
            slope_width=polynomial.slope_width,
            sum_width=polynomial.sum_width,
            en=self.en,
        )
        m.d.comb += self.y.eq(total >> polynomial.guard_width)
