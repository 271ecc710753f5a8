"""The vector engine's requantization parameters."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from arch.config import Config
from hdl.component import Component
from hdl.memory.protected import error_port, errors_of, gather, protected_ram

PARAM_BYTES = 9
"""Bytes of one lane's parameters."""


def param_layout(config: Config) -> data.StructLayout:
    """Return one parameter word: bias, multiplier and shift of each lane, then padding."""
    lane = data.StructLayout({"bias": signed(32), "multiplier": signed(32), "shift": signed(8)})
    used = PARAM_BYTES * config.lanes
    spare = 8 * (config.param_lines * config.line_bytes - used)
    return data.StructLayout({"lanes": data.ArrayLayout(lane, config.lanes), "spare": spare})


class ParamMemory(Component):
    """Holds the parameter words; a word is written line by line and read whole, a cycle later.

    A word that is written is not read in that cycle: the program's tokens keep the order.
    """

    def __init__(self, config: Config):
        self.config = config
        addr_width = (config.param_depth - 1).bit_length()
        super().__init__(
            {
                "write_en": In(1),
                "write_addr": In(addr_width),
                "write_line": In(range(config.param_lines)),
                "write_data": In(8 * config.line_bytes),
                "read_en": In(1),
                "read_addr": In(addr_width),
                "read_data": Out(param_layout(config)),
                **error_port(config.protected("parameters")),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        words, lines = [], []
        level = self.config.protected("parameters")
        for line in range(self.config.param_lines):
            width = 8 * self.config.line_bytes
            ram = protected_ram(width, self.config.param_depth, level, part=min(32, width))
            m.submodules[f"line_{line}"] = ram
            lines.append(ram)
            m.d.comb += [
                ram.write_en.eq(self.write_en & (self.write_line == line)),
                ram.write_addr.eq(self.write_addr),
                ram.write_data.eq(self.write_data),
                ram.read_en.eq(self.read_en),
                ram.read_addr.eq(self.read_addr),
            ]
            words.append(ram.read_data)
        m.d.comb += self.read_data.as_value().eq(Cat(words))
        gather(m, self, errors_of(lines))
        return m


def scales_layout() -> data.StructLayout:
    """Return the multipliers and shifts of an addition's two inputs."""
    scale = data.StructLayout({"multiplier": signed(32), "shift": signed(8)})
    return data.StructLayout({"i": scale, "r": scale})


class InputScales(Component):
    """Fetches the multipliers and shifts of an addition's inputs from two parameter words.

    While ``en`` is 1, lane 0 of word ``addr`` is read for the input and that of the next word for
    the second input. ``ready`` is 1 in the third cycle, after which ``o`` holds them.
    """

    def __init__(self, config: Config):
        self.config = config
        addr_width = (config.param_depth - 1).bit_length()
        super().__init__(
            {
                "en": In(1),
                "addr": In(addr_width),
                "ready": Out(1),
                "read_addr": Out(addr_width),
                "read_data": In(param_layout(config)),
                "o": Out(scales_layout()),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        asked = Signal(2)
        lane = self.read_data.lanes[0]
        m.d.comb += [self.read_addr.eq(self.addr + asked), self.ready.eq(asked == 2)]
        with m.If(self.en):
            m.d.sync += asked.eq(Mux(self.ready, 0, asked + 1))
            for cycle, scale in ((1, self.o.i), (2, self.o.r)):
                with m.If(asked == cycle):
                    m.d.sync += [scale.multiplier.eq(lane.multiplier), scale.shift.eq(lane.shift)]
        return m
