"""Conversion between words of the memory port and columns of a memory chip."""

from amaranth.hdl import Cat, Signal
from amaranth.lib import stream
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out, connect, flipped

from celosia.arch.records import Memory
from celosia.hdl.component import Component
from celosia.hdl.ports import MemoryWritePort
from celosia.hdl.stream.slice import RegisterSlice


class WordSplitter(Component):
    """Splits written words into columns of a memory chip, the lowest column first.

    If ``valid`` is 1, ``data`` is the next column, and ``mask`` has a 1 for each byte of the column
    to write. A cycle with ``take`` at 1 advances to the next column. Throughput is one column per
    cycle.
    """

    def __init__(self, memory: Memory, width: int):
        self.ratio = memory.width // width
        words = MemoryWritePort(memory).members["data"].signature
        super().__init__(
            {
                "i": In(words),
                "valid": Out(1),
                "data": Out(width),
                "mask": Out(width // 8),
                "take": In(1),
            }
        )

    def circuit(self, m):
        m.submodules.slice = passed = RegisterSlice(self.i.p.shape())
        connect(m, flipped(self.i), passed.i)
        place = Signal(range(self.ratio))
        last = Signal()
        m.d.comb += [
            last.eq(place == self.ratio - 1),
            self.valid.eq(passed.o.valid),
            self.data.eq(passed.o.p.data.word_select(place, self.width)),
            self.mask.eq(passed.o.p.mask.word_select(place, self.width // 8)),
            passed.o.ready.eq(self.take & last),
        ]
        with m.If(self.take):
            m.d.sync += place.eq(place + 1)
            with m.If(last):
                m.d.sync += place.eq(0)


class WordCollector(Component):
    """Joins columns from a memory chip into words, lowest column first; outputs the words on ``o``.

    - ``i``: the next column, if ``i_valid`` is 1.
    - ``take``: must be 1 when a word's first column is requested from the chip.
    - ``room``: 1 if ``more`` further words may be requested. At most ``depth`` words may be
      requested and not yet read from ``o``.
    """

    def __init__(self, memory: Memory, width: int, depth: int, more: int = 1):
        self.ratio = memory.width // width
        super().__init__(
            {
                "take": In(1),
                "room": Out(1, init=1),
                "i": In(width),
                "i_valid": In(1),
                "o": Out(stream.Signature(memory.width)),
            }
        )

    def circuit(self, m):
        width = self.width * self.ratio
        m.submodules.words = words = SyncFIFOBuffered(width=width, depth=self.depth)
        place = Signal(range(self.ratio))
        held = Signal(width - self.width)
        whole = Signal()
        promised = Signal(range(self.depth + 1))
        after = Signal(range(self.depth + 2))
        m.d.comb += [
            whole.eq(self.i_valid & (place == self.ratio - 1)),
            words.w_data.eq(Cat(held, self.i)),
            words.w_en.eq(whole),
            self.o.p.eq(words.r_data),
            self.o.valid.eq(words.r_rdy),
            words.r_en.eq(self.o.ready),
            after.eq(promised + self.take - (words.r_rdy & words.r_en)),
        ]
        with m.If(self.i_valid):
            m.d.sync += [place.eq(place + 1), held.eq(Cat(held, self.i)[self.width :])]
        with m.If(whole):
            m.d.sync += place.eq(0)
        m.d.sync += [promised.eq(after), self.room.eq(after < self.depth + 1 - self.more)]
