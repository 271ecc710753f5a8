"""Softmax over streamed rows of 16-bit scores (equation 3 of docs/numerics.md)."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from celosia.arch.errors import InputError
from celosia.hdl.component import Component
from celosia.hdl.functions.row_divide import RowDivide, probability_layout
from celosia.hdl.functions.row_factors import numbered_layout
from celosia.hdl.functions.row_maximum import RowMaximum, score_layout
from celosia.hdl.functions.row_weights import DeferredWeights, RowWeights
from celosia.hdl.memory.protected import error_port, errors_of, gather
from celosia.hdl.stream.flow import Flow


class SoftmaxUnit(Component):
    """Probabilities of rows of scores: softmax to the base 2, scores in units of 1/256 octave.

    ``i`` brings rows of 1 to ``max_row`` elements as beats of ``lanes`` columns: ``q`` the scores,
    ``mask`` one bit per column that takes part (the caller clears those past the row's end),
    ``last`` at the row's last beat. ``o`` brings as many beats: ``p`` in unsigned Q0.24 from 0 to
    ``2**24``, ``mask`` and ``last`` as they entered. A column that does not take part gives 0, a
    row without any gives all 0. Integers are :func:`celosia.sim.softmax.softmax`'s, bit for bit;
    against float64 they are within ``2**-15`` of 1 for rows up to 512.

    Rows follow each other without gaps through maximum, weights and division: throughput is one
    beat per cycle for rows of every length, those of one beat too. From the last beat of a row of
    n beats to its first result it takes ``latency + n - 1`` cycles, where ``latency`` is
    ``2 * ceil_log2(lanes) + ceil(ceil_log2(sum_width) / 2) + 19`` and ``sum_width`` is 28 and the
    bits of the longest row's columns. With ``parity`` ``errors`` reports a wrong word of a row's
    buffers.

    With ``factors`` ``p`` are the weights, a row's largest 1, and ``factor`` brings each row's
    factor by its ``number`` of so many, which ``i`` has at the row's last beat: integers are
    :func:`celosia.sim.softmax.row_weights`'s. ``latency`` is ``ceil_log2(lanes) + 8`` then, and a
    row's last result comes ``n - 1`` cycles behind its first as before.

    Raises :class:`InputError` where ``lanes`` is not positive or ``max_row`` is not from 1 to
    65,536.
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self, lanes: int, max_row: int, *, factors: int = 0, parity: bool = False):
        if lanes < 1:
            raise InputError(f"Softmax lanes must be a positive integer, not {lanes!r}")
        if not 1 <= max_row <= 1 << 16:
            raise InputError(f"Softmax max_row must be from 1 to 65536 elements, not {max_row!r}")
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

    @property
    def latency(self) -> int:
        """Cycles from the last beat of a row to its first result, where that row has one beat."""
        behind = 0 if self._deferred else self.divide.latency
        return self.maximum.latency + self.weights.latency + behind

    def rows(self, beats: int) -> int:
        """Return the cycles by which a row of so many beats takes longer than one of one."""
        return (1 if self._deferred else 2) * (beats - 1)

    def elaborate(self, platform):
        """Connect the steps."""
        m = Module()
        m.submodules.maximum = maximum = self.maximum
        m.submodules.weights = weights = self.weights
        wiring.connect(m, wiring.flipped(self.i), maximum.i)
        wiring.connect(m, maximum.o, weights.i)
        if self._deferred:
            gather(m, self, errors_of([maximum]))
            wiring.connect(m, weights.o, wiring.flipped(self.o))
            m.d.comb += [
                self.factor.valid.eq(weights.factor.valid),
                self.factor.payload.eq(weights.factor.payload),
            ]
            return m
        m.submodules.divide = divide = self.divide
        gather(m, self, errors_of([maximum, weights]))
        wiring.connect(m, weights.o, divide.i)
        wiring.connect(m, divide.o, wiring.flipped(self.o))
        return m
