# amaranth: UnusedElaboratable=no
"""Residual addition and layer or RMS norm in one pass: equation (4) of docs/numerics.md."""

from math import isqrt

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from celosia.arch.errors import InputError
from celosia.arch.latency import norm_latency
from celosia.arch.norm import EPS_WIDTH, MAX_NORM_ROW, VALUE_FRACTION
from celosia.arch.polynomial import MANTISSA_WIDTH
from celosia.hdl.arithmetic.multiplier import multiply
from celosia.hdl.component import Component
from celosia.hdl.functions.row_queue import ROW_LATENCY, RowQueue
from celosia.hdl.functions.row_statistics import RowStatistics
from celosia.hdl.memory.protected import error_port, errors_of, gather
from celosia.hdl.stream.credits import CreditQueue
from celosia.hdl.stream.pipeline import delay

SCALE_LATENCY = 2
"""Cycles from an element to the product of the element and the number of elements of its row."""


def input_layout(lanes: int) -> data.StructLayout:
    """Return the layout of an input beat: elements of two rows, ``last`` and ``mask``.

    ``x`` has one 16-bit element of the first row for each lane, and ``r`` one of the second row. A
    lane's bit of ``mask`` is 1 if the lane has an element. ``last`` is 1 in the last beat of the
    two rows.
    """
    elements = data.ArrayLayout(signed(16), lanes)
    return data.StructLayout({"x": elements, "r": elements, "last": 1, "mask": lanes})


def output_layout(lanes: int) -> data.StructLayout:
    """Return the layout of a beat of normalized elements: ``value``, ``mask`` and ``last``.

    ``value`` has a 32-bit signed element for each of ``lanes`` lanes. A lane's bit of ``mask`` is 1
    if the lane has an element. ``last`` is 1 in the last beat of a row.
    """
    values = data.ArrayLayout(signed(32), lanes)
    return data.StructLayout({"value": values, "mask": lanes, "last": 1})


def sum_layout(lanes: int) -> data.StructLayout:
    """Return the layout of a beat of the sum of two rows: ``s``, ``mask`` and ``last``.

    ``s`` has a signed 16-bit sum for each of ``lanes`` lanes. A lane's bit of ``mask`` is 1 if the
    lane has a sum. ``last`` is 1 in the last beat of a row.
    """
    elements = data.ArrayLayout(signed(16), lanes)
    return data.StructLayout({"s": elements, "mask": lanes, "last": 1})


def scaled_width(max_row: int) -> int:
    """Return the width (bits) of the product of a 16-bit element and its row's number of elements.

    ``max_row`` is the number of elements of the longest row.
    """
    return max_row.bit_length() + 16


def scaled_layout(lanes: int, max_row: int) -> data.StructLayout:
    """Return the layout of a beat of scaled elements: ``scaled``, ``mask`` and ``last``.

    ``scaled`` has a product for each of ``lanes`` lanes: an element times the number of elements in
    its row. ``max_row`` is the largest such number. ``mask`` and ``last`` are as in
    :func:`sum_layout`.
    """
    elements = data.ArrayLayout(signed(scaled_width(max_row)), lanes)
    return data.StructLayout({"scaled": elements, "mask": lanes, "last": 1})


def added(m: Module, i: stream.Interface, add: Value, moves: Value) -> tuple[Signal, data.View]:
    """Add the two rows of ``i`` (:func:`input_layout`) beat by beat; return a valid bit and a beat.

    The beat (:func:`sum_layout`) is ``x + r``, saturated to 16 bits, or ``x`` if ``add`` is 0; it
    comes from a register. The caller must set ``moves`` to 1 in each cycle in which the next
    circuit accepts the beat.
    """
    lanes = len(i.p.mask)
    held, beat = Signal(), Signal(sum_layout(lanes))
    m.d.comb += i.ready.eq(~held | moves)
    with m.If(i.ready):
        m.d.sync += [held.eq(i.valid), beat.mask.eq(i.p.mask), beat.last.eq(i.p.last)]
        for lane in range(lanes):
            s = i.p.x[lane] + Mux(add, i.p.r[lane], 0)
            # Out of range if the upper two bits differ; then bit 16 is the true sign.
            saturated = Mux(s[16] ^ s[15], Cat(s[16].replicate(15) ^ 0x7FFF, s[16]), s[:16])
            m.d.sync += beat.s[lane].eq(Mux(i.p.mask[lane], saturated, 0))
    return held, beat


