"""Reads a matrix from the scratchpad as a stream of beats."""

from amaranth.hdl import Cat, Module, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from arch.config import SRAM_LATENCY, Config
from arch.isa import COUNT_WIDTH
from hdl.ports import ReadPort
from hdl.walker import Walker, walk_layout

FIFO_DEPTH = SRAM_LATENCY + 3
"""Answers that may be under way or waiting: enough for one a cycle."""


def beat_layout(config: Config) -> data.StructLayout:
    """Return one beat of a :class:`RowReader`."""
    return data.StructLayout(
        {
            "data": data.ArrayLayout(unsigned(8), config.line_bytes),
            "count": unsigned(COUNT_WIDTH),
            "row_last": 1,
            "tile_last": 1,
            "last": 1,
        }
    )


class RowReader(wiring.Component):
    """Answers a walk over scratchpad addresses with the bytes found there.

    Each beat of ``o`` holds ``line_bytes`` bytes from the beat's address on, and all but the
    address of the walk's beat. One beat a cycle; the first comes
    ``SRAM_LATENCY + 3`` cycles after ``start`` if the scratchpad answers at once.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "start": In(1),
                "walk": In(walk_layout(config.sp_addr_width)),
                "port": Out(ReadPort(config)),
                "o": Out(stream.Signature(beat_layout(config))),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        m.submodules.walker = walker = Walker(self.config.sp_addr_width)
        m.d.comb += [walker.start.eq(self.start), walker.walk.eq(self.walk)]
        beat = self.o.p.shape()
        m.submodules.fifo = fifo = SyncFIFOBuffered(width=beat.size, depth=FIFO_DEPTH)

        # A request goes out only if the queue will have room for its answer.
        pending = Signal(range(FIFO_DEPTH + 1))
        taken = Signal()
        m.d.comb += [
            self.port.request.p.eq(walker.o.p.addr),
            self.port.request.valid.eq(walker.o.valid & (pending != FIFO_DEPTH)),
            taken.eq(self.port.request.valid & self.port.request.ready),
            walker.o.ready.eq(taken),
        ]
        m.d.sync += pending.eq(pending + taken - (self.o.valid & self.o.ready))

        # What the walk says of a beat waits as long as the scratchpad takes.
        place = walker.o.p.as_value()[len(walker.o.p.addr) :]
        for stage in range(SRAM_LATENCY):
            delayed = Signal(len(place), name=f"place_{stage}")
            m.d.sync += delayed.eq(place)
            place = delayed
        m.d.comb += [
            fifo.w_data.eq(Cat(self.port.data, place)),
            fifo.w_en.eq(self.port.valid),
        ]
        m.d.comb += [
            self.o.p.as_value().eq(fifo.r_data),
            self.o.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(self.o.ready),
        ]
        return m
