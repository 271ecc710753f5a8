"""Softmax over streamed rows of 16-bit scores (equation 3 of docs/numerics.md)."""

from collections.abc import Callable

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from arch.errors import InputError
from arch.functions import OCTAVE_MANTISSA, WEIGHT_FRACTION
from arch.polynomial import MANTISSA_WIDTH
from hdl.arithmetic.exponential import EXPONENTIAL_LATENCY, SHIFT_WIDTH, OctaveExponential
from hdl.arithmetic.reciprocal import Reciprocal
from hdl.component import Component
from hdl.functions.row_divide import RowDivide, probability_layout
from hdl.functions.row_queue import ROW_LATENCY, RowQueue
from hdl.memory.protected import error_port, errors_of, gather
from hdl.stream.pipeline import delay

SCORE_WIDTH = 16
"""Width of a score (bits)."""
ONE_EXPONENT = -WEIGHT_FRACTION - OCTAVE_MANTISSA
"""Exponent of the reciprocal of a sum of 1."""


def score_layout(lanes: int) -> data.StructLayout:
    """Return the payload of scores: a beat of a row, which columns take part, the row's end."""
    scores = data.ArrayLayout(signed(SCORE_WIDTH), lanes)
    return data.StructLayout({"q": scores, "mask": unsigned(lanes), "last": 1})


def maximum_layout() -> data.StructLayout:
    """Return what is known of a row when its scores are: its maximum."""
    return data.StructLayout({"maximum": signed(SCORE_WIDTH)})


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

    Of a row where none does, it is -32,768. Latency from a row's last beat to its first is
    ``ceil_log2(lanes) + 3`` cycles, throughput one beat per cycle. ``errors`` with ``parity``.
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self, lanes: int, max_beats: int, *, parity: bool = False):
        self.lanes = lanes
        self.depth = ceil_log2(lanes)
        self.queue = RowQueue(
            score_layout(lanes),
            maximum_layout(),
            max_beats=max_beats,
            waiting=self.depth + 2,
            parity=parity,
        )
        self.latency = self.depth + 2 + ROW_LATENCY
        super().__init__(
            {
                "i": In(stream.Signature(score_layout(lanes))),
                "o": Out(self.queue.o.signature),
                **error_port("detect" if parity else "none"),
            }
        )

    def elaborate(self, platform):
        """Reduce a beat, then the beats of a row."""
        m = Module()
        m.submodules.queue = queue = self.queue
        gather(m, self, errors_of([queue]))
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
        m.d.comb += queue.row.maximum.eq(delay(m, maximum, 1))
        wiring.connect(m, queue.o, wiring.flipped(self.o))
        return m


