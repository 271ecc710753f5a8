"""The vector engine's requantization parameters."""

from amaranth.hdl import Cat, Const, Module, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from arch.config import Config
from hdl.component import Component
from hdl.memory.protected import error_port, errors_of, gather, protected_ram
from hdl.memory.split_ram import SplitRam
from hdl.stream.credits import CreditQueue
from hdl.stream.pipeline import delay
from hdl.vector.walker import Walker, start_walk, walk_layout

PARAM_BYTES = 9
"""Bytes of one lane's parameters."""
SHIFT_WIDTH = 6
"""Bits of a shift that are held: it is from -31 to 30 (bits)."""
READ_LATENCY = 2
"""Cycles from a word's address to its register behind the block RAM."""
CHECKED = 32
"""Bits that have check bits together in a protected memory (bits)."""


def param_layout(config: Config) -> data.StructLayout:
    """Return one parameter word: bias, multiplier and shift of each lane, then padding."""
    lane = data.StructLayout({"bias": signed(32), "multiplier": signed(32), "shift": signed(8)})
    used = PARAM_BYTES * config.lanes
    spare = 8 * (config.param_lines * config.line_bytes - used)
    return data.StructLayout({"lanes": data.ArrayLayout(lane, config.lanes), "spare": spare})


def word_layout(config: Config, *, marked: bool = False) -> data.StructLayout:
    """Return what :class:`ParamMemory` brings for a beat."""
    beat = {"count": range(config.beat_lanes + 1), "row_last": 1, "last": 1}
    return data.StructLayout({"word": param_layout(config), **(beat if marked else {})})


def held_bits(config: Config) -> list[int | None]:
    """Return for each bit of a parameter word the one that it is held as; None is always 0.

    Bits of a bias and of a shift above those that are held are copies of the uppermost one.
    """
    places: list[int | None] = []
    for lane in range(config.lanes):
        bias, multiplier = 8 * PARAM_BYTES * lane, 8 * PARAM_BYTES * lane + 32
        shift, low = multiplier + 32, 32 - config.multiplier_width
        places += [bias + min(bit, config.bias_width - 1) for bit in range(32)]
        places += [None if bit < low else multiplier + bit for bit in range(32)]
        places += [shift + min(bit, SHIFT_WIDTH - 1) for bit in range(8)]
    whole = 8 * config.param_lines * config.line_bytes
    return places + [None] * (whole - len(places))


class ParamMemory(Component):
    """Holds ``depth`` parameter words, without it ``param_depth``, in the bits that differ.

    A word is written line by line. ``o`` brings those of ``walk``, which begins with ``start``,
    ahead of the beats that take them: one a cycle, the first three cycles after ``start``, with
    ``registered`` four. With ``fused`` a walk begins behind the one under way, and holds still
    while ``owes`` is 1. With ``marked``, each comes with the ``count``, ``row_last`` and ``last``
    of its beat.
    Words beyond ``depth`` are not held. A word that is written is not read in that cycle: the
    program's tokens keep the order.
    """

    def __init__(self, config: Config, depth: int = 0, *, marked: bool = False):
        self.config = config
        self.depth = depth or config.param_depth
        self.marked = marked
        addr_width = (config.param_depth - 1).bit_length()
        self._addr_width = max(1, addr_width)
        super().__init__(
            {
                "write_en": In(1),
                "write_addr": In(addr_width),
                "write_line": In(range(config.param_lines)),
                "write_data": In(8 * config.line_bytes),
                "start": In(1),
                "walk": In(walk_layout(self._addr_width)),
                "owes": Out(1),
                "o": Out(stream.Signature(word_layout(config, marked=marked))),
                **error_port(config.protected("parameters")),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        level, width = self.config.protected("parameters"), 8 * self.config.line_bytes
        places, lines, held = held_bits(self.config), [], {}
        m.submodules.walker = walker = Walker(self._addr_width, registered=self.config.registered)
        m.d.comb += [
            walker.walk.eq(self.walk),
            self.owes.eq(start_walk(m, walker, self.start, behind=self.config.fused)),
        ]
        for line in range(self.config.param_lines):
            kept = sorted({one for one in places if one is not None and one // width == line})
            if not kept:
                continue
            if level == "none":
                ram = SplitRam(len(kept), self.depth, part=len(kept), registered=True)
            else:
                part = min(CHECKED, width)
                count = -(-len(kept) // part) * part
                ram = protected_ram(count, self.depth, level, part=part)
            m.submodules[f"line_{line}"] = ram
            lines.append(ram)
            inside = self.write_addr < self.depth
            m.d.comb += [
                ram.write_en.eq(self.write_en & (self.write_line == line) & inside),
                ram.write_addr.eq(self.write_addr),
                ram.write_data.eq(Cat(self.write_data[place % width] for place in kept)),
                ram.read_en.eq(1),
                ram.read_addr.eq(walker.o.p.addr),
            ]
            word = ram.read_data if level == "none" else delay(m, ram.read_data, 1)
            held |= dict(zip(kept, word, strict=False))
        self._bring(m, walker, list(held), Cat(held.values()), places)
        gather(m, self, errors_of(lines))
        return m

    def _bring(self, m, walker, kept, word, places):
        """Queue words, in the bits that are held, behind the memory."""
        names = [name for name in self.o.p.shape().members if name != "word"]
        note = Cat(walker.o.p[name][: len(self.o.p[name])] for name in names)
        layout = data.StructLayout({"word": len(word), "note": len(note)})
        m.submodules.words = words = CreditQueue(layout, READ_LATENCY)
        taken = walker.o.valid & words.room
        m.d.comb += [
            walker.o.ready.eq(words.room),
            words.taken.eq(taken),
            words.i.valid.eq(delay(m, taken, READ_LATENCY, reset=True)),
            words.i.payload.word.eq(word),
            words.i.payload.note.eq(delay(m, note, READ_LATENCY)),
            self.o.valid.eq(words.o.valid),
            words.o.ready.eq(self.o.ready),
        ]
        found = dict(zip(kept, words.o.p.word, strict=True))
        bits = [Const(0, 1) if place is None else found[place] for place in places]
        m.d.comb += self.o.p.word.as_value().eq(Cat(bits))
        if names:
            m.d.comb += Cat(self.o.p[name] for name in names).eq(words.o.p.note)
