"""A queue behind a pipeline that never stands still."""

from amaranth.hdl import Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import stream
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from hdl.component import Component
from hdl.stream.flow import Flow


class CreditQueue(Component):
    """Takes all that a pipeline of ``latency`` cycles brings, so that its registers need no enable.

    A payload may enter the pipeline, which ``taken`` tells, only while ``room``, a credit, is 1:
    then there is a place for it behind the pipeline, whenever it comes to ``i``. ``room`` depends
    on no input. ``o`` brings payloads in order, each in the cycle in which it comes to ``i`` at the
    earliest; throughput is one a cycle, behind a wait as well.
    """

    def __init__(self, payload: ShapeLike, latency: int):
        self.payload = payload
        self.latency = latency
        super().__init__(
            {
                "taken": In(1),
                "room": Out(1, init=1),
                "i": In(Flow(payload)),
                "o": Out(stream.Signature(payload)),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        # One place more than the pipeline has: a credit comes back a cycle late.
        places = self.latency + 1
        incoming, used = Value.cast(self.i.payload), Signal(range(places + 1))
        m.submodules.queue = queue = SyncFIFO(width=len(incoming), depth=places)
        m.d.comb += [
            self.room.eq(used != places),
            self.o.valid.eq(queue.r_rdy | self.i.valid),
            Value.cast(self.o.payload).eq(Mux(queue.r_rdy, queue.r_data, incoming)),
            queue.w_data.eq(incoming),
            queue.w_en.eq(self.i.valid & (queue.r_rdy | ~self.o.ready)),
            queue.r_en.eq(self.o.ready),
        ]
        m.d.sync += used.eq(used + self.taken - (self.o.valid & self.o.ready))
        return m
