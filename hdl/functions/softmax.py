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

    ``i`` receives rows of 1 to ``max_row`` elements as beats of ``lanes`` columns. A beat has the
    scores ``q``, a ``mask`` of the columns that take part (0 past the row's end), and ``last`` (1
    in the row's last beat). ``o`` outputs a beat for each input beat: the probabilities ``p`` in
    unsigned Q0.24, from 0 to ``2**24``, with ``mask`` and ``last``. Columns whose bit of ``mask``
    is 0 have probability 0, even if the mask is 0 for the whole row. Results equal
    :func:`celosia.sim.softmax.softmax` bit for bit. They differ from float64 by at most ``2**-15``
    for rows of up to 512 elements.

    Throughput is one beat per cycle for rows of any length. The first result of a row of n beats
    appears ``latency + n - 1`` cycles after the row's last beat. ``latency`` is
    ``2 * ceil_log2(lanes) + ceil(ceil_log2(sum_width) / 2) + 19``. ``sum_width`` is 28 plus the
    number of bits of N, and N is ``max_row`` rounded up to a multiple of ``lanes``. If ``parity``
    is true, words of the row buffers have parity bits, and bit 1 of the output ``errors`` reports
    that a wrong word was read.

    If ``factors`` is not 0, the unit does not divide by the sum. ``p`` are the exponentials of a
    row's scores, scaled so that the largest is 1, as in :func:`celosia.sim.softmax.row_weights`.
    The output ``factor`` is the reciprocal of each row's sum; a later command multiplies the
    attention results of the row by this reciprocal. With each factor, the unit outputs ``number``,
    the factor's storage index (0 to ``factors - 1``), copied from the last beat of the row.
    ``latency`` is ``ceil_log2(lanes) + 8``, and the first result of a row appears ``latency``
    cycles after the row's last beat.

    Raises :class:`InputError` if ``lanes`` is not positive, ``max_row`` not from 1 to 65,536, or
    ``factors`` not from 0 to 256.
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
