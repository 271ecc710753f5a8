# amaranth: UnusedElaboratable=no
"""Softmax of streamed rows of 16-bit scores: equation (3) of docs/numerics.md."""

from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from celosia.arch.errors import InputError
from celosia.arch.latency import softmax_beat_cycles, softmax_latency
from celosia.arch.rules import RANGES
from celosia.hdl.component import Component
from celosia.hdl.functions.row_divide import RowDivide, probability_layout
from celosia.hdl.functions.row_factors import numbered_layout
from celosia.hdl.functions.row_maximum import RowMaximum, score_layout
from celosia.hdl.functions.row_weights import DeferredWeights, RowWeights
from celosia.hdl.memory.protected import error_port, errors_of, gather
from celosia.hdl.stream.flow import Flow


class SoftmaxUnit(Component):
    """Softmax of rows of scores: probabilities proportional to ``2**(q / 256)`` of each score q.

    ``i`` receives rows of up to ``max_row`` scores, in beats of ``lanes`` columns. ``o`` outputs a
    beat of probabilities (Q0.24) for each beat of ``i``. Throughput is one beat per cycle. A row of
    n beats appears ``latency + n - 1`` cycles after its last beat on ``i``. ``latency`` is ``2 *
    ceil_log2(lanes) + ceil(ceil_log2(sum_width) / 2) + 19``; ``sum_width`` is 28 plus the bits of
    N, and N is ``max_row``, rounded up to whole beats.

    If ``factors`` is not 0, ``o`` outputs exponentials, ``ceil_log2(lanes) + 8`` cycles after a
    row's last beat. ``factor`` outputs the reciprocal of a row's sum. Arguments out of range raise
    :class:`InputError`.
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self, lanes: int, max_row: int, *, factors: int = 0, parity: bool = False):
        if lanes < 1:
            raise InputError(f"Softmax lanes must be a positive integer, not {lanes!r}")
        if not 1 <= max_row <= 1 << 16:
            raise InputError(f"Softmax max_row must be from 1 to 65536 elements, not {max_row!r}")
        if not 0 <= factors <= RANGES["row_factors"][1]:
            raise InputError(
                f"Softmax factors must be from 0 to {RANGES['row_factors'][1]}, not {factors!r}"
            )
        max_beats = -(-max_row // lanes)
        self._deferred = factors > 0
        self.maximum = RowMaximum(lanes, max_beats, factors=factors, parity=parity)
        members = {}
        if self._deferred:
            self.weights = DeferredWeights(lanes, max_beats, factors)
            members["factor"] = Out(Flow(numbered_layout(factors)))
        else:
            self.weights = RowWeights(lanes, max_beats, parity=parity)
            self.divide = RowDivide(lanes, self.weights.o.signature)
        super().__init__(
            {
                "i": In(stream.Signature(score_layout(lanes, factors))),
                "o": Out(stream.Signature(probability_layout(lanes))),
                **members,
                **error_port("detect" if parity else "none"),
            }
        )
        assert self.latency == softmax_latency(lanes, max_row, deferred=self._deferred)

    @property
    def latency(self) -> int:
        """Cycles from the input beat to the output beat of a row that has only one beat."""
        behind = 0 if self._deferred else self.divide.latency
        return self.maximum.latency + self.weights.latency + behind

    def rows(self, beats: int) -> int:
        """Return how many more cycles a row of ``beats`` beats takes than a row of one beat.

        The cycles of a row are counted from its last input beat to its last output beat.
        """
        return softmax_beat_cycles(deferred=self._deferred) * (beats - 1)

    def circuit(self, m):
        """Place and connect the units for the maximum, the exponentials and the division."""
        m.submodules.maximum = maximum = self.maximum
        m.submodules.weights = weights = self.weights
        wiring.connect(m, wiring.flipped(self.i), maximum.i)
        wiring.connect(m, maximum.o, weights.i)
        if self._deferred:
            gather(m, self, errors_of([maximum]))
            wiring.connect(m, weights.o, wiring.flipped(self.o))
            wiring.connect(m, weights.factor, wiring.flipped(self.factor))
            return
        m.submodules.divide = divide = self.divide
        gather(m, self, errors_of([maximum, weights]))
        wiring.connect(m, weights.o, divide.i)
        wiring.connect(m, divide.o, wiring.flipped(self.o))
