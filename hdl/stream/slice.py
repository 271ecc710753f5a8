"""A register stage in a stream that breaks all combinational paths in both directions."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component
from celosia.hdl.stream.pipeline import data_register


def slices(
    m: Module, source: wiring.PureInterface, *names: str, stages: int = 1, forward: bool = False
) -> wiring.PureInterface:
    """Connect ``source`` to a chain of register slices, and return the last slice's output.

    The chain has one :class:`RegisterSlice` for each name in ``names``, which is the slice's name
    as a submodule of ``m``. If ``stages`` is 0 instead of 1, there are no slices, and the result is
    ``source``. With ``forward``, slices have one register instead of two.
    """
    for name in names * stages:
        m.submodules[name] = stage = RegisterSlice(source.p.shape(), forward=forward)
        wiring.connect(m, source, stage.i)
        source = stage.o
    return source


def slices_before(
    m: Module, sink: wiring.PureInterface, name: str, *, stages: int, forward: bool = False
) -> wiring.PureInterface:
    """Return a stream that leads to ``sink``, through a register slice if ``stages`` is 1.

    The :class:`RegisterSlice` becomes the submodule ``name`` of ``m``; ``forward`` is an argument
    of the slice. If ``stages`` is 0, the result is ``sink`` itself.
    """
    for _ in range(stages):
        m.submodules[name] = stage = RegisterSlice(sink.p.shape(), forward=forward)
        wiring.connect(m, stage.o, sink)
        sink = stage.i
    return sink


class RegisterSlice(Component):
    """A register stage of a stream: latency one cycle, throughput one payload per cycle.

    By default, the slice stores two payloads, and ``i.ready`` is a register. If ``forward`` is
    true, the slice stores one payload, and ``i.ready`` depends on ``o.ready``. ``following`` is the
    payload after the one on ``o``, if there is one.
    """

    def __init__(self, shape, *, forward: bool = False):
        signature = stream.Signature(shape)
        super().__init__({"i": In(signature), "o": Out(signature), "following": Out(shape)})

    def circuit(self, m):
        payload = data_register(m, self.o.payload)
        if self.forward:
            m.d.comb += [
                self.i.ready.eq(self.o.ready | ~self.o.valid),
                self.following.eq(self.i.payload),
            ]
            with m.If(self.i.ready):
                m.d.sync += [self.o.valid.eq(self.i.valid), payload.eq(self.i.payload)]
            return
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
