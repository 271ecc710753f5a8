"""A queue after a pipeline that cannot stall: inputs enter it only if the queue has space."""

from amaranth.hdl import Mux, ShapeLike, Signal, Value
from amaranth.lib import stream
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component
from celosia.hdl.stream.flow import Flow


class CreditQueue(Component):
    """Queues the outputs of a pipeline of ``latency`` cycles that cannot stall.

    - ``room``: 1 if a payload may enter the pipeline.
    - ``taken``: must be 1 if a payload enters the pipeline.
    - ``i``: the pipeline's output.
    - ``o``: the payloads in order, up to one per cycle, from the cycle of arrival on.
    """

    def __init__(self, payload: ShapeLike, latency: int):
        super().__init__(
            {
                "taken": In(1),
                "room": Out(1, init=1),
                "i": In(Flow(payload)),
                "o": Out(stream.Signature(payload)),
            }
        )

    def circuit(self, m):
        # One place more than the pipeline's: a credit returns one cycle late.
        places = self.latency + 1
        incoming, used = Value.cast(self.i.payload), Signal(range(places + 1))
        m.submodules.storage = storage = Memory(shape=len(incoming), depth=places, init=[])
        write, read = storage.write_port(), storage.read_port(domain="comb")
        level, waits, left = Signal(range(places + 1)), Signal(), Signal()
        m.d.comb += [
            self.room.eq(used != places),
            self.o.valid.eq(waits | self.i.valid),
            Value.cast(self.o.payload).eq(Mux(waits, read.data, incoming)),
            left.eq(self.o.valid & self.o.ready),
            # Also if it leaves at once, so that the enable does not depend on ``o.ready``.
            write.en.eq(self.i.valid),
            write.data.eq(incoming),
        ]
        m.d.sync += used.eq(used + self.taken - left)
        with m.If(self.i.valid & ~left):
            m.d.sync += [level.eq(level + 1), waits.eq(1)]
        with m.Elif(left & ~self.i.valid):
            m.d.sync += [level.eq(level - 1), waits.eq(level != 1)]
        for place, moves in ((write.addr, self.i.valid), (read.addr, left)):
            with m.If(moves):
                m.d.sync += place.eq(Mux(place == places - 1, 0, place + 1))
