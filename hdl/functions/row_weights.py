# amaranth: UnusedElaboratable=no
"""The middle step of a softmax: exponentials of the scores, and the reciprocal of their sum."""

from amaranth.hdl import Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from celosia.arch.functions import OCTAVE_MANTISSA, PROBABILITY_FRACTION, WEIGHT_FRACTION
from celosia.arch.polynomial import MANTISSA_WIDTH
from celosia.hdl.arithmetic.exponential import EXPONENTIAL_LATENCY, SHIFT_WIDTH, OctaveExponential
from celosia.hdl.arithmetic.reciprocal import Reciprocal
from celosia.hdl.component import Component
from celosia.hdl.functions.row_divide import probability_layout
from celosia.hdl.functions.row_factors import numbered_layout
from celosia.hdl.functions.row_maximum import maximum_layout, reduce, score_layout, strobes
from celosia.hdl.functions.row_queue import ROW_LATENCY, RowQueue
from celosia.hdl.memory.protected import error_port, errors_of, gather
from celosia.hdl.stream.credits import CreditQueue
from celosia.hdl.stream.flow import Flow
from celosia.hdl.stream.pipeline import delay

ONE_EXPONENT = -WEIGHT_FRACTION - OCTAVE_MANTISSA
"""Exponent of the reciprocal of a sum of weights, if the sum is 1."""


def scored_layout(lanes: int, factors: int) -> data.StructLayout:
    """Return the layout of a beat of softmax scores with the largest score of its row.

    The field ``beat`` has the scores (:func:`score_layout`), and ``row`` the largest score
    (:func:`maximum_layout`). ``factors`` is the number of reciprocals of row sums that the machine
    stores.
    """
    return data.StructLayout({"beat": score_layout(lanes), "row": maximum_layout(factors)})


class WeightLanes:
    """A pipeline for the softmax exponentials of a row, and the reciprocal of their sum.

    The exponential ``2**((score - largest) / 256)`` follows its score by ``weighed`` cycles. The
    reciprocal follows the row's last scores by ``inverted`` cycles. If ``late`` is true, these
    latencies are larger by 1.
    """

    def __init__(self, lanes: int, max_beats: int, *, late: bool = False):
        self.lanes, self._late = lanes, int(late)
        self._depth = ceil_log2(lanes)
        self.weighed = EXPONENTIAL_LATENCY + 1 + self._late
        # Cycles from a beat to the sum of its weights.
        self._summed = self.weighed + 1 + self._depth
        count_width = (lanes * max_beats).bit_length()
        self._sum_width = WEIGHT_FRACTION + count_width
        self._reciprocal = Reciprocal(self._sum_width)
        self.inverted = self._summed + 1 + self._reciprocal.latency
        # A weight is mantissa * 2**(-16 - shift), a reciprocal inverse * 2**(-16 - scale).
        weight = data.StructLayout({"mantissa": OCTAVE_MANTISSA + 1, "shift": SHIFT_WIDTH})
        self.weights = data.ArrayLayout(weight, lanes)
        self.row = data.StructLayout({"inverse": MANTISSA_WIDTH, "scale": count_width.bit_length()})

    def place(self, m, i, accepted, weights, mask, row):
        """Add the pipeline to module ``m``; return (exponentials, valid, last, inverted).

        If ``accepted`` is 1, beat ``i`` (:func:`scored_layout`) enters. The pipeline drives
        ``weights``, ``mask`` and ``row``. ``valid`` marks a beat in ``weights``, ``last`` a row's
        last beat, and ``inverted`` a reciprocal in ``row``. Exponentials follow ``weights`` by a
        cycle.
        """
        m.submodules.reciprocal = reciprocal = self._reciprocal
        beat = i.beat
        parts = []
        for lane in range(self.lanes):
            m.submodules[f"exponential_{lane}"] = exponential = OctaveExponential()
            weight = weights[lane]
            m.d.comb += [
                exponential.en.eq(1),
                exponential.distance.eq(delay(m, i.row.maximum - beat.q[lane], 1)),
                exponential.keep.eq(delay(m, beat.mask[lane], 1)),
                weight.mantissa.eq(delay(m, exponential.mantissa, self._late)),
                weight.shift.eq(delay(m, exponential.shift, self._late)),
            ]
            mantissa, shift = exponential.mantissa, exponential.shift
            if self._late:
                mantissa, shift = weight.mantissa, weight.shift
            fixed = mantissa << (WEIGHT_FRACTION - OCTAVE_MANTISSA)
            parts.append(delay(m, fixed >> shift, 1))
        part = reduce(m, parts, lambda a, b: a + b)

        valid = strobes(m, accepted, self._summed)
        row_end = strobes(m, accepted & beat.last, self._summed + 1)
        before = Signal(self._sum_width, reset_less=True)
        total = Signal(self._sum_width, reset_less=True)
        begins = Signal(init=1)
        m.d.comb += total.eq(Mux(begins, 0, before) + part)
        with m.If(valid[-1]):
            m.d.sync += [before.eq(total), begins.eq(row_end[-2])]
        m.d.comb += [
            mask.eq(delay(m, beat.mask, self.weighed)),
            reciprocal.en.eq(1),
            reciprocal.valid_i.eq(row_end[-1]),
            reciprocal.x.eq(delay(m, total, 1)),
            row.inverse.eq(reciprocal.mantissa),
            row.scale.eq(ONE_EXPONENT - reciprocal.exponent),
        ]
        weighed, last = valid[self.weighed - 1], row_end[self.weighed - 1]
        return parts, weighed, last, reciprocal.valid_o


