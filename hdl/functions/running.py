"""Maximum and sum of a softmax row, kept from chunk to chunk (equation 8 of docs/numerics.md)."""

from amaranth.hdl import Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from arch.functions import KEEP_FRACTION, OCTAVE_MANTISSA, RUNNING_WIDTH, WEIGHT_FRACTION
from arch.polynomial import MANTISSA_WIDTH
from hdl.arithmetic.exponential import DISTANCE_WIDTH, EXPONENTIAL_LATENCY, OctaveExponential
from hdl.arithmetic.multiplier import multiply
from hdl.component import Component
from hdl.memory.ram import Ram
from hdl.stream.pipeline import delay

SCORE_WIDTH = 16
"""Width of a score (bits)."""
HALVINGS_WIDTH = (RUNNING_WIDTH - WEIGHT_FRACTION).bit_length()
"""Width of how often a sum is to be halved to be from 1 to 2 (bits)."""
KEEP_WIDTH = KEEP_FRACTION + 1
"""Width of the share that a row keeps, which may be 1 (bits)."""
CARRY_LATENCY = 1 + EXPONENTIAL_LATENCY + 4
"""Cycles from a row's two maxima to its sum so far relative to the new one."""
SHARE_LATENCY = 3
"""Cycles from a sum's reciprocal to the share that its row keeps."""
TOP_WIDTH = MANTISSA_WIDTH + 2
"""Width of the part of the sum so far that counts for its share (bits)."""


def running_layout(rows: int) -> data.StructLayout:
    """Return what a row is to the running rows: whether it is one, whether it begins, which."""
    return data.StructLayout({"online": 1, "first": 1, "row": row_shape(rows)})


def row_shape(rows: int) -> unsigned:
    """Return the shape of a running row's number."""
    return unsigned(max(1, (rows - 1).bit_length()))


def running_depth(rows: int) -> int:
    """Return the words of a memory of running rows: rows that are none may have any number."""
    return 1 << row_shape(rows).width


class RunningWritePort(wiring.Signature):
    """A running row for the drain, seen from the softmax: it can be read in the next cycle."""

    def __init__(self, rows: int):
        super().__init__(
            {
                "en": Out(1),
                "row": Out(row_shape(rows)),
                "inverse": Out(MANTISSA_WIDTH),
                "halvings": Out(HALVINGS_WIDTH),
                "keep": Out(KEEP_WIDTH),
            }
        )


class RunningMaximum(Component):
    """The largest score of each running row so far.

    ``before`` is that of ``read_row`` in the cycle before. At first it is the lowest score.
    """

    def __init__(self, rows: int):
        self.rows = rows
        super().__init__(
            {
                "read_row": In(row_shape(rows)),
                "before": Out(signed(SCORE_WIDTH)),
                "write_en": In(1),
                "write_row": In(row_shape(rows)),
                "maximum": In(signed(SCORE_WIDTH)),
            }
        )

    def elaborate(self, _platform):
        """Keep scores from the lowest one on, as memories are 0 at first."""
        m = Module()
        m.submodules.scores = scores = Ram(SCORE_WIDTH, running_depth(self.rows))
        lowest = 1 << (SCORE_WIDTH - 1)
        m.d.comb += [
            scores.read_en.eq(1),
            scores.read_addr.eq(self.read_row),
            self.before.eq(scores.read_data ^ lowest),
            scores.write_en.eq(self.write_en),
            scores.write_addr.eq(self.write_row),
            scores.write_data.eq(self.maximum.as_unsigned() ^ lowest),
        ]
        return m


