"""Writes the sums that a NORM normalizes (input plus residual) back to the scratchpad."""

from amaranth.hdl import Cat, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from celosia.arch.access import Access
from celosia.hdl.component import Component
from celosia.hdl.ports import WritePort
from celosia.hdl.stream.skid import Skid
from celosia.hdl.stream.slice import RegisterSlice
from celosia.hdl.vector.walker import Walker, buffered_addresses, drive_walk_start, walk_layout

WAITING = (Skid, RegisterSlice)
"""Buffers that drive ``ready`` of their input from a register, by latency (0 or 1 cycles)."""


class SumWriter(Component):
    """Writes 16-bit elements to the scratchpad: beat k of ``i`` to address k of ``walk``.

    ``start`` begins a sequence of addresses (:class:`Walker`). ``busy`` is 1 from the next cycle
    until its last write has been accepted. While ``busy`` is 0, beats are accepted and dropped.
    """

    def __init__(self, access: Access, lanes: int, *, stages: int = 0, forward: bool = False):
        super().__init__(
            {
                "start": In(1),
                "walk": In(walk_layout(access.addr_width)),
                "i": In(stream.Signature(data.ArrayLayout(signed(16), lanes))),
                "write": Out(WritePort(access)),
                "busy": Out(1),
            }
        )

    def circuit(self, m):
        # Other writers must not wait for results that a normalization computes in the same cycle.
        m.submodules.skid = skid = WAITING[self.stages](self.i.p.shape())
        wiring.connect(m, wiring.flipped(self.i), skid.i)
        m.submodules.places = places = Walker(self.access.addr_width, stages=self.stages)
        drive_walk_start(m, places, self.start, behind=False)
        ahead = buffered_addresses(m, places, forward=self.forward)
        request = self.write.request
        m.d.comb += [
            places.walk.eq(self.walk),
            request.p.addr.eq(ahead.p.addr),
            request.p.count.eq(ahead.p.count << 1),
            request.p.data.eq(Cat(skid.o.p)),
            request.valid.eq(skid.o.valid & ahead.valid),
            skid.o.ready.eq((request.ready & ahead.valid) | ~self.busy),
            ahead.ready.eq(skid.o.valid & request.ready),
        ]
        with m.If(self.start):
            m.d.sync += self.busy.eq(1)
        with m.Elif(request.valid & request.ready & ahead.p.last):
            m.d.sync += self.busy.eq(0)
