"""Reads accumulator rows, clears them, and outputs them as a stream of beats."""

from amaranth.hdl import Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from celosia.arch.isa import COUNT_WIDTH
from celosia.arch.vector_config import VectorConfig
from celosia.hdl.component import Component
from celosia.hdl.ports import DrainPort
from celosia.hdl.stream.credits import CreditQueue
from celosia.hdl.stream.fields import inputs
from celosia.hdl.stream.pipeline import delay
from celosia.hdl.vector.beats import value_layout
from celosia.hdl.vector.walker import Walker


class DrainReader(Component):
    """Reads and clears m rows of n accumulators; outputs beats, each of ``lanes`` sums of a row.

    Row i of tile j (``array.cols`` columns) is accumulator row ``acc_addr + i + j * acc_stride``.
    Tiles are output one after another. The first beat follows ``start`` by ``drain_latency``
    cycles, and one more beat follows per cycle.
    """

    acc_addr: Signal
    """The accumulator row of row 0 in tile 0; read in the cycle of ``start``."""
    acc_stride: Signal
    """Accumulator rows from a tile to the next; read in the cycle of ``start``."""
    m: Signal
    """Number of rows; read in the cycle of ``start``."""
    n: Signal
    """Number of columns of all tiles; read in the cycle of ``start``."""
    o: stream.Interface
    """Sums of some columns of a row; ``keep`` is 1 in all bits."""
    asked: Signal
    """1 in the cycle in which the last row is requested."""
    by_row: Signal
    """1 to read all tile columns of a row before the next row."""

    def __init__(self, config: VectorConfig):
        self.wider = config.fused is not None and config.beat_lanes > config.vector.lanes
        members = {
            "start": In(1),
            "acc_addr": In(config.acc_addr_width),
            "acc_stride": In(config.acc_addr_width),
            "m": In(COUNT_WIDTH),
            "n": In(COUNT_WIDTH),
            # 1 in the cycle of the last request; from then on, the next matrix may start.
            "asked": Out(1),
            "port": Out(DrainPort(config.accumulators, config.array.cols)),
            "o": Out(stream.Signature(value_layout(config.beat_lanes))),
        }
        # ``by_row``: all tiles of a row, then the next. ``softmax``: ``softmax_lanes`` sums a beat.
        optional = inputs(by_row=config.fused is not None, softmax=self.wider)
        super().__init__(members | optional)

    def circuit(self, m):
        config = self.config
        m.submodules.walker = walker = Walker(config.acc_addr_width)
        m.d.comb += [
            walker.start.eq(self.start),
            walker.walk.base.eq(self.acc_addr),
            walker.walk.row_step.eq(1),
            walker.walk.tile_step.eq(self.acc_stride),
            walker.walk.m.eq(self.m),
            walker.walk.n.eq(self.n),
            walker.walk.beat.eq(config.array.cols),
            walker.walk.tile.eq(config.array.cols),
        ]
        if config.fused:
            # Then each row is one tile of full width.
            m.d.comb += walker.walk.beat_step.eq(self.acc_stride)
            with m.If(self.by_row):
                m.d.comb += walker.walk.tile.eq(self.n)

        # A request is sent only if the queue will have room for its answer.
        groups = Signal(range(config.lane_groups))
        rows = data.StructLayout({"row": self.port.data.shape(), "groups": len(groups)})
        m.submodules.answers = answers = CreditQueue(rows, config.acc_latency)
        m.d.comb += [
            self.port.request.p.eq(walker.o.p.addr),
            self.port.request.valid.eq(walker.o.valid & answers.room),
            answers.taken.eq(self.port.request.valid & self.port.request.ready),
            walker.o.ready.eq(answers.taken),
            self.asked.eq(answers.taken & walker.o.p.last),
            answers.i.valid.eq(self.port.valid),
            answers.i.payload.row.eq(self.port.data),
            answers.i.payload.groups.eq(delay(m, groups, config.acc_latency)),
        ]
        for group in range(config.lane_groups):
            with m.If(walker.o.p.count > group * config.vector.lanes):
                m.d.comb += groups.eq(group)
        if self.wider:
            with m.If(self.softmax):
                m.d.comb += groups.eq((walker.o.p.count - 1) // config.beat_lanes)

        # The first row in the queue leaves group by group.
        group = Signal.like(groups)
        step, head = Signal(), answers.o.p
        m.d.comb += [
            self.o.p.keep.eq(-1),
            self.o.valid.eq(answers.o.valid),
            step.eq(self.o.valid & self.o.ready),
            answers.o.ready.eq(self.o.ready & (group == head.groups)),
        ]
        m.d.sync += group.eq(Mux(answers.o.valid & answers.o.ready, 0, group + step))
        self._choose(m, group, head.row, config.vector.lanes)
        if self.wider:
            with m.If(self.softmax):
                self._choose(m, group, head.row, config.beat_lanes)

    def _choose(self, m, group, row, lanes):
        """Output ``lanes`` columns of a row: those of a group."""
        for index in range(-(-self.config.array.cols // lanes)):
            with m.If(group == index):
                for lane in range(min(lanes, self.config.array.cols - index * lanes)):
                    m.d.comb += self.o.p.value[lane].eq(row[index * lanes + lane])
