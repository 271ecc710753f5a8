"""Scratchpad read requests, each with a tag that is returned together with the data."""

from amaranth.hdl import Module, ShapeLike, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, connect, flipped

from celosia.arch.access import Access
from celosia.hdl.component import Component
from celosia.hdl.ports import ReadPort
from celosia.hdl.stream.pipeline import delay
from celosia.hdl.stream.slice import RegisterSlice


class Requests(Component):
    """Sends read requests to the scratchpad, and returns each request's tag with its data.

    A request on ``i`` has an address ``addr`` and a tag ``note``. ``port`` returns the data
    ``2 + stages`` cycles after the scratchpad has accepted the request. In the cycle of the data
    the output ``note`` is the tag of the request. If ``stages`` is 1 (not 0), each request reaches
    ``port`` one cycle later, through a register. Throughput is one request per cycle.
    """

    def __init__(self, access: Access, note: ShapeLike, *, stages: int):
        self.stages = stages
        self.request = data.StructLayout({"addr": unsigned(access.addr_width), "note": note})
        super().__init__(
            {
                "i": In(stream.Signature(self.request)),
                "port": Out(ReadPort(access)),
                "note": Out(note),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        request = stream.Signature(self.request).create()
        if self.stages:
            m.submodules.registers = registers = RegisterSlice(self.request)
            connect(m, flipped(self.i), registers.i)
            request = registers.o
        else:
            connect(m, flipped(self.i), flipped(request))
        m.d.comb += [
            self.port.request.p.eq(request.p.addr),
            self.port.request.valid.eq(request.valid),
            request.ready.eq(self.port.request.ready),
            self.note.eq(delay(m, request.p.note, 2 + self.stages)),
        ]
        return m
