"""A machine in a temperature that goes up and down."""

import re

from celosia.arch.config import Config
from celosia.tb.machine.fast_build import accelerator_verilog

_HEADER = re.compile(r"^module top \(\n(.*?)^\);\n", re.MULTILINE | re.DOTALL)
_PORT = re.compile(r"^  (?:input|output) .*?(\w+),?$", re.MULTILINE)

HOT, COOL = 140, 100
"""Temperatures above which, and below which, it is hot and no longer hot."""


def heated(config: Config, seed: int) -> str:
    """Return the Verilog of a machine with the field ``throttle``, but for its port ``thermal``.

    Its temperature is another one of 0 to 255 every 64 cycles, at random by the seed.
    """
    outer = _HEADER.search(accelerator_verilog(config.replace(throttle=0)))
    assert outer is not None
    names = _PORT.findall(outer[1])
    inner = re.sub(r"\btop\b", "machine", accelerator_verilog(config))
    connections = "".join(f"    .{name}({name}),\n" for name in names)
    ports = outer[1].replace("output reg", "output wire")
    return f"""{inner}
module top (
{ports});
  reg [31:0] noise = 32'd{(seed * 2654435761 + 1) % (1 << 32)};
  reg [5:0] count = 0;
  reg [7:0] temperature = 0;
  always @(posedge clk) begin
    noise <= {{noise[30:0], noise[31] ^ noise[21] ^ noise[1] ^ noise[0]}};
    count <= count + 1;
    if (count == 0) temperature <= noise[7:0];
  end
  machine machine (
{connections}    .thermal__temperature(temperature),
    .thermal__hot(8'd{HOT}),
    .thermal__cool(8'd{COOL})
  );
endmodule
"""
