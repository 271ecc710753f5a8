"""A deep memory in two parts, so that no word is chosen among many block RAMs."""

from amaranth.hdl import Module, Mux, Signal

from hdl.memory.ram import Ram
from hdl.stream.pipeline import delay

WHOLE = 512
"""Words up to which a memory stays one: as many as a block RAM has at its full width."""


class SplitRam(Ram):
    """A :class:`Ram` without order whose words beyond a power of two are a memory of their own.

    Block RAM is as deep as it is narrow, by powers of two: 4,096 words of 64 bits are sixteen of
    4 bits side by side, but 4,608 words would be nine rows of two of 36 bits, with a choice of
    nine behind each bit. Here they are the sixteen and two, with a choice of two. Memories of up to
    ``WHOLE`` words are one, as block RAM is not less deep.

    With ``registered`` words are read a cycle later, out of a register for each of the two, which
    block RAM has of its own.
    """

    def __init__(self, width: int, depth: int, *, part: int, registered: bool = False):
        self.registered = registered
        super().__init__(width, depth, part=part, ordered=False)

    def elaborate(self, _platform):
        m = Module()
        low_depth = 1 << (self.depth.bit_length() - 1) if self.depth > WHOLE else self.depth
        m.submodules.low = low = Ram(self.width, low_depth, part=self.part, ordered=False)
        parts = [low]
        if self.depth > low_depth:
            m.submodules.high = high = Ram(
                self.width, self.depth - low_depth, part=self.part, ordered=False
            )
            parts.append(high)
        read_high, write_high = (
            address[-1] if len(parts) > 1 else 0 for address in (self.read_addr, self.write_addr)
        )
        for number, ram in enumerate(parts):
            m.d.comb += [
                ram.write_en.eq(Mux(write_high == number, self.write_en, 0)),
                ram.write_addr.eq(self.write_addr),
                ram.write_data.eq(self.write_data),
                ram.read_en.eq(self.read_en & (read_high == number)),
                ram.read_addr.eq(self.read_addr),
            ]
        shown = Signal(range(len(parts)))
        with m.If(self.read_en):
            m.d.sync += shown.eq(read_high)
        late = int(self.registered)
        words = [delay(m, ram.read_data, late) for ram in parts]
        m.d.comb += self.read_data.eq(Mux(delay(m, shown, late), words[-1], words[0]))
        return m
