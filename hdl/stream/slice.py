"""A register stage in a stream that breaks all combinational paths in both directions."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component
from celosia.hdl.stream.pipeline import data_register


def slices(
    m: Module, source: wiring.PureInterface, *names: str, stages: int = 1, forward: bool = False
) -> wiring.PureInterface:
    """Connect ``source`` to a chain of register slices, and return the output of the last one.

    If ``stages`` is 1, there is a slice for each name in ``names``, a submodule of ``m`` with this
    name. If ``stages`` is 0, there are no slices, and the result is ``source`` itself. By default,
    a slice has space for two payloads. If ``forward`` is true, a slice has space for one payload,
    and its ``i.ready`` depends on ``o.ready`` in the same cycle (:class:`RegisterSlice`).
    """
    for name in names * stages:
        m.submodules[name] = stage = RegisterSlice(source.p.shape(), forward=forward)
        wiring.connect(m, source, stage.i)
        source = stage.o
    return source


def slices_before(
    m: Module, sink: wiring.PureInterface, name: str, *, stages: int, forward: bool = False
) -> wiring.PureInterface:
    """Return a stream for a sender, which reaches ``sink`` through an optional register slice.

    If ``stages`` is 0, the result is ``sink`` itself. If ``stages`` is 1, the result is the input
    of a new register slice with an output that is connected to ``sink``. The slice is a submodule
    of ``m`` with the name ``name``. By default, the slice has space for two payloads. If
    ``forward`` is true, the slice has space for one payload, and its ``i.ready`` depends on
    ``o.ready`` in the same cycle (:class:`RegisterSlice`).
    """
    for _ in range(stages):
        m.submodules[name] = stage = RegisterSlice(sink.p.shape(), forward=forward)
        wiring.connect(m, stage.o, sink)
        sink = stage.i
    return sink


class RegisterSlice(Component):
    """A register stage in a stream, by default with space for two payloads.

    Latency is one cycle, throughput one payload per cycle. By default, ``i.ready``, ``o.valid`` and
    ``o.payload`` are registers, so that ``i`` and ``o`` do not depend on each other in the same
    cycle, as AXI requires of every port.

    If ``forward`` is true, the stage has space for only one payload. It then needs no multiplexer
    before the register of ``o.payload``. ``i.ready`` is then not a register, but combinational: it
    is 1 in a cycle in which ``o.ready`` is 1 or the stage is empty.

    A further output, ``following``, is the payload that ``o`` offers after the current payload. If
    the stage stores two payloads, ``following`` is the second one. Otherwise ``following`` is
    ``i.payload``, which is a payload only if ``i.valid`` is 1.
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
