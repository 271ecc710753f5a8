"""A memory with wrong bits."""

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import connect, flipped

from celosia.hdl.memory.ram import Ram


class FlippedRam(Ram):
    """A memory whose words come with the bits of ``flip`` inverted."""

    flip = Signal(256)

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = Ram(self.width, self.depth, ordered=self.ordered)
        connect(m, flipped(self), ram)
        m.d.comb += self.read_data.eq(ram.read_data ^ self.flip)
        return m
