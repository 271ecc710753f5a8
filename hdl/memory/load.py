"""The load engine, which copies rows of external memory to the scratchpad."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out, connect, flipped

from celosia.arch.access import Access
from celosia.arch.isa import Engine
from celosia.arch.records import Memory
from celosia.hdl.component import Component
from celosia.hdl.memory.address import Bursts, Rows, span_layout
from celosia.hdl.memory.protected import (
    ProtectedFifo,
    error_port,
    errors_of,
    gather,
    protected_fifo,
)
from celosia.hdl.ports import EngineStatus, MemoryReadPort, WritePort, command_layout
from celosia.hdl.stream.slice import RegisterSlice

ROWS_AHEAD = 32
"""Rows whose data may be in flight."""


class LoadEngine(Component):
    """Runs LOAD commands; each copies ``m`` rows of ``row_bytes`` bytes to the scratchpad.

    Throughput is one memory word per cycle. Up to 32 rows are requested before their data arrive.
    ``dram_addr`` and ``dram_stride`` must be multiples of a memory word's size. ``status.done`` is
    1 in the cycle in which a command's last write is accepted.
    """

    def __init__(self, memory: Memory, access: Access, *, stages: int = 0, level: str = "none"):
        self._memory, self._access = memory, access
        ports = {
            "i": In(stream.Signature(command_layout(Engine.LOAD))),
            "status": Out(EngineStatus()),
            "memory": Out(MemoryReadPort(memory)),
            "write": Out(WritePort(access)),
        }
        ports |= error_port(level)
        super().__init__(ports)

    def circuit(self, m):
        m.submodules.rows = rows = Rows(self._memory, self._access, stages=self.stages)
        m.submodules.bursts = bursts = Bursts(self._memory, self._access)
        size, depth = rows.o.p.span.shape().size, ROWS_AHEAD + 1
        m.submodules.ahead = ahead = protected_fifo(size, depth, self.level)
        gather(m, self, errors_of([ahead]))
        connect(m, flipped(self.i), rows.i)

        # Each row is requested, and queued until its data arrive; an empty row is only queued.
        request = self.memory.request
        m.d.comb += [
            bursts.i.p.eq(rows.o.p),
            bursts.i.valid.eq(rows.o.valid & ahead.w_rdy & ~rows.o.p.span.empty),
            rows.o.ready.eq(ahead.w_rdy & (bursts.i.ready | rows.o.p.span.empty)),
            ahead.w_data.eq(rows.o.p.span),
            ahead.w_en.eq(rows.o.valid & rows.o.ready),
            request.p.addr.eq(bursts.o.p.word_addr * self._memory.word_bytes),
            request.p.last.eq(bursts.o.p.last),
            request.valid.eq(bursts.o.valid),
            bursts.o.ready.eq(request.ready),
        ]
        self._write(m, ahead, rows.busy)

    def _write(self, m: Module, ahead: SyncFIFOBuffered | ProtectedFifo, asking: Signal) -> None:
        """Write each row's words as they arrive."""
        write, words = self.write.request, self.memory.data
        word_bytes, span = self._memory.word_bytes, span_layout(self._memory, self._access)
        row = Signal(span, reset_less=True)
        active, final = Signal(), Signal()
        # Two places for writes, or for the end of a command that no row follows.
        layout = {"write": write.p.shape(), "some": 1, "end": 1, "push": row.push.shape()}
        m.submodules.stage = stage = RegisterSlice(data.StructLayout(layout))
        step, done = stage.i, stage.o
        free, take, row_end = step.ready, Signal(), Signal()
        m.d.comb += [
            take.eq(active & free & (words.valid | row.empty)),
            words.ready.eq(active & free & ~row.empty),
            row_end.eq(take & (row.empty | final)),
            ahead.r_en.eq(~active | row_end),
        ]
        with m.If(ahead.r_en):
            m.d.sync += [
                row.eq(ahead.r_data),
                final.eq(span(ahead.r_data).words == 0),
                active.eq(ahead.r_rdy),
            ]
        with m.Elif(take):
            m.d.sync += [
                row.sp_addr.eq(row.sp_addr + word_bytes),
                row.words.eq(row.words - 1),
                final.eq(row.words == 1),
            ]
        m.d.comb += [
            step.valid.eq(take),
            step.p.write.addr.eq(row.sp_addr),
            step.p.write.count.eq(Mux(final, row.tail + 1, word_bytes)),
            step.p.write.data.as_value().eq(words.p),
            step.p.some.eq(~row.empty),
            step.p.end.eq(row_end & row.last),
            step.p.push.eq(row.push),
            write.valid.eq(done.valid & done.p.some),
            write.p.eq(done.p.write),
            done.ready.eq(write.ready | ~done.p.some),
            self.status.done.eq(done.valid & done.ready & done.p.end),
            self.status.push.eq(done.p.push),
            self.status.busy.eq(asking | (ahead.level != 0) | active | done.valid),
            self.status.stall.eq(
                (write.valid & ~write.ready) | (active & ~row.empty & ~words.valid)
            ),
        ]
