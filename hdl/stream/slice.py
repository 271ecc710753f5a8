"""A register stage in a stream that breaks every combinational path, in both directions."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component
from celosia.hdl.stream.pipeline import data_register


def slices(
    m: Module, source: wiring.PureInterface, *names: str, forward: bool = False
) -> wiring.PureInterface:
    """Return the stream ``source`` behind a register slice of each of ``names``, in ``m``."""
    for name in names:
        m.submodules[name] = stage = RegisterSlice(source.p.shape(), forward=forward)
        wiring.connect(m, source, stage.i)
        source = stage.o
    return source


class RegisterSlice(Component):
    """Two places for payloads between ``i`` and ``o``: one a cycle, a cycle of latency.

    ``i.ready``, ``o.valid`` and ``o.payload`` are registers, so that nothing at one side depends on
    the other side in the same cycle, as AXI demands of every port. ``following`` is the payload
    that ``o`` brings next. With ``forward`` there is one place, without tables for its payload, and
    ``i.ready`` is 1 in a cycle in which ``o.ready`` is, or nothing is kept.
    """

    def __init__(self, shape, *, forward: bool = False):
        self.shape = shape
        self.forward = forward
        signature = stream.Signature(shape)
        super().__init__({"i": In(signature), "o": Out(signature), "following": Out(shape)})

    def elaborate(self, _platform):
        m = Module()
        payload = data_register(m, self.o.payload)
        if self.forward:
            m.d.comb += [
                self.i.ready.eq(self.o.ready | ~self.o.valid),
                self.following.eq(self.i.payload),
            ]
            with m.If(self.i.ready):
                m.d.sync += [self.o.valid.eq(self.i.valid), payload.eq(self.i.payload)]
            return m
        spare = Signal(self.shape, reset_less=True)
        waiting = Signal()
        m.d.comb += [
            self.i.ready.eq(~waiting),
            self.following.eq(Mux(waiting, spare, self.i.payload)),
        ]
        with m.If(~waiting):
            m.d.sync += spare.eq(self.i.payload)
        with m.If(self.o.ready | ~self.o.valid):
            m.d.sync += [
                self.o.valid.eq(self.i.valid | waiting),
                payload.eq(self.following),
                waiting.eq(0),
            ]
        with m.Elif(self.i.valid & self.i.ready):
            m.d.sync += waiting.eq(1)
        return m
