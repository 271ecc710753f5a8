"""From accumulators to the 16-bit elements that softmax and normalization take."""

from amaranth.hdl import Cat, Module, Signal, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from arch.config import Config
from hdl.arithmetic.requantize import (
    Requantizer,
    bounds_layout,
    bounds_of,
    requantizer_latency,
)
from hdl.component import Component
from hdl.stream.credits import CreditQueue
from hdl.stream.pipeline import delay
from hdl.vector.beats import beat_layout, value_layout
from hdl.vector.entering import entering
from hdl.vector.params import param_layout
from hdl.vector.walker import Walker, walk_layout


class Intake(Component):
    """Requantizes rows of accumulators to 16 bits, ``lanes`` a cycle: equation (1).

    The k-th beat of ``i`` takes the k-th parameter word of ``walk``, which goes row by row, and
    becomes a beat of as many 16-bit elements as the walk says, low byte first, with its
    ``row_last`` and ``last``; ``tile_last`` is 0. A walk starts in the cycle after ``start``. One
    beat a cycle; a result comes ``latency`` cycles after its beat was taken at the earliest.
    """

    def __init__(self, config: Config):
        self.config = config
        self._param_addr_width = max(1, (config.param_depth - 1).bit_length())
        super().__init__(
            {
                "start": In(1),
                "walk": In(walk_layout(self._param_addr_width)),
                "param_addr": Out((config.param_depth - 1).bit_length()),
                "params": In(param_layout(config)),
                "i": In(stream.Signature(value_layout(config.lanes))),
                "o": Out(stream.Signature(beat_layout(config))),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from a beat to its result."""
        return 2 + requantizer_latency(registered=self.config.registered)

    def elaborate(self, _platform):
        """Nothing in the pipeline waits; a word comes two cycles after its beat."""
        m = Module()
        m.submodules.places = places = Walker(self._param_addr_width)
        lanes, taken = self.config.lanes, Signal()
        narrow = data.StructLayout(
            {
                "elements": data.ArrayLayout(signed(16), lanes),
                "count": range(lanes + 1),
                "row_last": 1,
                "last": 1,
            }
        )
        m.submodules.out = out = CreditQueue(narrow, self.latency)
        found = out.i.payload
        words, sleep = self.params.lanes, self.config.sleep
        values, held = entering(m, self.i.p, words, taken=taken, sleep=sleep)
        wide = bounds_layout().const(bounds_of(0, -(1 << 15), (1 << 15) - 1))
        for lane, params in enumerate(held):
            unit = Requantizer(self.config.multiplier_width, self.config.registered)
            m.submodules[f"requantizer_{lane}"] = unit
            m.d.comb += [
                unit.en.eq(1),
                unit.x.eq(values[lane]),
                unit.bias.eq(params.bias),
                unit.multiplier.eq(params.multiplier),
                unit.shift.eq(params.shift),
                unit.bounds.eq(wide),
                found.elements[lane].eq(unit.y),
            ]
        m.d.comb += [
            places.start.eq(self.start),
            places.walk.eq(self.walk),
            places.o.ready.eq(taken),
            self.i.ready.eq(out.room),
            taken.eq(self.i.valid & out.room),
            self.param_addr.eq(places.o.p.addr),
            out.taken.eq(taken),
            out.i.valid.eq(delay(m, taken, self.latency, reset=True)),
            found.count.eq(delay(m, places.o.p.count[: len(found.count)], self.latency)),
            found.row_last.eq(delay(m, places.o.p.row_last, self.latency)),
            found.last.eq(delay(m, places.o.p.last, self.latency)),
            self.o.p.data.as_value().eq(Cat(out.o.p.elements)),
            self.o.p.count.eq(out.o.p.count),
            self.o.p.row_last.eq(out.o.p.row_last),
            self.o.p.last.eq(out.o.p.last),
            self.o.valid.eq(out.o.valid),
            out.o.ready.eq(self.o.ready),
        ]
        return m
