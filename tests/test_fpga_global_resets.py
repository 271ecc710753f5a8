"""Resets of many registers on a device's clock network."""

import json
from collections import Counter
from pathlib import Path

import pytest

from celosia.fpga.devices import DEVICES
from celosia.fpga.global_resets import MANY, spread_resets
from celosia.fpga.synthesis import NETLIST, synthesize
from celosia.fpga.tools import find_tool, run_tool

DEVICE = DEVICES["LFE5U-25F"]
DESIGN = """
module top(input clk, input clear, input few, input i, output o);
  reg cleared, some;
  reg [{last}:0] a, b;
  reg [7:0] c;
  always @(posedge clk) begin
    cleared <= clear;
    some <= few;
    a <= cleared ? 0 : {{a, i}};
    b <= cleared ? 0 : {{b, a[{last}]}};
    c <= some ? 0 : {{c, b[{last}]}};
  end
  assign o = ^c ^ a[{last}];
endmodule
"""


def resets(netlist: Path) -> tuple[Counter[object], dict[str, dict[str, list[object]]]]:
    """Return how many registers each net resets, and the pins of clock buffers."""
    cells = json.loads(netlist.read_text(encoding="utf-8"))["modules"]["top"]["cells"].values()
    counts = Counter(
        cell["connections"]["LSR"][0] for cell in cells if cell["type"] == "TRELLIS_FF"
    )
    buffers = {str(n): c["connections"] for n, c in enumerate(cells) if c["type"] == "DCCA"}
    return counts, buffers


@pytest.mark.slow
@pytest.mark.parametrize("count", [MANY // 2 - 1, MANY // 2])
def test_resets_of_many_registers_go_by_a_clock_buffer(tmp_path: Path, count: int) -> None:
    synthesize(DESIGN.format(last=count - 1), "top", DEVICE, tmp_path)
    before, _ = resets(tmp_path / NETLIST)
    made = spread_resets(tmp_path / NETLIST, "top")
    after, buffers = resets(tmp_path / NETLIST)
    assert sorted(before.values()) == sorted(after.values())
    if 2 * count < MANY:
        assert made == 0
        assert (before, buffers) == (after, {})
        return
    assert made == len(buffers) == 1
    (pins,) = buffers.values()
    assert before[pins["CLKI"][0]] == after[pins["CLKO"][0]] == 2 * count
    assert pins["CLKI"][0] not in after
    tool = find_tool(DEVICE.family.router)
    arguments = ["--json", NETLIST, "--write", "placed.json", "--lpf-allow-unconstrained"]
    arguments += [*DEVICE.options, "--package", "CABGA381"]
    run_tool(tool, arguments, folder=tmp_path, log="place.log", work="Place and route")
    placed = json.loads((tmp_path / "placed.json").read_text(encoding="utf-8"))
    cells = placed["modules"]["top"]["cells"].values()
    assert sum(cell["type"] == "DCCA" for cell in cells) == 2  # the clock's own, too
    routes = placed["modules"]["top"]["netnames"]["global_reset_0"]["attributes"]["ROUTING"]
    assert "G_HPBX" in routes
