"""Reads a matrix from the scratchpad as a stream of beats."""

from amaranth.hdl import Cat, Signal, unsigned
from amaranth.lib import stream
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.lib.wiring import In, Out, connect, flipped

from celosia.arch.access import Access
from celosia.arch.latency import has_line_register, reader_latency
from celosia.hdl.component import Component
from celosia.hdl.memory.requests import Requests
from celosia.hdl.ports import ReadPort
from celosia.hdl.stream.pipeline import delay
from celosia.hdl.stream.slice import slices
from celosia.hdl.vector.beats import beat_layout
from celosia.hdl.vector.walker import Walker, walk_layout


class RowReader(Component):
    """Reads a matrix from the scratchpad; outputs each line of ``line_bytes`` bytes as a beat.

    ``walk`` describes the lines' addresses (:class:`Walker`). The first beat follows ``start`` by
    ``reader_latency`` cycles. Throughput is one beat per cycle. ``start`` must be 0 while
    ``walking`` is 1.
    """

    def __init__(self, access: Access, *, stages: int = 0, wraps: bool = False, ahead: int = 0):
        self.ahead = max(ahead, reader_latency(stages))
        super().__init__(
            {
                "start": In(1),
                "walk": In(walk_layout(access.addr_width, wraps=wraps)),
                "walking": Out(1),
                "port": Out(ReadPort(access)),
                "o": Out(stream.Signature(beat_layout(access))),
            }
        )

    def circuit(self, m):
        m.submodules.walker = walker = Walker(self.access.addr_width, wraps=self.wraps)
        m.d.comb += [walker.start.eq(self.start), walker.walk.eq(self.walk)]
        note = walker.o.p.as_value()[len(walker.o.p.addr) :]
        m.submodules.requests = requests = Requests(
            self.access, unsigned(len(note)), stages=self.stages
        )
        connect(m, requests.port, flipped(self.port))
        # Answers in flight or waiting.
        width, depth = self.o.p.shape().size, self.ahead
        line, valid = Cat(self.port.data, requests.note), self.port.valid
        queue = SyncFIFOBuffered
        if has_line_register(self.access, self.stages):
            line, valid = delay(m, line, 1), delay(m, valid, 1, reset=True)
            queue = SyncFIFO
        m.submodules.fifo = fifo = queue(width=width, depth=depth)
        # A request is sent only if the queue will have room for its answer.
        pending = Signal(range(depth + 1))
        room = Signal()
        m.d.comb += [
            room.eq(pending != depth),
            requests.i.p.addr.eq(walker.o.p.addr),
            requests.i.p.note.eq(note),
            requests.i.valid.eq(walker.o.valid & room),
            walker.o.ready.eq(requests.i.ready & room),
            self.walking.eq(walker.o.valid),
        ]
        beats = stream.Signature(beat_layout(self.access)).create()
        connect(m, slices(m, beats, "stage", stages=self.stages), flipped(self.o))
        m.d.comb += [
            fifo.w_data.eq(line),
            fifo.w_en.eq(valid),
            beats.p.as_value().eq(fifo.r_data),
            beats.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(beats.ready),
        ]
        accepted = requests.i.valid & requests.i.ready
        m.d.sync += pending.eq(pending + accepted - (beats.valid & beats.ready))
