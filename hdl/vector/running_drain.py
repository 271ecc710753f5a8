"""Draining with running rows: division by the row's sum, and rescaling of the residual."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from arch.config import Config
from arch.functions import KEEP_FRACTION
from arch.isa import COUNT_WIDTH
from arch.polynomial import MANTISSA_WIDTH
from hdl.arithmetic.multiplier import multiply
from hdl.component import Component
from hdl.functions.running import (
    HALVINGS_WIDTH,
    KEEP_WIDTH,
    RunningWritePort,
    row_shape,
    running_depth,
)
from hdl.memory.ram import Ram
from hdl.stream.pipeline import delay
from hdl.vector.beats import beat_layout, elements
from hdl.vector.walker import Walker

MIN_SHIFT = -31
"""Smallest shift of equation (1)."""


def scale_layout() -> data.StructLayout:
    """Return multiplier and shift of equation (1)."""
    return data.StructLayout({"multiplier": signed(32), "shift": signed(8)})


class RunningScale(Component):
    """Multiplier and shift of equation (1) for each beat of a drain, divided by its row's sum.

    After ``start``, the k-th payload of ``o`` is of the k-th beat of m rows of n columns as
    :class:`DrainReader` brings them, the first row's running row being ``row``. ``scale``
    holds the multiplier and the shift that are to be divided from the second cycle after
    ``start`` to the last payload. The first payload comes ``latency`` cycles after ``start``, for
    which the first accumulators wait, then one per cycle. Integers are
    :meth:`sim.running.RunningRows.scale`'s. Two 17x17-bit multiplications.
    """

    latency = 5

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "start": In(1),
                "row": In(row_shape(config.running_rows)),
                "m": In(COUNT_WIDTH),
                "n": In(COUNT_WIDTH),
                "scale": In(scale_layout()),
                "write": In(RunningWritePort(config.running_rows)),
                "o": Out(stream.Signature(scale_layout())),
            }
        )

    def elaborate(self, _platform):
        """Read the row, multiply by halves, add and round; all hold still with the last."""
        m = Module()
        config = self.config
        m.submodules.walker = walker = Walker(len(self.row))
        width = MANTISSA_WIDTH + HALVINGS_WIDTH
        m.submodules.sums = sums = Ram(width, running_depth(config.running_rows))
        moves = Signal()
        m.d.comb += [
            walker.start.eq(self.start),
            walker.walk.base.eq(self.row),
            walker.walk.row_step.eq(1),
            walker.walk.m.eq(self.m),
            walker.walk.n.eq(self.n),
            walker.walk.beat.eq(config.lanes),
            walker.walk.tile.eq(config.cols),
            walker.o.ready.eq(moves),
            sums.write_en.eq(self.write.en),
            sums.write_addr.eq(self.write.row),
            sums.write_data.eq(Cat(self.write.inverse, self.write.halvings)),
            sums.read_en.eq(moves),
            sums.read_addr.eq(walker.o.p.addr),
            moves.eq(~self.o.valid | self.o.ready),
            self.o.valid.eq(delay(m, walker.o.valid, self.latency - 1, en=moves, reset=True)),
        ]
        row = delay(m, sums.read_data, 1, en=moves)
        inverse, halvings = row[:MANTISSA_WIDTH], row[MANTISSA_WIDTH:]
        multiplier = self.scale.multiplier
        low, high = (
            multiply(m, name, half, sums.read_data[:MANTISSA_WIDTH], en=moves)
            for name, half in (("low", multiplier[:16]), ("high", multiplier[16:].as_signed()))
        )
        product = Signal(signed(32 + MANTISSA_WIDTH + 1))
        shift = Signal(signed(len(self.scale.shift) + 2))
        none = Signal()
        m.d.comb += [
            product.eq((high << 16) + low + (1 << (MANTISSA_WIDTH - 1))),
            none.eq((shift < MIN_SHIFT) | delay(m, inverse == 0, 1, en=moves)),
        ]
        with m.If(moves):
            m.d.sync += [
                shift.eq(delay(m, self.scale.shift, 1, en=moves) + 1 - halvings),
                self.o.p.multiplier.eq(Mux(none, 0, product >> MANTISSA_WIDTH)),
                self.o.p.shift.eq(Mux(none, 0, shift)),
            ]
        return m


class ResidualLane(Component):
    """One lane of :class:`ResidualScale`: ``o`` is ``element`` times ``keep`` of two cycles later.

    Latency is ``latency`` cycles with ``en`` at 1; everything holds still while ``en`` is 0.
    """

    latency = 5

    en: In(1)
    element: In(signed(16))
    keep: In(KEEP_WIDTH)
    o: Out(signed(16))

    def elaborate(self, _platform):
        """Wait, multiply, round."""
        m = Module()
        product = Signal(signed(16 + KEEP_WIDTH + 1))
        element = delay(m, self.element, 2, en=self.en)
        m.d.comb += product.eq(multiply(m, "product", element, self.keep, en=self.en))
        with m.If(self.en):
            m.d.sync += self.o.eq((product + (1 << (KEEP_FRACTION - 1))) >> KEEP_FRACTION)
        return m


class ResidualScale(Component):
    """The share of residuals that their running rows keep; with ``running`` at 0, all of it.

    ``i`` brings the beats of a walk tile by tile, the first row's running row being the ``row`` at
    ``start``; ``o`` as many beats of 16-bit elements, and nothing else of them. Latency is
    ``latency`` cycles, throughput one beat per cycle. A 17x17-bit multiplication for each lane.
    """

    latency = ResidualLane.latency

    def __init__(self, config: Config):
        self.config = config
        beats = stream.Signature(beat_layout(config))
        super().__init__(
            {
                "start": In(1),
                "running": In(1),
                "row": In(row_shape(config.running_rows)),
                "write": In(RunningWritePort(config.running_rows)),
                "i": In(beats),
                "o": Out(beats),
            }
        )

    def elaborate(self, _platform):
        """Read the row's share for the lanes; all hold still with the last."""
        m = Module()
        m.submodules.shares = shares = Ram(KEEP_WIDTH, running_depth(self.config.running_rows))
        moves, taken = Signal(), Signal()
        first, row = Signal.like(self.row), Signal.like(self.row)
        with m.If(self.start):
            m.d.sync += [first.eq(self.row), row.eq(self.row)]
        with m.Elif(taken & self.i.p.tile_last):
            m.d.sync += row.eq(first)
        with m.Elif(taken & self.i.p.row_last):
            m.d.sync += row.eq(row + 1)
        m.d.comb += [
            shares.write_en.eq(self.write.en),
            shares.write_addr.eq(self.write.row),
            shares.write_data.eq(self.write.keep),
            shares.read_en.eq(moves),
            shares.read_addr.eq(row),
            moves.eq(~self.o.valid | self.o.ready),
            self.i.ready.eq(moves),
            taken.eq(self.i.valid & moves),
            self.o.valid.eq(delay(m, taken, self.latency, en=moves, reset=True)),
        ]
        # A register behind the memory: block RAM answers late.
        keep = Mux(self.running, delay(m, shares.read_data, 1, en=moves), 1 << KEEP_FRACTION)
        scaled = []
        for index, element in enumerate(elements(self.i.p, self.config.lanes, 2)):
            m.submodules[f"lane_{index}"] = lane = ResidualLane()
            m.d.comb += [lane.en.eq(moves), lane.element.eq(element), lane.keep.eq(keep)]
            scaled.append(lane.o)
        m.d.comb += self.o.p.data.as_value().eq(Cat(scaled))
        return m
