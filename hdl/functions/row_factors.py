# amaranth: UnusedElaboratable=no
"""Residual addition, and each row's RMS normalization factor: equation (23) of docs/numerics.md."""

from amaranth.hdl import unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from celosia.arch.norm import EPS_WIDTH
from celosia.arch.polynomial import MANTISSA_WIDTH
from celosia.hdl.component import Component
from celosia.hdl.functions.addnorm import added, input_layout, output_layout, sum_layout
from celosia.hdl.functions.row_statistics import RowStatistics
from celosia.hdl.stream.flow import Flow

RIGHT_WIDTH = 5
"""Width of the right shift of a row's factor (bits)."""


def factor_layout() -> data.StructLayout:
    """Return the layout of a factor that multiplies a row: ``mantissa / 2**right``.

    For softmax, the factor is the reciprocal of the sum of the row's exponentials. For RMS norm, it
    is the row's normalization factor in units of ``2**-16`` (:class:`RowFactors`).
    """
    return data.StructLayout({"mantissa": unsigned(MANTISSA_WIDTH), "right": unsigned(RIGHT_WIDTH)})


def numbered_layout(factors: int) -> data.StructLayout:
    """Return the layout of a row's factor, ``factor``, and the factor's storage index, ``number``.

    The layout of the field ``factor`` is :func:`factor_layout`. The argument ``factors`` is the
    number of factors that the machine stores.
    """
    return data.StructLayout({"number": range(factors), "factor": factor_layout()})


class RowFactors(Component):
    """Adds two rows; outputs the sums and each row's RMS normalization factor.

    ``i`` has the elements ``x`` and ``r`` of two rows. ``o`` and ``o_sum`` output the sums s: ``x +
    r``, saturated to 16 bits, or ``x`` if ``add`` is 0. ``factor`` is ``1 / sqrt(n * sum(s**2) +
    eps)`` in units of ``2**-16``, ``latency`` cycles after a row's last sums. ``n`` is the number
    of elements of a row.
    """

    i: stream.Interface
    o: stream.Interface
    o_sum: stream.Interface

    def __init__(self, *, lanes: int, max_row: int):
        self._statistics = RowStatistics(lanes=lanes, max_row=max_row)
        super().__init__(
            {
                "n": In(unsigned(max_row.bit_length())),
                "add": In(1),
                "eps": In(unsigned(EPS_WIDTH)),
                "i": In(stream.Signature(input_layout(lanes))),
                "o": Out(stream.Signature(output_layout(lanes))),
                "o_sum": Out(stream.Signature(sum_layout(lanes))),
                "factor": Out(Flow(factor_layout())),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from a row's last beat on ``o`` to the row's normalization factor on ``factor``.

        The factor is ``1 / sqrt(n * sum(s**2) + eps)``, for the RMS normalization of the row's n
        sums s.
        """
        return self._statistics.latency

    def circuit(self, m):
        """Build the adder of the two input rows, and the circuit that computes row factors.

        A beat of the sum row leaves on both output streams, ``o`` and ``o_sum``, in the same cycle,
        so it waits until both are ready.
        """
        m.submodules.statistics = statistics = self._statistics
        moves = self.o.ready & self.o_sum.ready
        held, beat = added(m, self.i, self.add, moves)
        m.d.comb += [
            self.o.valid.eq(held & self.o_sum.ready),
            self.o_sum.valid.eq(held & self.o.ready),
            self.o_sum.p.eq(beat),
            self.o.p.mask.eq(beat.mask),
            self.o.p.last.eq(beat.last),
            *(value.eq(s) for value, s in zip(self.o.p.value, beat.s, strict=True)),
            statistics.n.eq(self.n),
            statistics.rms.eq(1),
            statistics.eps.eq(self.eps),
            statistics.valid_i.eq(held & moves),
            statistics.s.eq(beat.s),
            statistics.last.eq(beat.last),
            self.factor.valid.eq(statistics.valid_o),
            self.factor.payload.mantissa.eq(statistics.mantissa),
            self.factor.payload.right.eq(statistics.right),
        ]
