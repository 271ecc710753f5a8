# amaranth: UnusedElaboratable=no
"""Reciprocal and reciprocal square root of an integer, pipelined."""

from amaranth.hdl import Cat, Const, Mux, Signal, signed, unsigned
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from celosia.arch.errors import InputError
from celosia.arch.latency import POLYNOMIAL_LATENCY
from celosia.arch.polynomial import (
    FRACTION_WIDTH,
    MANTISSA_WIDTH,
    Polynomial,
    reciprocal_polynomial,
    rsqrt_polynomial,
)
from celosia.hdl.arithmetic.polynomial import PiecewisePolynomial
from celosia.hdl.component import Component

EXPONENT_WIDTH = 8
"""Width of ``exponent``, which is signed (bits)."""
MAX_WIDTH = 64
"""Largest width of the operand ``x`` (bits)."""


class Normalizer(Component):
    """Finds the leading one of an integer ``x``, and the bits below it.

    ``exponent`` is the position of the leading one, and ``fraction`` the next ``FRACTION_WIDTH``
    bits. If ``x`` is 0, ``nonzero`` is 0, and these outputs are undefined. Raises
    :class:`InputError` if ``width`` is not from 1 to 64.
    """

    en: Signal
    """1 to advance the pipeline, 0 to hold it."""

    def __init__(self, width: int):
        if not 1 <= width <= MAX_WIDTH:
            raise InputError(f"Operand width must be from 1 to {MAX_WIDTH} bits, not {width!r}")
        super().__init__(
            {
                "en": In(1),
                "x": In(unsigned(width)),
                "fraction": Out(unsigned(FRACTION_WIDTH)),
                "exponent": Out(unsigned(max(1, ceil_log2(width)))),
                "nonzero": Out(1),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles with ``en`` at 1 from an operand ``x`` to its ``exponent`` and ``fraction``."""
        return -(-ceil_log2(self.width) // 2)

    def circuit(self, m):
        """Shift ``x`` left until its top bit is 1, and count the shifts to compute ``exponent``.

        There is a shifter for each power of two 2**i, in the order of decreasing i. A shifter
        shifts its operand left by 2**i if the top 2**i bits of the operand are 0. Each pipeline
        stage has two shifters.
        """
        left, zeros = self.x, Const(0, len(self.exponent))
        for level in reversed(range(self.latency)):
            step = 1 << 2 * level
            shifted = Signal(self.width, name=f"left_{level}", reset_less=True)
            counted = Signal.like(self.exponent, name=f"zeros_{level}", reset_less=True)
            far = self._lacks(left, 0, 2 * step)
            # The second step examines the shifted and the unshifted word at the same time.
            near = Mux(far, self._lacks(left, 2 * step, step), self._lacks(left, 0, step))
            moved = Mux(far, left << 2 * step, left)
            with m.If(self.en):
                m.d.sync += [
                    shifted.eq(Mux(near, moved << step, moved)),
                    counted.eq(zeros + (Cat(near, far) << 2 * level)),
                ]
            left, zeros = shifted, counted
        m.d.comb += [
            self.fraction.eq(Cat(Const(0, FRACTION_WIDTH), left[:-1])[-FRACTION_WIDTH:]),
            self.exponent.eq(self.width - 1 - zeros),
            self.nonzero.eq(left[-1]),
        ]

    def _lacks(self, x, skipped, count):
        """Return whether ``count`` bits below the uppermost ``skipped`` are all 0 or absent."""
        end = max(self.width - skipped, 0)
        return ~x[max(end - count, 0) : end].any()


class _Inverse(Component):
    """The pipeline of both functions: normalize, evaluate, adjust the mantissa."""

    en: Signal
    """1 to advance the pipeline, 0 to hold it."""
    valid_i: Signal
    """1 if ``x`` is an operand."""
    x: Signal
    """The operand, an unsigned integer."""
    valid_o: Signal
    """``valid_i``, after ``latency`` cycles with ``en`` at 1."""
    mantissa: Signal
    """Mantissa of the result; 0 if ``x`` was 0."""
    exponent: Signal
    """Exponent of the result, a power of two; 0 if ``x`` was 0."""

    def __init__(self, width: int, polynomial: Polynomial, root: int):
        self.normalizer = Normalizer(width)
        self.polynomial = PiecewisePolynomial(polynomial)
        super().__init__(
            {
                "en": In(1),
                "valid_i": In(1),
                "x": In(unsigned(width)),
                "valid_o": Out(1),
                "mantissa": Out(unsigned(MANTISSA_WIDTH)),
                "exponent": Out(signed(EXPONENT_WIDTH)),
            }
        )

    @property
    def latency(self) -> int:
        """Enabled cycles from operand to result."""
        return self.normalizer.latency + POLYNOMIAL_LATENCY

    def circuit(self, m):
        """Connect the steps; delay the exponent and the valid bit in parallel."""
        m.submodules.normalizer = normalizer = self.normalizer
        m.submodules.polynomial = polynomial = self.polynomial
        m.d.comb += [
            normalizer.en.eq(self.en),
            normalizer.x.eq(self.x),
            polynomial.en.eq(self.en),
            # For the root, the exponent's lowest bit selects one of two octaves.
            polynomial.x.eq(Cat(normalizer.fraction, normalizer.exponent[: self.root])),
        ]
        scale = [
            Signal.like(normalizer.exponent, name=f"scale_{i}", reset_less=True)
            for i in range(POLYNOMIAL_LATENCY)
        ]
        nonzero = Signal(POLYNOMIAL_LATENCY, reset_less=True)
        valid = Signal(self.latency)
        carry = polynomial.y[MANTISSA_WIDTH]
        with m.If(self.en):
            m.d.sync += [
                scale[0].eq(normalizer.exponent >> self.root),
                Cat(scale[1:]).eq(Cat(scale[:-1])),
                nonzero.eq(Cat(normalizer.nonzero, nonzero)),
                valid.eq(Cat(self.valid_i, valid)),
            ]
        with m.If(nonzero[-1]):
            m.d.comb += [
                self.mantissa.eq(Mux(carry, 1 << (MANTISSA_WIDTH - 1), polynomial.y)),
                self.exponent.eq(carry - MANTISSA_WIDTH - scale[-1]),
            ]
        m.d.comb += self.valid_o.eq(valid[-1])


class Reciprocal(_Inverse):
    """Computes ``1 / x`` as about ``mantissa * 2**exponent``; ``x`` has ``width`` bits.

    ``latency`` is ``ceil(ceil_log2(width) / 2) + 6`` cycles with ``en`` at 1. ``valid_o`` is
    ``valid_i``, delayed by ``latency`` cycles. If ``x`` is 0, ``mantissa`` and ``exponent`` are 0.
    Throughput is one result per cycle with ``en`` at 1. Raises :class:`InputError` if ``width`` is
    not from 1 to 64.
    """

    def __init__(self, width: int):
        super().__init__(width, reciprocal_polynomial(), 0)


class ReciprocalSqrt(_Inverse):
    """Compute ``1 / sqrt(x)`` as about ``mantissa * 2**exponent`` for integers of ``width`` bits.

    ``mantissa`` and ``exponent`` equal :func:`celosia.sim.reciprocal.rsqrt` bit for bit. The
    results for powers of four are exact. Ports, latency and throughput are those of
    :class:`Reciprocal`.
    """

    def __init__(self, width: int):
        super().__init__(width, rsqrt_polynomial(), 1)
