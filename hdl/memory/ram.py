"""The memory block from which all larger memories are made."""

from amaranth.hdl import Signal, unsigned
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component


class Ram(Component):
    """A memory of ``depth`` words of ``width`` bits, initially 0, with a write and a read port.

    A word may be read in the cycle in which it is written. The result is then the old word, or the
    new word if ``transparent`` is true. It is undefined if ``ordered`` is false.
    """

    read_en: Signal
    """1 to read the word at ``read_addr``."""
    read_addr: Signal
    """The word to read."""
    read_data: Signal
    """The word of the last cycle with ``read_en`` at 1, from the next cycle on."""
    write_en: Signal
    """A bit for each ``part`` bits of a word, 1 to write them."""
    write_addr: Signal
    """The word to write."""
    write_data: Signal
    """The word to write; a part is written if its bit of ``write_en`` is 1."""

    def __init__(
        self,
        width: int,
        depth: int,
        *,
        part: int | None = None,
        transparent: bool = False,
        ordered: bool = True,
    ):
        self.part = part or width
        addr_width = (depth - 1).bit_length()
        super().__init__(
            {
                "write_en": In(width // self.part),
                "write_addr": In(addr_width),
                "write_data": In(width),
                "read_en": In(1),
                "read_addr": In(addr_width),
                "read_data": Out(width),
            }
        )

    def circuit(self, m):
        # The attribute keeps Yosys from adding bypasses to block RAMs.
        attributes = {} if self.ordered else {"no_rw_check": 1}
        m.submodules.memory = memory = Memory(
            shape=unsigned(self.width), depth=self.depth, init=[], attrs=attributes
        )
        write = memory.write_port(granularity=self.part)
        read = memory.read_port(transparent_for=[write] if self.transparent else [])
        m.d.comb += [
            write.en.eq(self.write_en),
            write.addr.eq(self.write_addr),
            write.data.eq(self.write_data),
            read.en.eq(self.read_en),
            read.addr.eq(self.read_addr),
            self.read_data.eq(read.data),
        ]
