"""A deep memory in two parts, so that no word is chosen among many block RAMs."""

from amaranth.hdl import Module, Mux, Signal

from celosia.hdl.memory.ram import Ram
from celosia.hdl.stream.pipeline import delay, spread

WHOLE = 512
"""Words up to which a memory stays one: as many as a block RAM has at its full width."""


class SplitRam(Ram):
    """A :class:`Ram` without order whose words beyond a power of two are a memory of their own.

    Block RAM is as deep as it is narrow, by powers of two: 4,096 words of 64 bits are sixteen of
    4 bits side by side, but 4,608 words would be nine rows of two of 36 bits, with a choice of
    nine behind each bit. Here they are the sixteen and two, with a choice of two. Memories of up to
    ``WHOLE`` words are one, as block RAM is not less deep.

    With ``registered`` words are read a cycle later, out of a register for each of the two, which
    block RAM has of its own. Which of these is shown has a register for each part of a word, as the
    block RAMs of a word are far from each other.
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
        words = [delay(m, ram.read_data, int(self.registered)) for ram in parts]
        if len(parts) == 1:
            m.d.comb += self.read_data.eq(words[0])
            return m
        shown = Signal()
        with m.If(self.read_en):
            m.d.sync += shown.eq(read_high)
        places = range(0, self.width, self.part)
        shows = [Signal(name=f"shows_{place}") for place in places]
        if self.registered:
            spread(m, shown, shows)
        else:
            m.d.comb += [each.eq(shown) for each in shows]
        for place, each in zip(places, shows, strict=True):
            low_part, high_part = (word[place : place + self.part] for word in words)
            m.d.comb += self.read_data[place : place + self.part].eq(Mux(each, high_part, low_part))
        return m
