"""Bursts of the memory port, cut into pieces for PSRAM commands."""

from amaranth.hdl import Cat, Const, Mux, Signal
from amaranth.lib.stream import Signature
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from celosia.arch.psram import PsramChip
from celosia.arch.records import Memory
from celosia.hdl.component import Component
from celosia.hdl.ports import burst_layout


class Bursts(Component):
    """Accepts read and write bursts, and generates the column addresses of each burst.

    A burst is divided into pieces, one for each command to the chip: a new piece begins at each
    column address that is a multiple of ``columns``.

    - ``busy``: 1 during a burst, from the cycle after its request.
    - ``writes``: 1 for a write burst.
    - ``place``: address of the next column.
    - ``step``: must be 1 to advance to the next column.
    - ``ends``, ``final``: 1 if the column is the last one of a piece, or of the burst.
    - ``ahead``: number of columns in the piece after the column at ``place``.
    """

    def __init__(self, memory: Memory, chip: PsramChip, columns: int):
        burst = Signature(burst_layout(memory))
        super().__init__(
            {
                "read": In(burst),
                "write": In(burst),
                "busy": Out(1),
                "writes": Out(1),
                "place": Out(memory.addr_width - exact_log2(chip.column_bytes)),
                "ahead": Out(range(columns)),
                "ends": Out(1),
                "final": Out(1),
                "step": In(1),
            }
        )

    def circuit(self, m):
        ratio = self.memory.word_bytes // self.chip.column_bytes
        left = Signal(range(256 * ratio))  # columns after the next one
        low = self.place[: exact_log2(self.columns)]
        beyond = Signal(range(256 * ratio + self.columns))
        chosen, asked = Signal(), Signal(burst_layout(self.memory))
        m.d.comb += [
            beyond.eq(left + low),
            self.ahead.eq(Mux(beyond < self.columns, left, ~low)),
            self.final.eq(left == 0),
            self.ends.eq(self.final | low.all()),
            chosen.eq(self.write.valid & ~(self.read.valid & self.writes)),
            self.read.ready.eq(~self.busy & ~chosen),
            self.write.ready.eq(~self.busy & chosen),
            asked.eq(Mux(chosen, self.write.p, self.read.p)),
        ]
        with m.If(self.step):
            m.d.sync += [
                self.place.eq(self.place + 1),
                left.eq(left - 1),
                self.busy.eq(~self.final),
            ]
        with m.Elif(~self.busy):
            m.d.sync += [
                self.place.eq(asked.addr >> exact_log2(self.chip.column_bytes)),
                left.eq(Cat(Const(ratio - 1, exact_log2(ratio)), asked.last)),
                self.writes.eq(Mux(self.read.valid | self.write.valid, chosen, self.writes)),
                self.busy.eq(self.read.valid | self.write.valid),
            ]
