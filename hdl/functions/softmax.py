"""Softmax over streamed rows of 16-bit scores (equation 3 of docs/numerics.md)."""

from collections.abc import Callable

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from arch.errors import InputError
from arch.functions import (
    OCTAVE_MANTISSA,
    RUNNING_WIDTH,
    WEIGHT_FRACTION,
)
from arch.polynomial import MANTISSA_WIDTH
from hdl.arithmetic.exponential import EXPONENTIAL_LATENCY, SHIFT_WIDTH, OctaveExponential
from hdl.arithmetic.reciprocal import Reciprocal
from hdl.component import Component
from hdl.functions.row_divide import RowDivide, probability_layout
from hdl.functions.row_queue import ROW_LATENCY, RowQueue
from hdl.functions.running import (
    CARRY_LATENCY,
    SCORE_WIDTH,
    CarriedSum,
    RowShare,
    RunningMaximum,
    RunningWritePort,
    running_layout,
)
from hdl.stream.pipeline import delay

ONE_EXPONENT = -WEIGHT_FRACTION - OCTAVE_MANTISSA
"""Exponent of the reciprocal of a sum of 1."""


def score_layout(lanes: int) -> data.StructLayout:
    """Return the payload of scores: a beat of a row, which columns take part, the row's end."""
    scores = data.ArrayLayout(signed(SCORE_WIDTH), lanes)
    return data.StructLayout({"q": scores, "mask": unsigned(lanes), "last": 1})


def input_layout(lanes: int, running_rows: int) -> data.StructLayout:
    """Return the payload of a softmax's input: scores and, if there are any, the running row."""
    fields = {name: field.shape for name, field in score_layout(lanes)}
    if running_rows:
        fields["running"] = running_layout(running_rows)
    return data.StructLayout(fields)


def maximum_layout(running_rows: int) -> data.StructLayout:
    """Return what is known of a row when its scores are: its maximum, and of a running row more."""
    fields = {"maximum": signed(SCORE_WIDTH)}
    if running_rows:
        fields |= {"before": signed(SCORE_WIDTH), "running": running_layout(running_rows)}
    return data.StructLayout(fields)


def _reduce(m: Module, values: list[Value], combine: Callable[[Value, Value], Value]) -> Value:
    """Return all values combined, in pairs with a register each: ``ceil_log2`` cycles."""
    while len(values) > 1:
        pairs = [combine(*pair) for pair in zip(values[::2], values[1::2], strict=False)]
        values = [delay(m, value, 1) for value in pairs + values[2 * len(pairs) :]]
    return values[0]


def _larger(a: Value, b: Value) -> Value:
    return Mux(a > b, a, b)


def _strobes(m: Module, strobe: Value, cycles: int) -> Signal:
    """Return a strobe as it was 1, 2, .. ``cycles`` cycles ago, bit 0 first; reset clears them."""
    history = Signal(cycles)
    m.d.sync += history.eq(Cat(strobe, history))
    return history


