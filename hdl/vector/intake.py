"""Requantization of accumulators to the 16-bit inputs of softmax and normalization."""

from amaranth.hdl import Cat, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from celosia.arch.latency import intake_latency, requantizer_latency
from celosia.arch.vector_config import VectorConfig
from celosia.hdl.arithmetic.requantize import Requantizer, bounds_layout, bounds_of
from celosia.hdl.component import Component
from celosia.hdl.stream.credits import CreditQueue
from celosia.hdl.stream.pipeline import delay
from celosia.hdl.stream.slice import slices
from celosia.hdl.vector.beats import beat_layout, value_layout
from celosia.hdl.vector.params import word_layout


class Intake(Component):
    """Requantizes rows of accumulators to 16 bits: equation (1) of docs/numerics.md.

    - ``i``: the accumulators, in beats (groups of adjacent elements of a row).
    - ``words``: word k has the parameter sets for beat k, and the beat's end marks. Element e of a
      beat uses set ``e % lanes``.
    - ``o``: 16-bit elements with the end marks, at least ``latency`` cycles later.

    Throughput is one beat per cycle.
    """

    def __init__(self, config: VectorConfig):
        super().__init__(
            {
                "words": In(stream.Signature(word_layout(config, marked=True))),
                "i": In(stream.Signature(value_layout(config.beat_lanes))),
                "o": Out(stream.Signature(beat_layout(config.access))),
            }
        )
        assert self.latency == intake_latency(config)

    @property
    def latency(self) -> int:
        """Fewest cycles from accumulators on ``i`` to the requantized 16-bit elements on ``o``."""
        return 2 * self.config.stages + self._depth

    @property
    def _depth(self) -> int:
        """Cycles from a beat after the input register to its result."""
        return requantizer_latency(registered=self.config.control.registered)

    def circuit(self, m):
        """Place a requantizer for each lane, and a queue for the requantized elements.

        A requantizer never stalls: a beat of accumulators is accepted only if the queue will have
        space for its result.
        """
        lanes, taken = self.config.beat_lanes, Signal()
        beats = slices(m, wiring.flipped(self.i), "door", stages=self.config.stages)
        narrow = data.StructLayout(
            {
                "elements": data.ArrayLayout(signed(16), lanes),
                "count": range(lanes + 1),
                "row_last": 1,
                "last": 1,
            }
        )
        m.submodules.out = out = CreditQueue(narrow, self._depth)
        narrow_beat = out.i.payload
        word = self.words.p
        wide = bounds_layout().const(bounds_of(0, -(1 << 15), (1 << 15) - 1))
        sleep = self.config.array.sleep
        for lane in range(lanes):
            params = word.word.lanes[lane % self.config.vector.lanes]
            unit = Requantizer(
                self.config.vector.multiplier_width, self.config.control.registered, sleep=sleep
            )
            m.submodules[f"requantizer_{lane}"] = unit
            m.d.comb += [
                unit.en.eq(1),
                *([unit.take.eq(taken & beats.p.keep[lane])] if sleep else []),
                unit.x.eq(beats.p.value[lane]),
                unit.bias.eq(params.bias),
                unit.multiplier.eq(params.multiplier),
                unit.shift.eq(params.shift),
                unit.bounds.eq(wide),
                narrow_beat.elements[lane].eq(unit.y),
            ]
        m.d.comb += [
            beats.ready.eq(out.room & self.words.valid),
            self.words.ready.eq(beats.valid & out.room),
            taken.eq(beats.valid & beats.ready),
            out.taken.eq(taken),
            out.i.valid.eq(delay(m, taken, self._depth, reset=True)),
            narrow_beat.count.eq(delay(m, word.count, self._depth)),
            narrow_beat.row_last.eq(delay(m, word.row_last, self._depth)),
            narrow_beat.last.eq(delay(m, word.last, self._depth)),
        ]
        brought = slices(m, out.o, "brought", stages=self.config.stages)
        m.d.comb += [
            self.o.p.data.as_value().eq(Cat(brought.p.elements)),
            self.o.p.count.eq(brought.p.count),
            self.o.p.row_last.eq(brought.p.row_last),
            self.o.p.last.eq(brought.p.last),
            self.o.valid.eq(brought.valid),
            brought.ready.eq(self.o.ready),
        ]
