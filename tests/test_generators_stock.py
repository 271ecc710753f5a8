"""Each component is an ordinary one: Amaranth's own conversion takes it, and so does a project."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.back import rtlil, verilog

from celosia.arch.presets import PRESETS
from celosia.arch.support.cache import ROOT
from celosia.generators.verilog.units import UNITS, make_unit
from celosia.hdl.machine import machine_component
from celosia.tb.machine.circuit_sources import kept_verilog
from celosia.tb.machine.toolchain import environment, missing_tools
from tests.support.configurations import SMALLEST
from tests.support.longer import longer

MACHINES = {"micro": PRESETS["micro"], "smallest": SMALLEST}
"""A machine of each kind, small: Amaranth alone converts each instance."""


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit != "accelerator"])
def test_amaranth_converts_each_unit(unit: str) -> None:
    text = rtlil.convert(make_unit(unit, PRESETS["tiny"]), emit_src=False)
    assert text.count("\nmodule \\top") >= 1


# Amaranth converts machines with engines to RTLIL below, and each of their units above.
@pytest.mark.parametrize("name", ["micro", *longer("smallest")])
def test_amaranth_writes_the_verilog_of_an_accelerator(name: str) -> None:
    text = verilog.convert(machine_component(MACHINES[name]), name="accelerator", emit_src=False)
    (ports,) = re.findall(r"^module accelerator\(([^)]*)\);", text, re.MULTILINE)
    own = kept_verilog(machine_component(MACHINES[name]), "accelerator")
    (header,) = re.findall(r"^module accelerator \(\n(.*?)^\);", own, re.MULTILINE | re.DOTALL)
    declared = re.findall(r"^  (?:input|output) .*?(\w+),?$", header, re.MULTILINE)
    assert sorted(ports.replace(",", " ").split()) == sorted(declared)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in PRESETS if name != "micro"])
def test_amaranth_converts_each_preset(name: str) -> None:
    assert "module \\top\n" in rtlil.convert(machine_component(PRESETS[name]), emit_src=False)


def test_a_conversion_warns_of_nothing() -> None:
    """Components that are made and thrown away are told of by Amaranth as a process ends."""
    program = (
        "from amaranth.back import rtlil\n"
        "from celosia.arch.presets import load\n"
        "from celosia.hdl.machine import machine_component\n"
        "changes = ['rows=2', 'cols=2', 'lanes=2', 'registered=true', 'array=tree']\n"
        "changes.append('rotary=true')\n"
        "for config in (load('micro', []), load('tiny', changes)):\n"
        "    text = rtlil.convert(machine_component(config), emit_src=False)\n"
        "    assert 'module \\\\top\\n' in text\n"
    )
    command = [sys.executable, "-W", "always", "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


SOC = """\
module Ram (input wire clk, input wire [2:0] a, output reg q);
  wire [7:0] held = 8'h5a;
  always @(posedge clk) q <= held[a];
endmodule

module Multiplier (input wire [2:0] a, output wire [5:0] p);
  assign p = {3'd0, a} * {3'd0, a};
endmodule

module soc (input wire clk, input wire rst, input wire [2:0] a, output wire q, output wire ok);
  wire [5:0] p;
  wire softmax_ready, norm_ready, softmax_valid, norm_valid;
  Ram ram (.clk(clk), .a(a), .q(q));
  Multiplier multiplier (.a(a), .p(p));
  celosia_softmax softmax (
    .clk(clk), .rst(rst), .i__valid(1'b0), .i__payload(18'd0), .i__ready(softmax_ready),
    .o__ready(1'b1), .o__valid(softmax_valid), .o__payload()
  );
  celosia_addnorm addnorm (
    .clk(clk), .rst(rst), .i__valid(1'b0), .i__payload(34'd0), .i__ready(norm_ready),
    .o__ready(1'b1), .o__valid(norm_valid), .o__payload(), .o_sum__payload(), .o_sum__valid(),
    .o_sum__ready(1'b1), .n(8'd0), .rms(1'b0), .add(1'b0), .eps(56'd0)
  );
{accelerators}
  assign ok = softmax_ready & norm_ready & ~softmax_valid & ~norm_valid & p[0];
endmodule
"""
"""A design of somebody else's with modules named as components here are."""


def instance(described: Path) -> str:
    """Return an instance of the module that a description is of, with zeros at its inputs."""
    description = json.loads(described.read_text(encoding="utf-8"))
    pins = [".clk(clk)", ".rst(rst)"]
    pins += [
        f".{port['name']}({port['width']}'d0)"
        if port["direction"] == "input"
        else f".{port['name']}()"
        for port in description["ports"]
    ]
    return f"  {description['module']} {description['module']}_0 ({', '.join(pins)});"


def test_units_and_a_soc_with_the_same_names_are_one_project(celosia, tmp_path: Path) -> None:
    files = ["soc.v"]
    for unit, more in (("softmax", ()), ("addnorm", ("--prefix", "mine"))):
        words = ("generate", "--config", "tiny", "--unit", unit, "--out", tmp_path / unit)
        assert celosia(*words, *more)[0] == 0
        files.append(f"{unit}/celosia_{unit}.v")
    described = []
    for top, command in (
        ("celosia_accelerator", ("generate", "--config", "tiny")),
        ("other", ("compile", "digits", "--config", "micro", "--add", "verilog", "--top", "other")),
    ):
        assert celosia(*command, "--out", tmp_path / top)[0] == 0
        files.append(f"{top}/{top}.v")
        described.append(instance(tmp_path / top / f"{top}.json"))
    text = SOC.replace("{accelerators}", "\n".join(described))
    (tmp_path / "soc.v").write_text(text, encoding="utf-8")
    names = [
        name
        for file in files
        for name in re.findall(r"^module (\w+)", (tmp_path / file).read_text(), re.MULTILINE)
    ]
    assert len(set(names)) == len(names)
    assert {"celosia_softmax_Multiplier", "mine_Multiplier", "Multiplier"} <= set(names)
    commands = {
        "icarus": ["iverilog", "-g2005", "-s", "soc", "-o", "soc.vvp", *files],
        "verilator": ["verilator", "--lint-only", "--top-module", "soc", *files],
    }
    for simulator, command in commands.items():
        if missing_tools(simulator):
            continue
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, env=environment(), encoding="utf-8"
        )
        assert (done.returncode, done.stderr) == (0, ""), simulator


def test_a_top_must_be_a_name_of_verilog_that_is_written(celosia, tmp_path: Path) -> None:
    words = ("compile", "digits", "--out", tmp_path / "out", "--top")
    must = "Option --top must be letters, digits and underscores, no digit first, not"
    assert celosia(*words, "a-b") == (2, "", f"celosia: {must} 'a-b'\n")
    message = "celosia: Option --top needs --add verilog or testbench\n"
    assert celosia(*words, "mine") == (2, "", message)
    assert not (tmp_path / "out").exists()


def test_a_prefix_must_be_a_name(celosia, tmp_path: Path) -> None:
    words = ("generate", "--config", "tiny", "--unit", "table", "--prefix", "2 x")
    assert celosia(*words, "--out", tmp_path) == (
        2,
        "",
        "celosia: Option --prefix must be letters, digits and underscores, no digit first, "
        "not '2 x'\n",
    )
