"""The store engine, which copies rows of the scratchpad to external memory."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out, connect, flipped

from celosia.arch.access import Access
from celosia.arch.isa import Engine
from celosia.arch.latency import has_line_register, requests_latency
from celosia.arch.records import Memory
from celosia.hdl.component import Component
from celosia.hdl.memory.address import Bursts, Rows, span_layout
from celosia.hdl.memory.requests import Requests
from celosia.hdl.ports import EngineStatus, MemoryWritePort, ReadPort, command_layout
from celosia.hdl.stream.pipeline import delay
from celosia.hdl.stream.skid import skids

BURSTS_AHEAD = 16
"""Most write bursts that memory has not yet reported as written."""

_EVENT = data.StructLayout({"burst": 1, "end": 1, "push": len(Engine)})


class StoreEngine(Component):
    """Runs STORE commands; each copies ``m`` rows of ``row_bytes`` bytes to external memory.

    Throughput is one memory word per cycle. ``dram_addr`` and ``dram_stride`` must be multiples of
    a memory word's size. ``status.done`` is 1 for one cycle when the port ``memory`` reports that a
    command's last burst is written.
    """

    def __init__(self, memory: Memory, access: Access, *, stages: int = 0):
        self._memory, self._access = memory, access
        ports = {
            "i": In(stream.Signature(command_layout(Engine.STORE))),
            "status": Out(EngineStatus()),
            "memory": Out(MemoryWritePort(memory)),
            "read": Out(ReadPort(access)),
        }
        super().__init__(ports)

    def circuit(self, m):
        m.submodules.rows = rows = Rows(self._memory, self._access, stages=self.stages)
        m.submodules.bursts = bursts = Bursts(self._memory, self._access)
        size = rows.o.p.span.shape().size
        m.submodules.ahead = ahead = SyncFIFOBuffered(width=size, depth=3)
        m.submodules.events = events = SyncFIFOBuffered(width=_EVENT.size, depth=BURSTS_AHEAD + 1)
        connect(m, flipped(self.i), rows.i)

        # Every row goes to the burst generator, and rows with words also to the reader.
        m.d.comb += [
            bursts.i.p.eq(rows.o.p),
            bursts.i.valid.eq(rows.o.valid & ahead.w_rdy),
            rows.o.ready.eq(bursts.i.ready & ahead.w_rdy),
            ahead.w_data.eq(rows.o.p.span),
            ahead.w_en.eq(rows.o.valid & rows.o.ready & ~rows.o.p.span.empty),
        ]
        *_, pieces = skids(m, bursts.o, stages=self.stages)
        taken = Signal()
        asked = self._request(m, pieces, events, taken)
        moving = self._words(m, ahead, events.w_rdy, asked, taken)
        self._finish(m, events, rows.busy | pieces.valid | moving, moving)

    def _request(self, m: Module, pieces, events: SyncFIFOBuffered, taken: Signal) -> Signal:
        """Request bursts, and return whether they have words that were not requested yet.

        The result is a register. ``taken`` says that a word is requested.
        """
        request, piece = self.memory.request, pieces.p
        asked = Signal(10)
        some = Signal()
        may = Signal()
        more = Signal()
        event = Signal(_EVENT)
        m.d.comb += [
            may.eq(events.w_rdy & (asked[8:] == 0)),
            request.p.addr.eq(piece.word_addr * self._memory.word_bytes),
            request.p.last.eq(piece.last),
            request.valid.eq(pieces.valid & may & ~piece.empty),
            pieces.ready.eq(may & (request.ready | piece.empty)),
            more.eq(request.valid & request.ready),
            event.burst.eq(~piece.empty),
            event.end.eq(piece.end),
            event.push.eq(piece.push),
            events.w_data.eq(event),
            events.w_en.eq(pieces.valid & pieces.ready),
        ]
        # asked + last + 1 - taken, or asked - 1 + 1 - taken, in one carry chain.
        added = Cat(~taken, Mux(more, piece.last, ~Const(0, len(asked))))
        m.d.sync += [
            asked.eq((Cat(Const(1, 1), asked) + added)[1:]),
            some.eq(more | asked[1:].any() | (asked[0] & ~taken)),
        ]
        return some

    def _words(
        self, m: Module, ahead: SyncFIFOBuffered, room: Signal, asked: Signal, taken: Signal
    ) -> Signal:
        """Read requested words and offer them; return whether any can be moved.

        ``room`` says that another burst can be requested.
        """
        word_bytes, out = self._memory.word_bytes, self.memory.data
        span = span_layout(self._memory, self._access)
        row = Signal(span, reset_less=True)
        active, row_end = Signal(), Signal()
        final = Signal()
        # Words in flight: enough for one a cycle.
        late = has_line_register(self._access, self.stages)
        most = requests_latency(self.stages) + 3 + late
        pending = Signal(range(most + 1))
        # The position of the word's last byte waits for the word.
        m.submodules.requests = requests = Requests(
            self._access, range(word_bytes), stages=self.stages
        )
        connect(m, requests.port, flipped(self.read))
        request, last_byte = requests.i, requests.note
        m.d.comb += [
            request.p.addr.eq(row.sp_addr),
            request.p.note.eq(Mux(final, row.tail, word_bytes - 1)),
            request.valid.eq(active & asked & (pending != most)),
            taken.eq(request.valid & request.ready),
            row_end.eq(taken & final),
            ahead.r_en.eq(~active | row_end),
        ]
        m.d.sync += pending.eq(pending + taken - (out.valid & out.ready))
        with m.If(ahead.r_en):
            m.d.sync += [
                row.eq(ahead.r_data),
                final.eq(span(ahead.r_data).words == 0),
                active.eq(ahead.r_rdy),
            ]
        with m.Elif(taken):
            m.d.sync += [
                row.sp_addr.eq(row.sp_addr + word_bytes),
                row.words.eq(row.words - 1),
                final.eq(row.words == 1),
            ]
        mask = Cat(last_byte >= byte for byte in range(word_bytes))
        word = Cat(self.read.data.as_value()[: 8 * word_bytes], mask)
        valid = self.read.valid
        if late:
            word, valid = delay(m, word, 1), delay(m, valid, 1, reset=True)
        m.submodules.words = words = SyncFIFOBuffered(width=len(word), depth=most)
        m.d.comb += [
            words.w_data.eq(word),
            words.w_en.eq(valid),
            out.p.as_value().eq(words.r_data),
            out.valid.eq(words.r_rdy),
            words.r_en.eq(out.ready),
        ]
        moving = Signal()
        m.d.comb += moving.eq((room & ((ahead.level != 0) | active)) | asked | (pending != 0))
        return moving

    def _finish(self, m: Module, events: SyncFIFOBuffered, busy, moving: Signal) -> None:
        """Complete a command when the last of its bursts has been written."""
        event = Signal(_EVENT)
        read, out = self.read.request, self.memory.data
        written = Signal(range(BURSTS_AHEAD + 2))  # bursts without an event so far
        waits = Signal()
        m.d.comb += [
            event.eq(events.r_data),
            waits.eq(event.burst & (written == 0) & ~self.memory.written),
            events.r_en.eq(events.r_rdy & ~waits),
            self.status.done.eq(events.r_en & event.end),
            self.status.push.eq(event.push),
            self.status.busy.eq(busy | (events.level != 0)),
            self.status.stall.eq(
                (read.valid & ~read.ready)
                | (out.valid & ~out.ready)
                | (self.memory.request.valid & ~self.memory.request.ready)
                | (~moving & events.r_rdy & waits)
            ),
        ]
        m.d.sync += written.eq(written + self.memory.written - (events.r_en & event.burst))
