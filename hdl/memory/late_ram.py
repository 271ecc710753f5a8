"""A memory with check bits that outputs words at once, and corrects wrong words a cycle later."""

from amaranth.hdl import Cat, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.protection import check_bits, code_columns
from celosia.hdl.component import Component
from celosia.hdl.memory.protected import ERRORS, check, corrections, syndrome
from celosia.hdl.memory.ram import Ram


class LateRam(Component):
    """A :class:`Ram` with check bits that first outputs a word as stored, then corrects its errors.

    - ``take``: 1 if the reader stores ``read_data`` in a register.
    - ``taken``: the word in the reader's register, one cycle after ``take``.
    - ``repair``: 1, one cycle after ``take``, if the stored word is wrong.
    - ``corrected``, ``errors``: the corrected word, and its error bits, together with ``repair``.
    """

    def __init__(self, width: int, depth: int):
        self.columns = tuple(code_columns(width, "correct"))
        addr_width = (depth - 1).bit_length()
        super().__init__(
            {
                "write_en": In(1),
                "write_addr": In(addr_width),
                "write_data": In(width),
                "read_en": In(1),
                "read_addr": In(addr_width),
                "read_data": Out(width),
                "take": In(1),
                "repair": Out(1),
                "taken": In(width),
                "corrected": Out(width),
                "errors": Out(ERRORS),
            }
        )

    def circuit(self, m):
        size = self.width + check_bits(self.columns)
        m.submodules.ram = ram = Ram(size, self.depth, ordered=False)
        stored = ram.read_data[self.width :]
        found = Signal(len(stored))
        took = Signal()
        behind = Signal(len(stored))
        flipped, errors = corrections(behind, self.columns)
        m.d.comb += [
            ram.write_en.eq(self.write_en),
            ram.write_addr.eq(self.write_addr),
            ram.write_data.eq(Cat(self.write_data, check(self.write_data, self.columns))),
            ram.read_en.eq(self.read_en),
            ram.read_addr.eq(self.read_addr),
            self.read_data.eq(ram.read_data),
            found.eq(syndrome(self.read_data, stored, self.columns)),
            # Register each check bit: combining them takes too long after a block RAM.
            self.repair.eq(took & behind.any()),
            self.corrected.eq(self.taken ^ flipped),
            self.errors.eq(errors & self.repair.replicate(ERRORS)),
        ]
        m.d.sync += took.eq(self.take)
        with m.If(self.take):
            m.d.sync += behind.eq(found)
