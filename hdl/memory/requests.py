"""Scratchpad read requests, each with a tag that is returned together with the data."""

from amaranth.hdl import ShapeLike, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, connect, flipped

from celosia.arch.access import Access
from celosia.hdl.component import Component
from celosia.hdl.ports import ReadPort
from celosia.hdl.stream.pipeline import delay
from celosia.hdl.stream.slice import RegisterSlice


class Requests(Component):
    """Sends read requests to the scratchpad, and outputs the tag of each request with its data.

    - ``i``: read requests, each with a byte address and a tag.
    - ``port``: the scratchpad's read port.
    - ``note``: the tag, together with the data on ``port``, ``2 + stages`` cycles after ``port``
      accepts the request.

    ``stages`` (0 or 1) is the number of registers before ``port``.
    """

    def __init__(self, access: Access, note: ShapeLike, *, stages: int):
        self.request = data.StructLayout({"addr": unsigned(access.addr_width), "note": note})
        super().__init__(
            {
                "i": In(stream.Signature(self.request)),
                "port": Out(ReadPort(access)),
                "note": Out(note),
            }
        )

    def circuit(self, m):
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
