# amaranth: UnusedElaboratable=no
"""The sum of a row and the inverse root of its variance: equation (4) of docs/numerics.md."""

from functools import reduce
from operator import add

from amaranth.hdl import Cat, Mux, Signal, signed, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from celosia.arch.norm import EPS_WIDTH, VALUE_FRACTION
from celosia.arch.polynomial import MANTISSA_WIDTH
from celosia.hdl.arithmetic.multiplier import multiply
from celosia.hdl.arithmetic.reciprocal import ReciprocalSqrt
from celosia.hdl.component import Component
from celosia.hdl.stream.pipeline import delay

CHUNK_WIDTH = 17
"""Width of the widest unsigned operand of a signed 18x18-bit multiplier (bits)."""


class RowStatistics(Component):
    """Computes the sum of each row, and ``1 / sqrt(n * sum(s**2) - sum(s)**2 + eps)``.

    If ``valid_i`` is 1, ``s`` is a beat of a row's elements; lanes past the row's end must be 0.
    ``last`` is 1 in the last beat of a row. ``latency`` cycles after this beat, ``valid_o`` is 1.
    ``total`` is then the row's sum, and ``mantissa / 2**(right + 16)`` is the inverse root. If
    ``rms`` is 1, the sum counts as 0.
    """

    n: Signal
    """Number of elements of the row; must hold while a row is in the unit."""
    eps: Signal
    """The epsilon under the root; must hold while a row is in the unit."""
    mantissa: Signal
    """Mantissa of the inverse root."""
    right: Signal
    """Exponent of the inverse root, ``mantissa / 2**(right + 16)``."""

    def __init__(self, *, lanes: int, max_row: int):
        self._squares_width = (max_row << 30).bit_length()
        self._root = ReciprocalSqrt(((max_row**2 << 30) + (1 << EPS_WIDTH) - 1).bit_length())
        super().__init__(
            {
                "n": In(unsigned(max_row.bit_length())),
                "rms": In(1),
                "eps": In(unsigned(EPS_WIDTH)),
                "valid_i": In(1),
                "s": In(data.ArrayLayout(signed(16), lanes)),
                "last": In(1),
                "valid_o": Out(1),
                "total": Out(signed((max_row << 15).bit_length() + 1)),
                "mantissa": Out(unsigned(MANTISSA_WIDTH)),
                "right": Out(5),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from the last beat of a row to the row's statistics."""
        return self._sum_latency + 4 + self._root.latency

    @property
    def _sum_latency(self) -> int:
        return 3 + -(-ceil_log2(self.lanes) // 2)

    def circuit(self, m):
        """Build circuits for each row's sum, sum of squares, variance and inverse square root."""
        m.submodules.root = root = self._root
        total, squares, done = self._sum(m)
        m.d.comb += [
            root.en.eq(1),
            root.valid_i.eq(delay(m, done, 4, reset=True)),
            root.x.eq(self._variance(m, total, squares)),
            self.valid_o.eq(root.valid_o),
            self.mantissa.eq(root.mantissa),
            # Without variance the mantissa is 0, and so is the product for any shift.
            self.right.eq((-root.exponent - VALUE_FRACTION)[:5]),
            self.total.eq(delay(m, total, 4 + root.latency)),
        ]

    def _sum(self, m):
        """Return a row's sum, its sum of squares, and whether they are complete."""
        terms = [delay(m, s, 2) for s in self.s]
        squares = [
            multiply(m, f"square_{lane}", s, s).as_unsigned()[:31] for lane, s in enumerate(self.s)
        ]
        while len(terms) > 1:
            terms, squares = self._fours(m, terms), self._fours(m, squares)
        valid = delay(m, self.valid_i, self._sum_latency - 1, reset=True)
        last = delay(m, self.last, self._sum_latency - 1)

        inside = Signal()
        done = Signal()
        total = Signal.like(self.total, reset_less=True)
        square = Signal(self._squares_width, reset_less=True)
        m.d.sync += done.eq(valid & last)
        with m.If(valid):
            m.d.sync += [
                inside.eq(~last),
                total.eq(Mux(self.rms, 0, Mux(inside, total, 0) + terms[0])),
                square.eq(Mux(inside, square, 0) + squares[0]),
            ]
        return total, square, done

    @staticmethod
    def _fours(m, terms):
        fours = [terms[k : k + 4] for k in range(0, len(terms), 4)]
        return [delay(m, reduce(add, four), 1) for four in fours]

    def _variance(self, m, total, squares):
        """Return ``n * squares - total**2 + eps``, four cycles later."""
        chunks = [
            multiply(m, f"scaled_{low}", self.n, squares[low : low + CHUNK_WIDTH])
            for low in range(0, len(squares), CHUNK_WIDTH)
        ]
        # The first and the third chunk do not overlap.
        assert len(chunks) <= 3
        assert len(chunks[0]) <= 2 * CHUNK_WIDTH
        apart = chunks[0] | Cat(chunks[2:]) << 2 * CHUNK_WIDTH
        scaled = delay(m, apart + (chunks[1] << CHUNK_WIDTH) + self.eps, 1)

        half = len(total) // 2
        low, high = total[:half], total[half:].as_signed()
        outer = Cat(multiply(m, "low", low, low), multiply(m, "high", high, high))
        cross = multiply(m, "cross", low, high) << (half + 1)
        square = delay(m, outer + cross, 1)
        return delay(m, scaled - square, 1)
