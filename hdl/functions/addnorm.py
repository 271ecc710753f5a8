"""Residual addition and layer or RMS normalization in one pass, equation (4)."""

from math import isqrt

from amaranth.hdl import Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from arch.errors import InputError
from arch.norm import EPS_WIDTH, MAX_NORM_ROW, VALUE_FRACTION
from arch.polynomial import MANTISSA_WIDTH
from hdl.arithmetic.multiplier import multiply
from hdl.component import Component
from hdl.functions.row_queue import ROW_LATENCY, RowQueue
from hdl.functions.row_statistics import RowStatistics
from hdl.memory.protected import error_port, errors_of, gather
from hdl.stream.pipeline import delay


def input_layout(lanes: int) -> data.StructLayout:
    """Return the payload of :class:`AddNormUnit`'s input."""
    elements = data.ArrayLayout(signed(16), lanes)
    return data.StructLayout({"x": elements, "r": elements, "last": 1, "mask": lanes})


def output_layout(lanes: int) -> data.StructLayout:
    """Return the payload of :class:`AddNormUnit`'s normalized output."""
    values = data.ArrayLayout(signed(32), lanes)
    return data.StructLayout({"value": values, "mask": lanes, "last": 1})


def sum_layout(lanes: int) -> data.StructLayout:
    """Return the payload of :class:`AddNormUnit`'s sums."""
    elements = data.ArrayLayout(signed(16), lanes)
    return data.StructLayout({"s": elements, "mask": lanes, "last": 1})


class NormalizeLane(Component):
    """Normalize one element: ``((n * s - total) * mantissa) / 2**right`` to nearest, ties up.

    Latency is ``latency`` cycles with ``en`` at 1, one result per cycle; everything holds still
    while ``en`` is 0. Three multiplications of at most 17x17 bits. The result is right where the
    row's statistics are those of a row that holds the element.
    """

    latency = 7

    def __init__(self, *, max_row: int):
        total_width = (max_row << 15).bit_length() + 1
        self._centered_width = (max_row << 16).bit_length() + 1
        # No element is farther from the mean than the root of the row's length.
        self._value_width = ((isqrt(max_row) + 1) << VALUE_FRACTION).bit_length() + 1
        super().__init__(
            {
                "en": In(1),
                "n": In(unsigned(max_row.bit_length())),
                "s": In(signed(16)),
                "total": In(signed(total_width)),
                "mantissa": In(unsigned(MANTISSA_WIDTH)),
                "right": In(5),
                "value": Out(signed(32)),
            }
        )

    def elaborate(self, _platform):
        """One stage per operation; signal names end in the stage that writes them."""
        m = Module()
        en = self.en
        scaled_2 = multiply(m, "scaled", self.n, self.s, en=en)
        total_2 = delay(m, self.total, 2, en=en)
        centered_2 = (scaled_2 - total_2)[: self._centered_width]

        mantissa_2 = delay(m, self.mantissa, 2, en=en)
        low_4 = multiply(m, "low", centered_2[:16], mantissa_2, en=en)
        high_4 = multiply(m, "high", centered_2[16:].as_signed(), mantissa_2, en=en)
        product_5 = delay(m, low_4 + (high_4 << 16), 1, en=en)

        # The quotient's lowest bit is the first that is shifted out: it rounds.
        right_5 = delay(m, self.right, 5, en=en)
        quotient = ((product_5 << 1) >> right_5)[: self._value_width + 1]
        quotient_6 = delay(m, quotient.as_signed(), 1, en=en)
        with m.If(en):
            m.d.sync += self.value.eq((quotient_6 >> 1) + quotient_6[0])
        return m