class RowWeights(Component):
    """Computes the softmax exponentials of a row, and the reciprocal of their sum.

    Each lane of ``o`` has the exponential ``mantissa * 2**(-16 - shift)``; the reciprocal is
    ``inverse * 2**(-16 - scale)``. A row leaves ``latency`` cycles after its last beat on ``i``,
    one beat per cycle.
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self, lanes: int, max_beats: int, *, parity: bool = False):
        self._lanes = WeightLanes(lanes, max_beats)
        self.queue = RowQueue(
            data.StructLayout({"weight": self._lanes.weights, "mask": lanes, "last": 1}),
            self._lanes.row,
            max_beats=max_beats,
            waiting=self._lanes.inverted,
            parity=parity,
        )
        self.latency = self._lanes.inverted + ROW_LATENCY
        super().__init__(
            {
                "i": In(stream.Signature(scored_layout(lanes, 0))),
                "o": Out(self.queue.o.signature),
                **error_port("detect" if parity else "none"),
            }
        )

    def circuit(self, m):
        """Build a pipeline that computes softmax exponentials and reciprocals, and an output queue.

        The queue stores the exponentials of a row until the reciprocal of their sum is known.
        """
        m.submodules.queue = queue = self.queue
        beat = self.i.payload.beat
        accepted = self.i.valid & self.i.ready
        _, weighed, last, inverted = self._lanes.place(
            m, self.i.payload, accepted, queue.beat.weight, queue.beat.mask, queue.row
        )
        gather(m, self, errors_of([queue]))
        m.d.comb += [
            self.i.ready.eq(queue.room),
            queue.commit.eq(accepted),
            queue.commit_last.eq(beat.last),
            queue.beat_en.eq(weighed),
            queue.beat.last.eq(last),
            queue.row_en.eq(inverted),
        ]
        wiring.connect(m, queue.o, wiring.flipped(self.o))


class DeferredWeights(Component):
    """Computes softmax exponentials without division, and the reciprocal of each row's sum.

    ``o`` outputs exponentials in units of ``2**-24``, truncated, ``latency`` cycles after their
    scores on ``i``. ``factor`` outputs the reciprocal of a row's sum of exponentials, with the
    ``number`` under which a memory stores it. Throughput is one beat per cycle.
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self, lanes: int, max_beats: int, factors: int):
        self._lanes = WeightLanes(lanes, max_beats, late=True)
        self.latency = self._lanes.weighed + 1
        super().__init__(
            {
                "i": In(stream.Signature(scored_layout(lanes, factors))),
                "o": Out(stream.Signature(probability_layout(lanes))),
                "factor": Out(Flow(numbered_layout(factors))),
            }
        )

    def circuit(self, m):
        # The queue stores exponentials while ``o`` is not ready.
        m.submodules.out = out = CreditQueue(self.o.payload.shape(), self.latency)
        wiring.connect(m, out.o, wiring.flipped(self.o))
        number = self.i.payload.row.number
        weights, row = Signal(self._lanes.weights), Signal(self._lanes.row)
        mask = Signal(self._lanes.lanes)
        accepted = self.i.valid & out.room
        parts, weighed, last, inverted = self._lanes.place(
            m, self.i.payload, accepted, weights, mask, row
        )
        factor, shortened = self.factor.payload, WEIGHT_FRACTION - PROBABILITY_FRACTION
        m.d.comb += [
            self.i.ready.eq(out.room),
            out.taken.eq(accepted),
            out.i.valid.eq(delay(m, weighed, 1, reset=True)),
            out.i.payload.mask.eq(delay(m, mask, 1)),
            out.i.payload.last.eq(delay(m, last, 1)),
            *(p.eq(part >> shortened) for p, part in zip(out.i.payload.p, parts, strict=True)),
            self.factor.valid.eq(inverted),
            factor.number.eq(delay(m, number, self._lanes.inverted)),
            factor.factor.mantissa.eq(row.inverse),
            factor.factor.right.eq(OCTAVE_MANTISSA + row.scale),
        ]
