"""The mask memory: one bit a row or a tile, whether it is worth fetching or computing."""

from collections.abc import Sequence

from amaranth.hdl import Module
from amaranth.lib.wiring import In

from arch.config import Config
from hdl.component import Component
from hdl.memory.ram import Ram
from hdl.ports import MaskReadPort, MaskWritePort

READERS = ("load", "store", "a", "b")
"""Readers of the whole machine: the load and store engines' rows, the array's tiles."""


class MaskMemory(Component):
    """``mask_depth`` bits with one writer and any number of readers, each with a copy of its own.

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
        for name in self.readers:
            port = getattr(self, f"read_{name}")
            m.submodules[f"bits_{name}"] = bits = Ram(1, self.config.mask_depth)
            m.d.comb += [
                bits.write_en.eq(self.write.en),
                bits.write_addr.eq(self.write.addr),
                bits.write_data.eq(self.write.data),
                bits.read_en.eq(1),
                bits.read_addr.eq(port.addr),
                port.data.eq(bits.read_data),
            ]
        return m