class RowMaximum(Component):
    """Brings each beat of a row with the largest score of the row's columns that take part.

    Of a row where none does, it is -32,768. An online row also counts those of its chunks before,
    the largest of which comes along as ``before``: -32,768 with ``first``. Latency from a row's
    last beat to its first is ``ceil_log2(lanes) + 5`` cycles, throughput one beat per cycle.
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self, lanes: int, max_beats: int, running_rows: int = 0):
        self.lanes = lanes
        self.running_rows = running_rows
        self.depth = ceil_log2(lanes)
        self.queue = RowQueue(
            score_layout(lanes),
            maximum_layout(running_rows),
            max_beats=max_beats,
            waiting=self.depth + 2,
        )
        self.latency = self.depth + 2 + ROW_LATENCY
        super().__init__(
            {
                "i": In(stream.Signature(input_layout(lanes, running_rows))),
                "o": Out(self.queue.o.signature),
            }
        )

    def elaborate(self, platform):
        """Reduce a beat, then the beats of a row."""
        m = Module()
        m.submodules.queue = queue = self.queue
        beat = self.i.payload
        taken = self.i.valid & self.i.ready
        lowest = -(1 << (SCORE_WIDTH - 1))
        scores = [Mux(beat.mask[lane], beat.q[lane], lowest) for lane in range(self.lanes)]
        largest = _reduce(m, [delay(m, score, 1) for score in scores], _larger)
        valid = _strobes(m, taken, self.depth + 1)[-1]
        row_end = _strobes(m, taken & beat.last, self.depth + 2)
        before = Signal(signed(SCORE_WIDTH), init=lowest)
        maximum = Signal(signed(SCORE_WIDTH))
        m.d.comb += maximum.eq(_larger(largest, before))
        with m.If(valid):
            m.d.sync += before.eq(Mux(row_end[-2], lowest, maximum))
        m.d.comb += [
            self.i.ready.eq(queue.room),
            queue.commit.eq(taken),
            queue.commit_last.eq(beat.last),
            queue.beat_en.eq(taken),
            *(queue.beat[name].eq(beat[name]) for name, _ in queue.beat.shape()),
            queue.row_en.eq(row_end[-1]),
        ]
        row, largest = queue.row, delay(m, maximum, 1)
        if self.running_rows:
            m.submodules.running = running = RunningMaximum(self.running_rows)
            asked = delay(m, beat.running, self.depth)
            asked = data.View(running_layout(self.running_rows), asked)
            read = data.View(asked.shape(), delay(m, asked, 1))
            fresh = read.first | ~read.online
            place = row.running
            m.d.comb += [
                running.read_row.eq(asked.row),
                place.eq(delay(m, read, 1)),
                row.before.eq(delay(m, Mux(fresh, lowest, running.before), 1)),
                row.maximum.eq(_larger(largest, row.before)),
                running.write_en.eq(row_end[-1] & place.online),
                running.write_row.eq(place.row),
                running.maximum.eq(row.maximum),
            ]
        else:
            m.d.comb += row.maximum.eq(largest)
        wiring.connect(m, queue.o, wiring.flipped(self.o))
        return m


class RowWeights(Component):
    """Turns a row's scores into weights and brings them with the reciprocal of their sum.

    A weight is ``mantissa * 2**(-16 - shift)``, 0 of a column that does not take part; the sum is
    taken over Q1.28, further bits dropped, and cannot overflow. ``scale`` is how often the sum is
    to be halved: the sum's reciprocal is ``inverse * 2**(-16 - scale)``.
    The sum of an online row goes on from those of its chunks before; its weights are not to be
    divided, so they come with the reciprocal of 1, and ``running`` tells that of the sum.
    Latency from a row's last beat to its first is
    ``ceil_log2(lanes) + ceil_log2(sum_width) + 15`` cycles, throughput one beat per cycle. With
    running rows ``sum_width`` is ``RUNNING_WIDTH``, and of fewer than 8 lanes ``ceil_log2`` counts
    as 3: a sum so far is no faster.
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self, lanes: int, max_beats: int, running_rows: int = 0):
        self.lanes = lanes
        self.running_rows = running_rows
        self.depth = ceil_log2(lanes)
        self.weighed = EXPONENTIAL_LATENCY + 1
        # Cycles from a beat to the sum of its weights.
        self.summed = self.weighed + 1 + self.depth
        count_width = (lanes * max_beats).bit_length()
        if running_rows:
            count_width = RUNNING_WIDTH - WEIGHT_FRACTION
            self.summed = max(self.summed, CARRY_LATENCY)
        self.sum_width = WEIGHT_FRACTION + count_width
        self.reciprocal = Reciprocal(self.sum_width)
        weight = data.StructLayout({"mantissa": OCTAVE_MANTISSA + 1, "shift": SHIFT_WIDTH})
        beat = {"weight": data.ArrayLayout(weight, lanes), "mask": lanes, "last": 1}
        row = {"inverse": MANTISSA_WIDTH, "scale": count_width.bit_length()}
        waiting = self.summed + 1 + self.reciprocal.latency
        self.queue = RowQueue(
            data.StructLayout(beat), data.StructLayout(row), max_beats=max_beats, waiting=waiting
        )
        self.latency = waiting + ROW_LATENCY
        maximum = maximum_layout(running_rows)
        payload = data.StructLayout({"beat": score_layout(lanes), "row": maximum})
        members = {"i": In(stream.Signature(payload)), "o": Out(self.queue.o.signature)}
        if running_rows:
            members["running"] = Out(RunningWritePort(running_rows))
        super().__init__(members)

    def elaborate(self, platform):
        """Subtract, exponentiate, add within a beat and over beats, invert."""
        m = Module()
        m.submodules.queue = queue = self.queue
        m.submodules.reciprocal = reciprocal = self.reciprocal
        beat = self.i.payload.beat
        taken = self.i.valid & self.i.ready
        parts = []
        for lane in range(self.lanes):
            m.submodules[f"exponential_{lane}"] = exponential = OctaveExponential()
            weight = queue.beat.weight[lane]
            m.d.comb += [
                exponential.en.eq(1),
                exponential.distance.eq(delay(m, self.i.payload.row.maximum - beat.q[lane], 1)),
                exponential.keep.eq(delay(m, beat.mask[lane], 1)),
                weight.mantissa.eq(exponential.mantissa),
                weight.shift.eq(exponential.shift),
            ]
            fixed = exponential.mantissa << (WEIGHT_FRACTION - OCTAVE_MANTISSA)
            parts.append(delay(m, fixed >> exponential.shift, 1))
        part = _reduce(m, parts, lambda a, b: a + b)
        part = delay(m, part, self.summed - self.weighed - 1 - self.depth)

        valid = _strobes(m, taken, self.summed)
        row_end = _strobes(m, taken & beat.last, self.summed + 1)
        before = Signal(self.sum_width)
        total = Signal(self.sum_width)
        begins = Signal(init=1)
        carried, online = 0, 0
        if self.running_rows:
            carried, online = self._running(m, row_end, delay(m, total, 1))
        m.d.comb += total.eq(Mux(begins, carried, before) + part)
        with m.If(valid[-1]):
            m.d.sync += [before.eq(total), begins.eq(row_end[-2])]
        m.d.comb += [
            self.i.ready.eq(queue.room),
            queue.commit.eq(taken),
            queue.commit_last.eq(beat.last),
            queue.beat_en.eq(valid[self.weighed - 1]),
            queue.beat.mask.eq(delay(m, beat.mask, self.weighed)),
            queue.beat.last.eq(row_end[self.weighed - 1]),
            reciprocal.en.eq(1),
            reciprocal.valid_i.eq(row_end[-1]),
            reciprocal.x.eq(delay(m, total, 1)),
            queue.row_en.eq(reciprocal.valid_o),
            queue.row.inverse.eq(Mux(online, 1 << OCTAVE_MANTISSA, reciprocal.mantissa)),
            queue.row.scale.eq(Mux(online, 0, ONE_EXPONENT - reciprocal.exponent)),
        ]
        wiring.connect(m, queue.o, wiring.flipped(self.o))
        return m

    def _running(self, m, row_end, total):
        """Go on from a row's sum so far, and keep ``total``, which comes a cycle after its end.

        Return the sum so far, beside that of the first beat, and whether the row whose reciprocal
        comes is an online one.
        """
        row = self.i.payload.row
        m.submodules.running = running = CarriedSum(self.running_rows)
        m.submodules.share = share = RowShare(self.running_rows, self.reciprocal.latency)
        ended = data.View(row.running.shape(), delay(m, row.running, self.summed + 1))
        carried = delay(m, running.carried, self.summed - CARRY_LATENCY)
        m.d.comb += [
            running.read_row.eq(row.running.row),
            running.distance.eq(row.maximum - row.before),
            running.fresh.eq(row.running.first | ~row.running.online),
            running.write_en.eq(row_end[-1] & ended.online),
            running.write_row.eq(ended.row),
            running.total.eq(total),
            share.row_en.eq(row_end[-1]),
            share.row.running.eq(ended),
            share.row.carried.eq(delay(m, carried, 1)),
            share.row.same.eq(total == delay(m, carried, 1)),
            share.inverse_en.eq(self.reciprocal.valid_o),
            share.inverse.eq(self.reciprocal.mantissa),
            share.halvings.eq(ONE_EXPONENT - self.reciprocal.exponent),
        ]
        wiring.connect(m, share.write, wiring.flipped(self.running))
        return carried, share.online


