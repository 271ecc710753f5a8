"""A skid buffer, which drives a stream's ``ready`` from a register."""

from amaranth.hdl import Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component


def skids(m: Module, source: wiring.PureInterface, *, stages: int) -> list[wiring.PureInterface]:
    """Connect ``source`` to ``stages`` skid buffers (0 or 1), and return a list of the streams.

    The list has ``source``, then the output of the buffer if ``stages`` is 1. The caller connects
    the last stream of the list to the receiver.
    """
    streams = [source]
    for _ in range(stages):
        m.submodules.skid = skid = Skid(source.p.shape())
        wiring.connect(m, source, skid.i)
        streams.append(skid.o)
    return streams


class Skid(Component):
    """Passes a stream from ``i`` to ``o`` in the same cycle; ``i.ready`` comes from a register.

    ``i.ready`` depends on no input: the buffer stores a payload that ``o`` does not accept in the
    cycle of arrival. Latency is 0 cycles, throughput one payload per cycle.
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self, payload: ShapeLike):
        signature = stream.Signature(payload)
        super().__init__({"i": In(signature), "o": Out(signature)})

    def circuit(self, m):
        full = Signal()
        incoming = Value.cast(self.i.payload)
        kept = Signal(len(incoming), reset_less=True)
        m.d.comb += [
            self.i.ready.eq(~full),
            self.o.valid.eq(self.i.valid | full),
            Value.cast(self.o.payload).eq(Mux(full, kept, incoming)),
        ]
        m.d.sync += full.eq(self.o.valid & ~self.o.ready)
        with m.If(~full):
            m.d.sync += kept.eq(incoming)
