"""From accumulators to the 16-bit elements that softmax and normalization take."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from arch.config import Config
from hdl.arithmetic.requantize import (
    Requantizer,
    bounds_layout,
    bounds_of,
    requantizer_latency,
)
from hdl.component import Component
from hdl.stream.pipeline import delay
from hdl.stream.skid import Skid
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
                "param_en": Out(1),
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
        """The whole pipeline moves, or none of it; a word comes two cycles after its beat."""
        m = Module()
        m.submodules.places = places = Walker(self._param_addr_width)
        m.submodules.out = out = Skid(self.o.p.shape())
        wiring.connect(m, out.o, wiring.flipped(self.o))
        en, taken = Signal(), Signal()
        count = Signal(range(self.config.lanes + 1))
        words, sleep = self.params.lanes, self.config.sleep
        values, held = entering(m, self.i.p, words, en=en, taken=taken, sleep=sleep)
        wide = bounds_layout().const(bounds_of(0, -(1 << 15), (1 << 15) - 1))
        elements = []
        for lane, params in enumerate(held):
            unit = Requantizer(self.config.multiplier_width, self.config.registered)
            m.submodules[f"requantizer_{lane}"] = unit
            m.d.comb += [
                unit.en.eq(en),
                unit.x.eq(values[lane]),
                unit.bias.eq(params.bias),
                unit.multiplier.eq(params.multiplier),
                unit.shift.eq(params.shift),
                unit.bounds.eq(wide),
            ]
            elements.append(unit.y)
        m.d.comb += [
            places.start.eq(self.start),
            places.walk.eq(self.walk),
            places.o.ready.eq(taken),
            count.eq(places.o.p.count),
            en.eq(~out.i.valid | out.i.ready),
            self.i.ready.eq(en),
            taken.eq(self.i.valid & en),
            self.param_addr.eq(places.o.p.addr),
            self.param_en.eq(en),
            out.i.valid.eq(delay(m, taken, self.latency, en=en, reset=True)),
            out.i.p.data.eq(Cat(elements)),
            out.i.p.count.eq(delay(m, count, self.latency, en=en)),
            out.i.p.row_last.eq(delay(m, places.o.p.row_last, self.latency, en=en)),
            out.i.p.last.eq(delay(m, places.o.p.last, self.latency, en=en)),
        ]
        return m
