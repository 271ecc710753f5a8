"""Bursts of the memory port, cut at the ends of the rows of an SDRAM chip."""

from amaranth.hdl import Cat, Const, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from celosia.arch.records import Memory
from celosia.arch.sdram import SdramChip
from celosia.hdl.component import Component
from celosia.hdl.ports import burst_layout
from celosia.hdl.stream.slice import RegisterSlice


def piece_layout(chip: SdramChip) -> data.StructLayout:
    """Return the layout of a piece of a burst: columns ``col`` to ``col + last`` of one row.

    ``final`` is 1 for the last piece of a burst.
    """
    return data.StructLayout(
        {
            "row": chip.row_bits,
            "bank": chip.bank_bits,
            "col": chip.col_bits,
            "last": chip.col_bits,
            "final": 1,
        }
    )


class PageCutter(Component):
    """Cuts bursts into pieces, each in one row of one SDRAM bank.

    A byte address consists of row, bank, column and byte, from the highest bit. A piece is
    available one cycle after its burst, or the previous piece, is accepted.
    """

    def __init__(self, memory: Memory, chip: SdramChip):
        super().__init__(
            {
                "i": In(stream.Signature(burst_layout(memory))),
                "o": Out(stream.Signature(piece_layout(chip))),
            }
        )

    def circuit(self, m):
        chip = self.chip
        ratio = 8 * self.memory.word_bytes // chip.data_width
        col = Signal(chip.col_bits)
        rows = Signal(chip.bank_bits + chip.row_bits)  # the row, and below it the bank
        valid = Signal()
        left = Signal(range(256 * ratio))  # columns after the first
        # The last column's position, which may be beyond the row's end.
        end = Signal(range((1 << chip.col_bits) + 256 * ratio))
        m.d.comb += [
            self.i.ready.eq(~valid),
            end.eq(left + col),
            self.o.valid.eq(valid),
            self.o.p.col.eq(col),
            Cat(self.o.p.bank, self.o.p.row).eq(rows),
            self.o.p.final.eq(end >> chip.col_bits == 0),
            self.o.p.last.eq(Mux(self.o.p.final, left, ~col)),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [
                col.eq(0),
                rows.eq(rows + 1),
                left.eq(end - (1 << chip.col_bits)),
                valid.eq(~self.o.p.final),
            ]
        with m.Elif(self.i.valid & self.i.ready):
            m.d.sync += [
                Cat(col, rows).eq(self.i.p.addr >> exact_log2(chip.data_width // 8)),
                left.eq(Cat(Const(ratio - 1, exact_log2(ratio)), self.i.p.last)),
                valid.eq(1),
            ]


class Pieces(Component):
    """Cuts read and write bursts into pieces, and outputs the pieces as one stream ``o``.

    A piece is a range of columns in one row of one SDRAM bank. Waiting reads and writes alternate
    by bursts. ``o.p.writes`` is 1 for a write. A burst's first piece follows the accepted request
    by two cycles.
    """

    def __init__(self, memory: Memory, chip: SdramChip):
        burst = burst_layout(memory)
        layout = data.StructLayout({"piece": piece_layout(chip), "writes": 1})
        super().__init__(
            {
                "read": In(stream.Signature(burst)),
                "write": In(stream.Signature(burst)),
                "o": Out(stream.Signature(layout)),
            }
        )

    def circuit(self, m):
        m.submodules.reads = reads = PageCutter(self.memory, self.chip)
        m.submodules.writes = writes = PageCutter(self.memory, self.chip)
        m.submodules.slice = passed = RegisterSlice(self.o.p.shape())
        connect(m, flipped(self.read), reads.i)
        connect(m, flipped(self.write), writes.i)
        connect(m, passed.o, flipped(self.o))
        chosen, before, within = Signal(), Signal(), Signal()
        # Within a burst its direction stays; after it the other direction is next.
        m.d.comb += chosen.eq(Mux(within, before, writes.o.valid & ~(reads.o.valid & before)))
        for cutter, here in ((reads, ~chosen), (writes, chosen)):
            with m.If(here):
                m.d.comb += [
                    passed.i.p.piece.eq(cutter.o.p),
                    passed.i.valid.eq(cutter.o.valid),
                    cutter.o.ready.eq(passed.i.ready),
                ]
        m.d.comb += passed.i.p.writes.eq(chosen)
        with m.If(passed.i.valid & passed.i.ready):
            m.d.sync += [before.eq(chosen), within.eq(~passed.i.p.piece.final)]
