"""The vector engine's requantization parameters."""

from amaranth.hdl import Cat, Module, signed
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