class CarriedSum(Component):
    """A running row's sum of weights so far, relative to a maximum that has grown by ``distance``.

    ``carried`` is ``total * 2**(-distance / 256)`` of the row ``read_row``, further bits dropped,
    or 0 where ``fresh`` is 1. Latency is ``CARRY_LATENCY`` cycles, throughput one row per cycle.
    Three 16x17-bit multiplications.
    """

    def __init__(self, rows: int):
        self.rows = rows
        super().__init__(
            {
                "read_row": In(row_shape(rows)),
                "distance": In(unsigned(DISTANCE_WIDTH)),
                "fresh": In(1),
                "carried": Out(RUNNING_WIDTH),
                "write_en": In(1),
                "write_row": In(row_shape(rows)),
                "total": In(RUNNING_WIDTH),
            }
        )

    def elaborate(self, _platform):
        """Read the sum while the exponential is looked up; multiply its thirds; shift."""
        m = Module()
        m.submodules.totals = totals = Ram(RUNNING_WIDTH, running_depth(self.rows))
        m.submodules.exponential = exponential = OctaveExponential()
        m.d.comb += [
            exponential.en.eq(1),
            exponential.distance.eq(delay(m, self.distance, 1)),
            exponential.keep.eq(~delay(m, self.fresh, 1)),
            totals.read_en.eq(1),
            totals.read_addr.eq(delay(m, self.read_row, EXPONENTIAL_LATENCY - 1)),
            totals.write_en.eq(self.write_en),
            totals.write_addr.eq(self.write_row),
            totals.write_data.eq(self.total),
        ]
        step = OCTAVE_MANTISSA
        total = delay(m, totals.read_data, 1)
        thirds = [total[at : at + step] for at in range(0, RUNNING_WIDTH, step)]
        low, middle, high = (
            multiply(m, f"third_{index}", third, exponential.mantissa)
            for index, third in enumerate(thirds)
        )
        product = Signal(RUNNING_WIDTH)
        m.d.sync += [
            product.eq((low >> step) + middle + (high << step)),
            self.carried.eq(product >> delay(m, exponential.shift, 3)),
        ]
        return m


class RowShare(Component):
    """Tells draining the reciprocal of a running row's sum, and what the row keeps.

    ``row_en`` brings, ``waiting`` cycles before ``inverse_en`` brings the sum's reciprocal, the
    row, the part of its sum that was there before, and whether nothing was added. ``online`` tells
    what the row is whose reciprocal comes. Rows follow each other at one per cycle. Latency from
    the reciprocal to the write is ``SHARE_LATENCY`` cycles.
    One 17x17-bit multiplication.
    """

    def __init__(self, rows: int, waiting: int):
        self.rows = rows
        self.entry = data.StructLayout(
            {"running": running_layout(rows), "carried": RUNNING_WIDTH, "same": 1}
        )
        # A row that is being written and one that is being read take a place, too.
        self.waiting = SyncFIFOBuffered(width=self.entry.size, depth=waiting + 2)
        super().__init__(
            {
                "row_en": In(1),
                "row": In(self.entry),
                "inverse_en": In(1),
                "inverse": In(MANTISSA_WIDTH),
                "halvings": In(HALVINGS_WIDTH),
                "online": Out(1),
                "write": Out(RunningWritePort(rows)),
            }
        )

    def elaborate(self, _platform):
        """Shift, multiply, round; all in step with the reciprocals."""
        m = Module()
        m.submodules.waiting = waiting = self.waiting
        # The row that is next waits in a register, as block RAM answers late.
        row, held = Signal(self.entry, reset_less=True), Signal()
        with m.If(waiting.r_en):
            m.d.sync += [held.eq(waiting.r_rdy), row.eq(waiting.r_data)]
        m.d.comb += [
            waiting.w_en.eq(self.row_en),
            waiting.w_data.eq(self.row),
            waiting.r_en.eq(~held | self.inverse_en),
            self.online.eq(row.running.online),
        ]
        top = Signal(TOP_WIDTH)
        rest = Signal(TOP_WIDTH + MANTISSA_WIDTH)
        lower = multiply(m, "lower", top[:MANTISSA_WIDTH], self.inverse)
        running = delay(m, row.running.as_value(), SHARE_LATENCY)
        running = data.View(row.running.shape(), running)
        ends = delay(m, self.inverse_en, SHARE_LATENCY, reset=True)
        share = (rest + lower) >> (MANTISSA_WIDTH + 1)
        one = delay(m, row.same, SHARE_LATENCY - 1)
        first = delay(m, row.running.first, SHARE_LATENCY - 1)
        # Half of the last bit, and the products of the bits for which a multiplier has no room.
        uppermost, inverse = delay(m, top[MANTISSA_WIDTH:], 1), delay(m, self.inverse, 1)
        uppers = [Mux(bit, inverse, 0) << place for place, bit in enumerate(uppermost)]
        m.d.sync += [
            rest.eq(sum(uppers, 1) << MANTISSA_WIDTH),
            self.write.keep.eq(Mux(first, 0, Mux(one, 1 << KEEP_FRACTION, share))),
        ]
        m.d.comb += [
            top.eq(row.carried[WEIGHT_FRACTION - MANTISSA_WIDTH - 1 :] >> self.halvings),
            self.write.en.eq(ends & running.online),
            self.write.row.eq(running.row),
            self.write.inverse.eq(delay(m, self.inverse, SHARE_LATENCY)),
            self.write.halvings.eq(delay(m, self.halvings, SHARE_LATENCY)),
        ]
        return m