class SoftmaxUnit(Component):
    """Probabilities of rows of scores: softmax to the base 2, scores in units of 1/256 octave.

    ``i`` brings rows of 1 to ``max_row`` elements as beats of ``lanes`` columns: ``q`` the scores,
    ``mask`` one bit per column that takes part (the caller clears those past the row's end),
    ``last`` at the row's last beat. ``o`` brings as many beats: ``p`` in unsigned Q0.24 from 0 to
    ``2**24``, ``mask`` and ``last`` as they came in. A column that does not take part gives 0, a
    row without any gives all 0. Integers are :func:`sim.softmax.softmax`'s, bit for bit; against
    float64 they are within ``2**-15`` of 1 for rows up to 512.

    Rows follow each other without gaps through maximum, weights and division: throughput is one
    beat per cycle for rows of every length, those of one beat too. From the last beat of a row of
    n beats to its first result it takes ``latency + n - 1`` cycles, where ``latency`` is
    ``2 * ceil_log2(lanes) + ceil_log2(sum_width) + 24`` and ``sum_width`` is 28 and the bits of
    the longest row's columns.

    With ``running_rows``, ``i`` also says of each row, the same in all its beats, whether it is
    ``online``: then ``p`` is its weights, not divided, and it begins (``first``) or goes on from
    running row ``row``, as :meth:`sim.running.RunningRows.weights`. A row goes on from what its
    running row was, if the last result of that was taken before its first beat. ``running`` writes
    what draining needs of it, before the row's first result. ``sum_width`` is then 48, and
    ``latency`` more by ``max(0, 3 - ceil_log2(lanes))``, of all rows.
    Raises :class:`InputError` where ``lanes`` is not positive or ``max_row`` is not from 1 to
    65,536.
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self, lanes: int, max_row: int, running_rows: int = 0):
        if lanes < 1:
            raise InputError(f"Softmax lanes must be a positive integer, not {lanes!r}")
        if not 1 <= max_row <= 1 << 16:
            raise InputError(f"Softmax max_row must be from 1 to 65536 elements, not {max_row!r}")
        max_beats = -(-max_row // lanes)
        self.maximum = RowMaximum(lanes, max_beats, running_rows)
        self.weights = RowWeights(lanes, max_beats, running_rows)
        self.divide = RowDivide(lanes, self.weights.o.signature)
        self.running_rows = running_rows
        members = {
            "i": In(stream.Signature(input_layout(lanes, running_rows))),
            "o": Out(stream.Signature(probability_layout(lanes))),
        }
        if running_rows:
            members["running"] = Out(RunningWritePort(running_rows))
        super().__init__(members)

    @property
    def latency(self) -> int:
        """Cycles from the last beat of a row to its first result, where that row has one beat."""
        return self.maximum.latency + self.weights.latency + self.divide.latency

    def elaborate(self, platform):
        """Connect the three steps."""
        m = Module()
        m.submodules.maximum = maximum = self.maximum
        m.submodules.weights = weights = self.weights
        m.submodules.divide = divide = self.divide
        wiring.connect(m, wiring.flipped(self.i), maximum.i)
        wiring.connect(m, maximum.o, weights.i)
        wiring.connect(m, weights.o, divide.i)
        wiring.connect(m, divide.o, wiring.flipped(self.o))
        if self.running_rows:
            wiring.connect(m, weights.running, wiring.flipped(self.running))
        return m
