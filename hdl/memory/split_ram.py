"""A deep memory in two parts, which avoids a wide multiplexer between many block RAMs."""

from amaranth.hdl import Mux, Signal

from celosia.hdl.memory.ram import Ram
from celosia.hdl.stream.pipeline import delay, spread

WHOLE = 512
"""Largest depth of a memory that is not split: that of a block RAM at full width (words)."""


class SplitRam(Ram):
    """A deep :class:`Ram` made of two memories, which needs narrower multiplexers.

    Memories of up to ``WHOLE`` words are not split. A read in the cycle of a write to the same word
    is undefined.
    """

    read_data: Signal
    """The word of the last read, from the next cycle on, or one later if ``stages`` is 1."""

    def __init__(self, width: int, depth: int, *, part: int, stages: int = 0):
        super().__init__(width, depth, part=part, ordered=False)

    def circuit(self, m):
        # 4,608 words, as 4,096 and 512, need 2-to-1 multiplexers instead of 9-to-1.
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
        words = [delay(m, ram.read_data, self.stages) for ram in parts]
        if len(parts) == 1:
            m.d.comb += self.read_data.eq(words[0])
            return
        shown = Signal()
        with m.If(self.read_en):
            m.d.sync += shown.eq(read_high)
        places = range(0, self.width, self.part)
        shows = [Signal(name=f"shows_{place}") for place in places]
        spread(m, shown, shows, stages=self.stages)
        for place, each in zip(places, shows, strict=True):
            low_part, high_part = (word[place : place + self.part] for word in words)
            m.d.comb += self.read_data[place : place + self.part].eq(Mux(each, high_part, low_part))
