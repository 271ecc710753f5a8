"""A single-port memory with byte writes."""

from amaranth.hdl import Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component


class BytePort(wiring.Signature):
    """The port of a :class:`ByteRam`, seen from the unit that accesses the memory.

    - ``en``: 1 to write or read the word at ``addr``.
    - ``addr``: the word's number.
    - ``mask``: a bit for each byte, 1 to write it, all 0 to read the word.
    - ``write_data``: the bytes to write.
    - ``read_data``: the word of the last read, from the next cycle on.
    """

    def __init__(self, width: int, depth: int):
        super().__init__(
            {
                "en": Out(1),
                "addr": Out((depth - 1).bit_length()),
                "mask": Out(width // 8),
                "write_data": Out(width),
                "read_data": In(width),
            }
        )


class ByteRam(Component):
    """A memory of ``depth`` words of ``width`` bits (a multiple of 8) with one port.

    In a cycle with ``en`` at 1, the bytes with a 1 in ``mask`` are written to the word at ``addr``.
    If ``mask`` is 0, the word is read; ``read_data`` has it from the next cycle until the next
    read.
    """

    write_data: Signal
    """The bytes to write; ``mask`` selects which of them are written."""

    def __init__(self, width: int, depth: int):
        super().__init__(
            {
                "en": In(1),
                "addr": In((depth - 1).bit_length()),
                "mask": In(width // 8),
                "write_data": In(width),
                "read_data": Out(width),
            }
        )

    def circuit(self, m):
        m.submodules.memory = memory = Memory(
            shape=unsigned(self.width), depth=self.depth, init=[], attrs={"no_rw_check": 1}
        )
        write, read = memory.write_port(granularity=8), memory.read_port()
        m.d.comb += [
            write.en.eq(self.mask & self.en.replicate(len(self.mask))),
            write.addr.eq(self.addr),
            write.data.eq(self.write_data),
            read.en.eq(self.en & ~self.mask.any()),
            read.addr.eq(self.addr),
            self.read_data.eq(read.data),
        ]
