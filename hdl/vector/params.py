"""The vector engine's requantization parameters."""

from amaranth.hdl import Cat, Const, Module, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from arch.config import Config
from hdl.component import Component
from hdl.memory.protected import error_port, errors_of, gather, protected_ram
from hdl.memory.split_ram import SplitRam
from hdl.stream.pipeline import delay

PARAM_BYTES = 9
"""Bytes of one lane's parameters."""
SHIFT_WIDTH = 6
"""Bits of a shift that are held: it is from -31 to 30 (bits)."""
CHECKED = 32
"""Bits that have check bits together in a protected memory (bits)."""


def param_layout(config: Config) -> data.StructLayout:
    """Return one parameter word: bias, multiplier and shift of each lane, then padding."""
    lane = data.StructLayout({"bias": signed(32), "multiplier": signed(32), "shift": signed(8)})
    used = PARAM_BYTES * config.lanes
    spare = 8 * (config.param_lines * config.line_bytes - used)
    return data.StructLayout({"lanes": data.ArrayLayout(lane, config.lanes), "spare": spare})


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

    A word is written line by line and read whole, two cycles later from a register behind each
    block RAM; with ``sleep`` one cycle later, as each lane has a register that may hold its word.
    Words beyond ``depth`` are not held. A word that is written is not read in that cycle: the
    program's tokens keep the order.
    """

    def __init__(self, config: Config, depth: int = 0):
        self.config = config
        self.depth = depth or config.param_depth
        addr_width = (config.param_depth - 1).bit_length()
        super().__init__(
            {
                "write_en": In(1),
                "write_addr": In(addr_width),
                "write_line": In(range(config.param_lines)),
                "write_data": In(8 * config.line_bytes),
                "read_addr": In(addr_width),
                "read_data": Out(param_layout(config)),
                **error_port(config.protected("parameters")),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        level, width = self.config.protected("parameters"), 8 * self.config.line_bytes
        places, lines, held = held_bits(self.config), [], {}
        late = not self.config.sleep
        for line in range(self.config.param_lines):
            kept = sorted({one for one in places if one is not None and one // width == line})
            if not kept:
                continue
            if level == "none":
                ram = SplitRam(len(kept), self.depth, part=len(kept), registered=late)
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
                ram.read_addr.eq(self.read_addr),
            ]
            word = ram.read_data if level == "none" else delay(m, ram.read_data, int(late))
            held |= dict(zip(kept, word, strict=False))
        bits = [Const(0, 1) if place is None else held[place] for place in places]
        m.d.comb += self.read_data.as_value().eq(Cat(bits))
        gather(m, self, errors_of(lines))
        return m
