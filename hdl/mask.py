"""The mask memory: one bit a row or a tile, whether it is worth fetching or computing."""

from collections.abc import Sequence

from amaranth.hdl import Module, unsigned
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In

from arch.config import Config
from hdl.ports import MaskReadPort, MaskWritePort

READERS = ("load", "store", "a", "b")
"""Readers of the whole machine: the load and store engines' rows, the array's tiles."""


class MaskMemory(wiring.Component):
    """``mask_depth`` bits with one writer and any number of readers.

    Ports ``write`` and ``read_NAME`` for each name given, as ``hdl.ports`` defines them. Readers
    never wait. A read in the cycle of a write to the same bit sees the bit before; all are 0 at
    first.
    """

    def __init__(self, config: Config, readers: Sequence[str] = READERS):
        self.config = config
        self.readers = tuple(readers)
        ports = {f"read_{name}": In(MaskReadPort(config)) for name in self.readers}
        super().__init__(ports | {"write": In(MaskWritePort(config))})

    def elaborate(self, _platform):
        m = Module()
        m.submodules.bits = bits = memory.Memory(
            shape=unsigned(1), depth=self.config.mask_depth, init=[]
        )
        write = bits.write_port()
        m.d.comb += [
            write.en.eq(self.write.en),
            write.addr.eq(self.write.addr),
            write.data.eq(self.write.data),
        ]
        for name in self.readers:
            port, read = getattr(self, f"read_{name}"), bits.read_port()
            m.d.comb += [read.en.eq(1), read.addr.eq(port.addr), port.data.eq(read.data)]
        return m
