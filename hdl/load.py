"""The load engine: rows of external memory to the scratchpad."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out, connect, flipped

from arch.config import Config
from arch.isa import Engine
from hdl.address import Bursts, Rows, span_layout
from hdl.ports import EngineStatus, MaskReadPort, MemoryReadPort, WritePort, command_layout

ROWS_AHEAD = 32
"""Rows whose data may be under way."""


class LoadEngine(wiring.Component):
    """Runs LOAD commands: copies ``m`` rows of ``row_bytes`` bytes, leaving out masked ones.

    ``dram_addr`` and ``dram_stride`` are multiples of the memory word's bytes, ``sp_addr`` and
    ``sp_stride`` anything; a row's last word is written in part. ``i`` takes commands and
    ``memory`` is asked for their rows while the data of those before is still under way, over up
    to 32 rows of any number of commands; bursts are those of ``hdl.address.Bursts``. One memory
    word a cycle goes through: a row costs its words, if ``memory`` takes a request for each
    within that time. A masked row costs one cycle of asking and none of data. ``status.done`` is
    1 in the cycle in which the last write of a command was taken.
    """

    def __init__(self, config: Config):
        self.config = config
        ports = {
            "i": In(stream.Signature(command_layout(Engine.LOAD))),
            "status": Out(EngineStatus()),
            "memory": Out(MemoryReadPort(config)),
            "write": Out(WritePort(config)),
        }
        if config.tile_skip:
            ports["mask"] = Out(MaskReadPort(config))
        super().__init__(ports)

    def elaborate(self, _platform):
        m = Module()
        m.submodules.rows = rows = Rows(self.config)
        m.submodules.bursts = bursts = Bursts(self.config)
        layout = span_layout(self.config)
        m.submodules.ahead = ahead = SyncFIFOBuffered(width=layout.size, depth=ROWS_AHEAD + 1)
        connect(m, flipped(self.i), rows.i)
        if self.config.tile_skip:
            connect(m, rows.mask, flipped(self.mask))

        # Each row is asked for, and remembered until its data comes; an empty one only remembered.
        request = self.memory.request
        m.d.comb += [
            bursts.i.p.eq(rows.o.p),
            bursts.i.valid.eq(rows.o.valid & ahead.w_rdy & ~rows.o.p.span.empty),
            rows.o.ready.eq(ahead.w_rdy & (bursts.i.ready | rows.o.p.span.empty)),
            ahead.w_data.eq(rows.o.p.span),
            ahead.w_en.eq(rows.o.valid & rows.o.ready),
            request.p.addr.eq(bursts.o.p.word_addr * self.config.mem_bytes),
            request.p.last.eq(bursts.o.p.last),
            request.valid.eq(bursts.o.valid),
            bursts.o.ready.eq(request.ready),
        ]
        self._write(m, ahead, rows.busy)
        return m

    def _write(self, m: Module, ahead: SyncFIFOBuffered, asking: Signal) -> None:
        """Write each row's words as they come."""
        write, words = self.write.request, self.memory.data
        row = Signal(span_layout(self.config))
        active, end = Signal(), Signal()
        final = Signal()
        free, take, row_end = Signal(), Signal(), Signal()
        m.d.comb += [
            free.eq(~write.valid | write.ready),
            take.eq(active & free & (words.valid | row.empty)),
            words.ready.eq(active & free & ~row.empty),
            row_end.eq(take & (row.empty | final)),
            ahead.r_en.eq(~active | row_end),
        ]
        with m.If(ahead.r_en):
            m.d.sync += [
                row.eq(ahead.r_data),
                final.eq(span_layout(self.config)(ahead.r_data).words == 0),
                active.eq(ahead.r_rdy),
            ]
        with m.Elif(take):
            m.d.sync += [
                row.sp_addr.eq(row.sp_addr + self.config.mem_bytes),
                row.words.eq(row.words - 1),
                final.eq(row.words == 1),
            ]
        with m.If(free):
            m.d.sync += [
                write.valid.eq(take & ~row.empty),
                write.p.addr.eq(row.sp_addr),
                write.p.count.eq(Mux(final, row.tail + 1, self.config.mem_bytes)),
                write.p.data.as_value().eq(words.p),
                end.eq(row_end & row.last),
                self.status.push.eq(row.push),
            ]
        m.d.comb += [
            self.status.done.eq(end & free),
            self.status.busy.eq(asking | (ahead.level != 0) | active | write.valid | end),
            self.status.stall.eq(~free | (active & ~row.empty & ~words.valid)),
        ]