class RowWeights(Component):
    """Turns a row's scores into weights and brings them with the reciprocal of their sum.

    A weight is ``mantissa * 2**(-16 - shift)``, 0 of a column that does not take part; the sum is
    taken over Q1.28, further bits dropped, and cannot overflow. ``scale`` is how often the sum is
    to be halved: the sum's reciprocal is ``inverse * 2**(-16 - scale)``.
    Latency from a row's last beat to its first is
    ``ceil_log2(lanes) + ceil(ceil_log2(sum_width) / 2) + 12`` cycles, throughput one beat per
    cycle. ``errors`` with ``parity``.
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self, lanes: int, max_beats: int, *, parity: bool = False):
        self.lanes = lanes
        self.depth = ceil_log2(lanes)
        self.weighed = EXPONENTIAL_LATENCY + 1
        # Cycles from a beat to the sum of its weights.
        self.summed = self.weighed + 1 + self.depth
        count_width = (lanes * max_beats).bit_length()
        self.sum_width = WEIGHT_FRACTION + count_width
        self.reciprocal = Reciprocal(self.sum_width)
        weight = data.StructLayout({"mantissa": OCTAVE_MANTISSA + 1, "shift": SHIFT_WIDTH})
        beat = {"weight": data.ArrayLayout(weight, lanes), "mask": lanes, "last": 1}
        row = {"inverse": MANTISSA_WIDTH, "scale": count_width.bit_length()}
        waiting = self.summed + 1 + self.reciprocal.latency
        self.queue = RowQueue(
            data.StructLayout(beat),
            data.StructLayout(row),
            max_beats=max_beats,
            waiting=waiting,
            parity=parity,
        )
        self.latency = waiting + ROW_LATENCY
        payload = data.StructLayout({"beat": score_layout(lanes), "row": maximum_layout()})
        super().__init__(
            {
                "i": In(stream.Signature(payload)),
                "o": Out(self.queue.o.signature),
                **error_port("detect" if parity else "none"),
            }
        )

    def elaborate(self, platform):
        """Subtract, exponentiate, add within a beat and over beats, invert."""
        m = Module()
        m.submodules.queue = queue = self.queue
        m.submodules.reciprocal = reciprocal = self.reciprocal
        gather(m, self, errors_of([queue]))
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

        valid = _strobes(m, taken, self.summed)
        row_end = _strobes(m, taken & beat.last, self.summed + 1)
        before = Signal(self.sum_width, reset_less=True)
        total = Signal(self.sum_width, reset_less=True)
        begins = Signal(init=1)
        m.d.comb += total.eq(Mux(begins, 0, before) + part)
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
            queue.row.inverse.eq(reciprocal.mantissa),
            queue.row.scale.eq(ONE_EXPONENT - reciprocal.exponent),
        ]
        wiring.connect(m, queue.o, wiring.flipped(self.o))
        return m


class SoftmaxUnit(Component):
    """Probabilities of rows of scores: softmax to the base 2, scores in units of 1/256 octave.

    ``i`` brings rows of 1 to ``max_row`` elements as beats of ``lanes`` columns: ``q`` the scores,
    ``mask`` one bit per column that takes part (the caller clears those past the row's end),
    ``last`` at the row's last beat. ``o`` brings as many beats: ``p`` in unsigned Q0.24 from 0 to
    ``2**24``, ``mask`` and ``last`` as they entered. A column that does not take part gives 0, a
    row without any gives all 0. Integers are :func:`sim.softmax.softmax`'s, bit for bit; against
    float64 they are within ``2**-15`` of 1 for rows up to 512.

    Rows follow each other without gaps through maximum, weights and division: throughput is one
    beat per cycle for rows of every length, those of one beat too. From the last beat of a row of
    n beats to its first result it takes ``latency + n - 1`` cycles, where ``latency`` is
    ``2 * ceil_log2(lanes) + ceil(ceil_log2(sum_width) / 2) + 19`` and ``sum_width`` is 28 and the
    bits of the longest row's columns. With ``parity`` ``errors`` reports a wrong word of a row's
    buffers.

    Raises :class:`InputError` where ``lanes`` is not positive or ``max_row`` is not from 1 to
    65,536.
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self, lanes: int, max_row: int, *, parity: bool = False):
        if lanes < 1:
            raise InputError(f"Softmax lanes must be a positive integer, not {lanes!r}")
        if not 1 <= max_row <= 1 << 16:
            raise InputError(f"Softmax max_row must be from 1 to 65536 elements, not {max_row!r}")
        max_beats = -(-max_row // lanes)
        self.maximum = RowMaximum(lanes, max_beats, parity=parity)
        self.weights = RowWeights(lanes, max_beats, parity=parity)
        self.divide = RowDivide(lanes, self.weights.o.signature)
        super().__init__(
            {
                "i": In(stream.Signature(score_layout(lanes))),
                "o": Out(stream.Signature(probability_layout(lanes))),
                **error_port("detect" if parity else "none"),
            }
        )

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
        gather(m, self, errors_of([maximum, weights]))
        wiring.connect(m, wiring.flipped(self.i), maximum.i)
        wiring.connect(m, maximum.o, weights.i)
        wiring.connect(m, weights.o, divide.i)
        wiring.connect(m, divide.o, wiring.flipped(self.o))
        return m