class AddNormUnit(Component):
    """Add two rows, normalize the sum, and give both, reading the input once.

    Input stream ``i``: ``x`` and ``r``, ``lanes`` 16-bit elements of each; ``mask``, whose bit is
    1 where the row has an element; ``last`` in a row's last beat. ``n`` is the row's length, from
    1 to ``max_row``; with ``add`` the row is ``s = sat16(x + r)``, else ``s = x``; with ``rms``
    its mean is taken as 0; ``eps`` is added to ``n**2`` times its variance. These ports hold still
    from the first beat taken to the last beat given.

    Output streams, beat for beat in the input's order, with its ``mask`` and ``last``: ``o_sum``
    the row ``s``, 0 where the mask is 0; ``o`` the normalized ``value``, 32 bits with 16 of them
    fraction, undefined where the mask is 0. Bit for bit ``sim.norm.normalize``: integers are
    exact up to the variance; its inverse root has 17 bits; the value is rounded to nearest, ties
    up. Its size is at most the root of ``n``, and 0 where variance and ``eps`` are 0.

    Throughput is one beat per cycle on all streams, whatever the rows' lengths: short rows follow
    each other through the pipelined statistics. A row's first value comes ``latency`` cycles after
    its last beat was taken. A stalled ``o_sum`` stalls the input at once, a stalled ``o`` when
    the row buffer, which holds the longest row and ``latency`` beats more, about, is full. With
    ``parity`` ``errors`` reports a wrong word of that buffer.

    Raises :class:`InputError` where ``lanes`` is not positive, or ``max_row`` not from 1 to 4096.
    """

    i: stream.Interface
    o: stream.Interface
    o_sum: stream.Interface

    def __init__(self, *, lanes: int, max_row: int, parity: bool = False):
        if lanes < 1:
            raise InputError(f"Norm lanes must be a positive integer, not {lanes!r}")
        if not 1 <= max_row <= MAX_NORM_ROW:
            raise InputError(f"Norm max_row must be from 1 to {MAX_NORM_ROW}, not {max_row!r}")
        self.lanes = lanes
        self.max_row = max_row
        self._statistics = RowStatistics(lanes=lanes, max_row=max_row)
        beat = sum_layout(lanes)
        statistics = self._statistics.signature.members
        row = {name: statistics[name].shape for name in ("total", "mantissa", "right")}
        self._queue = RowQueue(
            beat,
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

    @property
    def latency(self) -> int:
        """Cycles from a row's last beat to its first value."""
        return 1 + self._statistics.latency + ROW_LATENCY + NormalizeLane.latency

    def elaborate(self, _platform):
        """Place the statistics, the queue and the lanes; add before, and join after the queue."""
        m = Module()
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
            queue.beat_en.eq(moves),
            queue.beat.eq(beat),
            queue.row_en.eq(statistics.valid_o),
            queue.row.total.eq(statistics.total),
            queue.row.mantissa.eq(statistics.mantissa),
            queue.row.right.eq(statistics.right),
        ]
        self._normalize(m, queue.o)
        return m

    def _add(self, m, room):
        """Return the register behind the addition, which moves on together with ``o_sum``."""
        beat = Signal(sum_layout(self.lanes))
        held, offered = Signal(), Signal()
        # Room may end while a beat is offered, which has a place and stays.
        m.d.sync += offered.eq(self.o_sum.valid & ~self.o_sum.ready)
        m.d.comb += [
            self.o_sum.valid.eq(held & (room | offered)),
            self.i.ready.eq(~held | (self.o_sum.valid & self.o_sum.ready)),
        ]
        with m.If(self.i.ready):
            m.d.sync += [
                held.eq(self.i.valid),
                beat.mask.eq(self.i.p.mask),
                beat.last.eq(self.i.p.last),
            ]
            for lane in range(self.lanes):
                s = self.i.p.x[lane] + Mux(self.add, self.i.p.r[lane], 0)
                # Out of range where the upper two bits differ; then bit 16 is the true sign.
                saturated = Mux(s[16] ^ s[15], Cat(s[16].replicate(15) ^ 0x7FFF, s[16]), s[:16])
                m.d.sync += beat.s[lane].eq(Mux(self.i.p.mask[lane], saturated, 0))
        return beat

    def _normalize(self, m, joined):
        """Let the beats of finished rows pass the lanes, which stand still while ``o`` waits."""
        latency = NormalizeLane.latency
        en = Signal()
        beat, row = joined.p.beat, joined.p.row
        m.d.comb += [
            en.eq(~self.o.valid | self.o.ready),
            joined.ready.eq(en),
            self.o.valid.eq(delay(m, joined.valid, latency, en=en, reset=True)),
            self.o.p.mask.eq(delay(m, beat.mask, latency, en=en)),
            self.o.p.last.eq(delay(m, beat.last, latency, en=en)),
        ]
        for index in range(self.lanes):
            m.submodules[f"lane_{index}"] = lane = NormalizeLane(max_row=self.max_row)
            m.d.comb += [
                lane.en.eq(en),
                lane.n.eq(self.n),
                lane.s.eq(beat.s[index]),
                lane.total.eq(row.total),
                lane.mantissa.eq(row.mantissa),
                lane.right.eq(row.right),
                self.o.p.value[index].eq(lane.value),
            ]