class NormalizeLane(Component):
    """Normalizes one element: ``((scaled - total) * mantissa) / 2**right``, with ties up.

    ``scaled`` is the element times the row's length, and ``total`` the row's sum. ``mantissa`` and
    ``right`` come from :class:`RowStatistics`. Latency is ``latency`` cycles, throughput one result
    per cycle.
    """

    value: Signal
    """The normalized element with 16 fraction bits, ``latency`` cycles later."""

    latency = 5

    def __init__(self, *, max_row: int):
        total_width = (max_row << 15).bit_length() + 1
        self._centered_width = (max_row << 16).bit_length() + 1
        # No normalized element exceeds the square root of the row's length.
        self._value_width = ((isqrt(max_row) + 1) << VALUE_FRACTION).bit_length() + 1
        super().__init__(
            {
                "scaled": In(signed(scaled_width(max_row))),
                "total": In(signed(total_width)),
                "mantissa": In(unsigned(MANTISSA_WIDTH)),
                "right": In(5),
                "value": Out(signed(32)),
            }
        )

    def circuit(self, m):
        """Build a pipeline with one stage per operation; a signal's suffix is its stage number."""
        centered = (self.scaled - self.total)[: self._centered_width]
        low_2 = multiply(m, "low", centered[:16], self.mantissa)
        high_2 = multiply(m, "high", centered[16:].as_signed(), self.mantissa)
        product_3 = delay(m, low_2 + (high_2 << 16), 1)

        # The quotient's lowest bit is the first bit shifted out: it rounds.
        right_3 = delay(m, self.right, 3)
        quotient = ((product_3 << 1) >> right_3)[: self._value_width + 1]
        quotient_4 = delay(m, quotient.as_signed(), 1)
        m.d.sync += self.value.eq((quotient_4 >> 1) + quotient_4[0])


