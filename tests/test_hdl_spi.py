"""The SPI peripheral: against a host with a separate clock, and one that others wrote."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from celosia.arch.link import VERSION, Identity
from celosia.generators.verilog.verilog import to_verilog
from celosia.hdl.link.link import Link
from celosia.hdl.link.spi import CYCLES, LATE, SpiPeripheral
from celosia.hdl.memory.onchip import OnchipMemory
from celosia.tb.benches.simulate import simulate
from celosia.tb.machine.toolchain import PERIOD_NS, missing_tools
from tests.support.configurations import SMALLEST

FASTEST = CYCLES // 2 * PERIOD_NS
WIRES = {"wire_ns": 9, "setup_ns": 11}
"""Pads and wires each way, and the setup of FTDI's FT232H: the budget leaves 1 ns."""


@pytest.mark.parametrize(
    ("simulator", "stall", "half_ns"), [("icarus", 0.0, FASTEST), ("icarus", 0.98, FASTEST + 7)]
)
def test_peripheral(simulator: str, stall: float, half_ns: int) -> None:
    assert LATE * PERIOD_NS + 2 * WIRES["wire_ns"] + WIRES["setup_ns"] + 1 == FASTEST
    simulate(
        SpiPeripheral(),
        bench="celosia.tb.benches.bench_spi",
        testcase="bytes_pass_both_ways",
        simulator=simulator,
        seed=half_ns,
        parameters={"transfers": 60, "stall": stall, "half_ns": half_ns, **WIRES},
    )


TIMEOUT = 1000


class SpiLink(wiring.Component):
    """A link behind SPI, with memory and without an accelerator: its registers are 0."""

    def __init__(self) -> None:
        self.config = SMALLEST.replace(mem_width=16, mem_addr_width=10)
        self.identity = Identity(
            version=VERSION, configuration=0x12345678, clock=16_000_000, memory=512, payload=64
        )
        super().__init__(
            {"sck": In(1), "cs_n": In(1, init=1), "copi": In(1), "cipo": Out(1)},
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.spi = spi = SpiPeripheral()
        m.submodules.link = link = Link(
            self.config.memory,
            program_depth=self.config.control.program_depth,
            identity=self.identity,
            timeout=TIMEOUT,
        )
        m.submodules.memory = memory = OnchipMemory(self.config.memory, 512)
        wiring.connect(m, spi.o, link.i)
        wiring.connect(m, link.o, spi.i)
        wiring.connect(m, link.mem_read, memory.read)
        wiring.connect(m, link.mem_write, memory.write)
        m.d.comb += [getattr(spi, name).eq(getattr(self, name)) for name in ("sck", "cs_n", "copi")]
        m.d.comb += self.cipo.eq(spi.cipo)
        return m


def test_a_link_answers() -> None:
    unit = SpiLink()
    simulate(
        unit,
        bench="celosia.tb.benches.bench_spi",
        testcase="a_link_answers",
        simulator="icarus",
        seed=5,
        parameters={
            "identity": unit.identity.words(),
            "timeout": TIMEOUT,
            "half_ns": FASTEST,
            **WIRES,
        },
    )


_HOST = """\
import sys
from litex.soc.cores.spi import SPIMaster
from migen import Record
from migen.fhdl import verilog
pads = Record(SPIMaster.pads_layout)
host = SPIMaster(pads, 16, 100e6, 10e6, with_csr=False)
ports = {host.start, host.length, host.done, host.mosi, host.miso, host.cs, *pads.flatten()}
verilog.convert(host, ports, name="spi_host").write(sys.argv[1])
"""

_BENCH = """\
`timescale 1ns / 1ps
module bench;
  reg sys_clk = 0, sys_rst = 1, clk = 0, rst = 1;
  always #5 sys_clk = ~sys_clk;
  always #3.7 clk = ~clk;
  reg start = 0;
  reg [15:0] mosi = 0;
  wire [15:0] miso;
  wire done, sck, cs_n, copi, cipo, valid;
  wire [8:0] payload;
  reg [7:0] next = 8'h11;
  wire ready;
  reg [15:0] came = 0;
  always @(posedge clk) begin
    if (ready) next <= next + 8'h11;
    if (valid) came <= {came[7:0], payload[7:0]};
  end
  spi_host host (
    .sys_clk(sys_clk), .sys_rst(sys_rst), .start(start), .length(8'd16), .done(done),
    .mosi(mosi), .miso(miso), .cs(1'b1), .pads_clk(sck), .pads_cs_n(cs_n), .pads_mosi(copi),
    .pads_miso(cipo)
  );
  top peripheral (
    .clk(clk), .rst(rst), .sck(sck), .cs_n(cs_n), .copi(copi), .cipo(cipo),
    .o__valid(valid), .o__payload(payload),
    .i__valid(1'b1), .i__payload(next), .i__ready(ready)
  );
  integer index;
  initial begin
    #100 sys_rst = 0; rst = 0;
    #100;
    for (index = 0; index < 20; index = index + 1) begin
      @(negedge sys_clk) mosi = $random; start = 1;
      @(negedge sys_clk) start = 0;
      @(negedge sys_clk) while (!done) @(negedge sys_clk);
      #200 $display("%h %h %h", mosi, came, miso);
    end
    $finish;
  end
endmodule
"""


@pytest.mark.skipif(bool(missing_tools("icarus")), reason="Icarus is not installed")
@pytest.mark.skipif(importlib.util.find_spec("litex") is None, reason="LiteX is not installed")
def test_a_host_that_is_not_ours_is_understood(tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-c", _HOST, tmp_path / "host.v"], capture_output=True, encoding="utf-8"
    )
    assert made.returncode == 0, made.stderr
    (tmp_path / "top.v").write_text(to_verilog(SpiPeripheral(), "top"), encoding="utf-8")
    (tmp_path / "bench.v").write_text(_BENCH, encoding="utf-8")
    command = ["iverilog", "-g2005", "-s", "bench", "-o", "bench.vvp", "bench.v", "top.v", "host.v"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(
        ["vvp", "-n", "bench.vvp"], cwd=tmp_path, capture_output=True, encoding="utf-8", check=True
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == 20
    counted = [f"{byte % 256:02x}" for byte in range(0x11, 0x11 * 50, 0x11)]
    for index, (sent, came, back) in enumerate(lines):
        assert came == sent
        # A byte is taken as the one before it ends, so that one more has been taken than sent.
        assert back == "".join(counted[2 * index : 2 * index + 2])
