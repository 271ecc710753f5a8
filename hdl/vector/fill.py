"""Fills the vector engine's parameter and table memories from scratchpad beats."""

from amaranth.hdl import Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from celosia.arch.vector_config import VectorConfig
from celosia.hdl.component import Component
from celosia.hdl.functions.table import TableWritePort
from celosia.hdl.vector.beats import beat_layout


class Fill(Component):
    """Writes beats of ``i`` to the parameter memory, or to a table of an activation function.

    A beat is one transfer of bytes from the scratchpad. For the parameter memory, it is a line of a
    parameter word. For a table, beat e has entry e of the table in byte ``e % scratchpad_align``.
    ``done`` is 1 in the cycle of the last beat.
    """

    start: Signal
    """1 before the first beat, to begin a transfer."""
    params: Signal
    """1 during a transfer to the parameter memory."""
    table: Signal
    """1 during a transfer to a table."""
    addr: Signal
    """The first parameter word, at ``start``; or the table, throughout the transfer."""
    param_en: Signal
    """1 to write the beat on ``i`` to line ``param_line`` of word ``param_addr``."""
    param_addr: Signal
    """The parameter word to write."""
    param_line: Signal
    """The line of the word to write."""

    def __init__(self, config: VectorConfig):
        largest = max(config.vector.words, config.table_slots)
        members = {
            "start": In(1),
            "params": In(1),
            "table": In(1),
            "done": Out(1),
            "addr": In((largest - 1).bit_length()),
            "i": In(stream.Signature(beat_layout(config.access))),
            "param_en": Out(1),
            "param_addr": Out((config.vector.words - 1).bit_length()),
            "param_line": Out(range(config.param_lines)),
        }
        if config.activation:
            members["table_write"] = Out(TableWritePort(config.table_slots))
        super().__init__(members)

    def circuit(self, m):
        config = self.config
        addr = Signal.like(self.addr)
        line = Signal(range(config.param_lines))
        index = Signal(8)
        m.d.comb += [
            self.i.ready.eq(1),
            self.done.eq(self.i.valid & self.i.p.last),
            self.param_en.eq(self.i.valid & self.params),
            self.param_addr.eq(addr),
            self.param_line.eq(line),
        ]
        if config.activation:
            # Addresses omit the bits below the alignment, so several bytes of a table share a beat.
            low = (config.access.align - 1).bit_length()
            byte = self.i.p.data[index[:low]] if low else self.i.p.data[0]
            m.d.comb += [
                self.table_write.en.eq(self.i.valid & self.table),
                self.table_write.slot.eq(self.addr),
                self.table_write.index.eq(index),
                self.table_write.value.eq(byte),
            ]
        with m.If(self.start):
            m.d.sync += [addr.eq(self.addr), line.eq(0), index.eq(0)]
        with m.Elif(self.i.valid):
            m.d.sync += index.eq(index + 1)
            with m.If(self.params & ~self.i.p.row_last):
                m.d.sync += line.eq(line + 1)
            with m.Elif(self.params):
                m.d.sync += [addr.eq(addr + 1), line.eq(0)]