class AddNormUnit(Component):
    """Adds two rows; outputs the sum row and the normalized sum row, reading the input once.

    ``i`` has the elements ``x`` and ``r`` of two rows. ``o_sum`` outputs ``x + r``, saturated to 16
    bits, or ``x`` if ``add`` is 0. ``o`` outputs the normalized sums with 16 fraction bits, rounded
    with ties up. ``n`` is the number of elements of a row. ``rms`` selects the RMS norm instead of
    the layer norm. ``eps`` is added to ``n**2`` times the variance. Throughput is one beat per
    cycle. The first normalized beat follows the row's last input beat by ``latency`` cycles. If
    ``parity`` is true, ``errors`` reports stored words with wrong parity. Raises
    :class:`InputError` if ``lanes`` is below 1, or ``max_row`` is not from 1 to 8192.
    """

    i: stream.Interface
    o: stream.Interface
    o_sum: stream.Interface

    def __init__(self, *, lanes: int, max_row: int, parity: bool = False):
        if lanes < 1:
            raise InputError(f"Norm lanes must be a positive integer, not {lanes!r}")
        if not 1 <= max_row <= MAX_NORM_ROW:
            raise InputError(f"Norm max_row must be from 1 to {MAX_NORM_ROW}, not {max_row!r}")
        self._statistics = RowStatistics(lanes=lanes, max_row=max_row)
        beat = sum_layout(lanes)
        statistics = self._statistics.signature.members
        row = {name: statistics[name].shape for name in ("total", "mantissa", "right")}
        self._queue = RowQueue(
            scaled_layout(lanes, max_row),
            data.StructLayout(row),
            max_beats=-(-max_row // lanes),
            waiting=self._statistics.latency,
            parity=parity,
        )
        super().__init__(
            {
                "n": In(unsigned(max_row.bit_length())),
                "rms": In(1),
                "add": In(1),
                "eps": In(unsigned(EPS_WIDTH)),
                "i": In(stream.Signature(input_layout(lanes))),
                "o": Out(stream.Signature(output_layout(lanes))),
                "o_sum": Out(stream.Signature(beat)),
                **error_port("detect" if parity else "none"),
            }
        )
        assert self.latency == norm_latency(lanes, max_row)

    @property
    def latency(self) -> int:
        """Cycles from the last input beat of a row to the row's first value on ``o``."""
        return 1 + self._statistics.latency + ROW_LATENCY + NormalizeLane.latency

    def circuit(self, m):
        """Build the adder, the row statistics, a queue, and a normalizer for each lane.

        The row statistics are the sum of a row and the inverse root of its variance. The queue
        stores the elements of the row until its statistics are known. The normalizers then compute
        the normalized elements.
        """
        m.submodules.statistics = statistics = self._statistics
        m.submodules.queue = queue = self._queue
        gather(m, self, errors_of([queue]))
        beat = self._add(m, queue.room)
        moves = self.o_sum.valid & self.o_sum.ready
        m.d.comb += [
            self.o_sum.p.eq(beat),
            statistics.n.eq(self.n),
            statistics.rms.eq(self.rms),
            statistics.eps.eq(self.eps),
            statistics.valid_i.eq(moves),
            statistics.s.eq(beat.s),
            statistics.last.eq(beat.last),
            queue.commit.eq(moves),
            queue.commit_last.eq(beat.last),
            queue.beat_en.eq(delay(m, moves, SCALE_LATENCY, reset=True)),
            queue.beat.mask.eq(delay(m, beat.mask, SCALE_LATENCY)),
            queue.beat.last.eq(delay(m, beat.last, SCALE_LATENCY)),
            *(
                queue.beat.scaled[lane].eq(multiply(m, f"scaled_{lane}", self.n, beat.s[lane]))
                for lane in range(self.lanes)
            ),
            queue.row_en.eq(statistics.valid_o),
            queue.row.total.eq(statistics.total),
            queue.row.mantissa.eq(statistics.mantissa),
            queue.row.right.eq(statistics.right),
        ]
        self._normalize(m, queue.o)

    def _add(self, m, room):
        """Return the register after the addition, which advances together with ``o_sum``."""
        offered, moves = Signal(), Signal()
        held, beat = added(m, self.i, self.add, moves)
        # Room may end while a beat is offered; that beat has a place and stays.
        m.d.sync += offered.eq(self.o_sum.valid & ~self.o_sum.ready)
        m.d.comb += [
            self.o_sum.valid.eq(held & (room | offered)),
            moves.eq(self.o_sum.valid & self.o_sum.ready),
        ]
        return beat

    def _normalize(self, m, joined):
        """Pass the beats of finished rows through the lanes, which never stall, and a queue."""
        latency = NormalizeLane.latency
        m.submodules.out = out = CreditQueue(self.o.p.shape(), latency)
        wiring.connect(m, out.o, wiring.flipped(self.o))
        beat, row = joined.p.beat, joined.p.row
        m.d.comb += [
            joined.ready.eq(out.room),
            out.taken.eq(joined.valid & out.room),
            out.i.valid.eq(delay(m, out.taken, latency, reset=True)),
            out.i.payload.mask.eq(delay(m, beat.mask, latency)),
            out.i.payload.last.eq(delay(m, beat.last, latency)),
        ]
        for index in range(self.lanes):
            m.submodules[f"lane_{index}"] = lane = NormalizeLane(max_row=self.max_row)
            m.d.comb += [
                lane.scaled.eq(beat.scaled[index]),
                lane.total.eq(row.total),
                lane.mantissa.eq(row.mantissa),
                lane.right.eq(row.right),
                out.i.payload.value[index].eq(lane.value),
            ]
