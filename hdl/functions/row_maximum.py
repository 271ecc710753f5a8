# amaranth: UnusedElaboratable=no
"""The first step of a softmax: the largest score of each row."""

from collections.abc import Callable

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from celosia.hdl.component import Component
from celosia.hdl.functions.row_queue import ROW_LATENCY, RowQueue
from celosia.hdl.memory.protected import error_port, errors_of, gather
from celosia.hdl.stream.pipeline import delay

SCORE_WIDTH = 16
"""Width of a score (bits)."""


def score_layout(lanes: int, factors: int = 0) -> data.StructLayout:
    """Return the layout of a beat of softmax scores: 16-bit ``q`` per lane, ``mask`` and ``last``.

    A lane's bit of ``mask`` is 1 if its score takes part. ``last`` is 1 in a row's last beat.
    ``factors`` is the size of a memory for reciprocals of softmax sums, one for each row. If it is
    not 0, the field ``number`` is the index of the row's reciprocal in this memory.
    """
    scores = data.ArrayLayout(signed(SCORE_WIDTH), lanes)
    number = {"number": range(factors)} if factors else {}
    return data.StructLayout({"q": scores, "mask": unsigned(lanes), "last": 1, **number})


def maximum_layout(factors: int = 0) -> data.StructLayout:
    """Return the layout of a row's largest softmax score, ``maximum`` (signed, 16 bits).

    ``factors`` is the size of a memory for reciprocals of softmax sums, one for each row. If it is
    not 0, the layout also has the field ``number``, the index of the row's reciprocal in this
    memory.
    """
    number = {"number": range(factors)} if factors else {}
    return data.StructLayout({"maximum": signed(SCORE_WIDTH), **number})


def reduce(m: Module, values: list[Value], combine: Callable[[Value, Value], Value]) -> Value:
    """Build a tree that combines all ``values`` into one value, and return this value.

    ``combine`` combines two values. Each level of the tree has registers, so latency is
    ``ceil_log2(len(values))`` cycles.
    """
    while len(values) > 1:
        pairs = [combine(*pair) for pair in zip(values[::2], values[1::2], strict=False)]
        values = [delay(m, value, 1) for value in pairs + values[2 * len(pairs) :]]
    return values[0]


def strobes(m: Module, strobe: Value, cycles: int) -> Signal:
    """Return the history of a bit: bit i of the result is ``strobe`` of i + 1 cycles ago.

    The result has ``cycles`` bits. A reset clears all of them.
    """
    history = Signal(cycles)
    m.d.sync += history.eq(Cat(strobe, history))
    return history


def _larger(a: Value, b: Value) -> Value:
    return Mux(a > b, a, b)


class RowMaximum(Component):
    """Outputs each beat of softmax scores together with the largest score of its row.

    Masked scores are ignored; if all scores of a row are masked, the largest score is -32,768. A
    row's first beat leaves ``latency`` cycles after the row's last beat has arrived. Throughput is
    one beat per cycle.
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self, lanes: int, max_beats: int, *, factors: int = 0, parity: bool = False):
        self.depth = ceil_log2(lanes)
        self.queue = RowQueue(
            score_layout(lanes),
            maximum_layout(factors),
            max_beats=max_beats,
            waiting=self.depth + 2,
            parity=parity,
        )
        self.latency = self.depth + 2 + ROW_LATENCY
        super().__init__(
            {
                "i": In(stream.Signature(score_layout(lanes, factors))),
                "o": Out(self.queue.o.signature),
                **error_port("detect" if parity else "none"),
            }
        )

    def circuit(self, m):
        """Build the comparator tree, a register for the row's maximum so far, and a queue of beats.

        The queue stores the beats of a row until the row's maximum is known.
        """
        m.submodules.queue = queue = self.queue
        gather(m, self, errors_of([queue]))
        beat = self.i.payload
        accepted = self.i.valid & self.i.ready
        lowest = -(1 << (SCORE_WIDTH - 1))
        scores = [Mux(beat.mask[lane], beat.q[lane], lowest) for lane in range(self.lanes)]
        largest = reduce(m, [delay(m, score, 1) for score in scores], _larger)
        valid = strobes(m, accepted, self.depth + 1)[-1]
        row_end = strobes(m, accepted & beat.last, self.depth + 2)
        before = Signal(signed(SCORE_WIDTH), init=lowest)
        maximum = Signal(signed(SCORE_WIDTH))
        m.d.comb += maximum.eq(_larger(largest, before))
        with m.If(valid):
            m.d.sync += before.eq(Mux(row_end[-2], lowest, maximum))
        m.d.comb += [
            self.i.ready.eq(queue.room),
            queue.commit.eq(accepted),
            queue.commit_last.eq(beat.last),
            queue.beat_en.eq(accepted),
            *(queue.beat[name].eq(beat[name]) for name, _ in queue.beat.shape()),
            queue.row_en.eq(row_end[-1]),
        ]
        m.d.comb += queue.row.maximum.eq(delay(m, maximum, 1))
        if self.factors:
            m.d.comb += queue.row.number.eq(delay(m, beat.number, self.depth + 2))
        wiring.connect(m, queue.o, wiring.flipped(self.o))
