"""Runs LiteDRAM's generator in a separate process, for a core that ``core.json`` describes.

The argument is the folder of ``core.json``. The process writes ``core.v`` (Verilog) and
``made.json`` (registers, initialization sequence, phases, frequencies) there.
"""

import copy
import json
import re
import sys
import tempfile
from pathlib import Path

import litedram.gen
from litedram import modules, phy
from litedram.init import get_sdram_phy_init_sequence
from litex.build.lattice import LatticePlatform
from litex.soc.integration import export
from litex.soc.integration.builder import Builder

from celosia.fpga.ddr3 import model
from celosia.fpga.ddr3.core import NO_CLOCK

_BITS = {
    "CKE": 0x02, "ODT": 0x04, "RESET_N": 0x08,
    "CS": 0x01, "WE": 0x02, "CAS": 0x04, "RAS": 0x08,
}  # fmt: skip


def _sequence(core) -> list[tuple[int, int, int, bool, int]]:
    """Return LiteDRAM's steps: address, bank, command, flag of the control register, cycles."""
    settings = core.sdram.controller.settings
    sequence, _ = get_sdram_phy_init_sequence(settings.phy, settings.timing)
    steps = []
    for _, addr, bank, command, wait in sequence:
        names = [name.split("_", 2) for name in command.split("|")]
        value = sum(_BITS[name[2]] for name in names)
        steps.append((addr, bank, value, names[0][1] == "CONTROL", wait))
    return steps


_LONGEST = 50.0
"""Longest period of a core's clock (ns)."""

_WR = 15.0
"""tWR of DDR3 of any speed (JEDEC, ns); LiteDRAM has less for some chips."""


def timed_module(module):
    """Return a subclass of LiteDRAM's class for a DDR3 chip, with corrected timing parameters.

    tWR is at least JEDEC's. tRFC is in nanoseconds instead of cycles of the fastest clock. tREFI is
    50 ns shorter, because LiteDRAM rounds it up to a cycle.
    """
    times = dict(module.speedgrade_timings)
    usual = times["default"]
    grade = next(name for name, each in times.items() if each is usual)
    cycles, least = usual.tRFC
    longest = max(cycles * 2000 / int(grade), least or 0)
    times["default"] = type(usual)(
        usual.tRP, usual.tRCD, max(usual.tWR, _WR), (None, longest), usual.tFAW, usual.tRAS
    )
    technology = copy.copy(module.technology_timings)
    technology.tREFI -= _LONGEST
    changed = {"speedgrade_timings": times, "technology_timings": technology}
    return type(module.__name__, (module,), changed)


def main(folder: Path) -> None:
    """Generate the DDR3 controller (LiteDRAM's core) that the file ``core.json`` describes.

    ``folder`` contains ``core.json``, and gets two files: ``core.v``, the controller's Verilog, and
    ``made.json``, which has register addresses, the chip's initialization sequence, DFI phases and
    clock frequencies.
    """
    wanted = json.loads((folder / "core.json").read_text(encoding="utf-8"))
    config = wanted["config"]
    config["sdram_module"] = timed_module(getattr(modules, config["sdram_module"]))
    if wanted["model"]:
        # The generator knows classes of PHYs by identity; all else of the core stays as it is.
        phy.ECP5DDRPHY = model.ModelPhy.of(phy.ECP5DDRPHY, config, wanted["watched"])
        litedram.gen.LiteDRAMECP5DDRPHYCRG = model.ModelClock
    config["sdram_phy"] = phy.ECP5DDRPHY
    platform = LatticePlatform(config["device"], io=[], toolchain="trellis")
    core = litedram.gen.LiteDRAMCore(platform, config)
    clocks = [config["sys_clk_freq"] / 1e6, 0.0] if wanted["model"] else _clocks(core.crg.pll)
    with tempfile.TemporaryDirectory() as place:
        builder = Builder(core, output_dir=place, compile_software=False, compile_gateware=False)
        builder.build(build_name=wanted["name"], regular_comb=False)
        verilog = (Path(place) / "gateware" / f"{wanted['name']}.v").read_text(encoding="utf-8")
        registers = json.loads(_exported(core))["csr_registers"]
    # Without the head and the foot, which tell of the day.
    verilog = verilog[verilog.index("module ") : verilog.index("endmodule")] + "endmodule\n"
    # LiteX writes an assignment to several signals once for each of them.
    verilog = re.sub(r"^(assign \{.*\n)\1+", r"\1", verilog, flags=re.MULTILINE)
    # Whether a port goes both ways is lost on its way through LiteX's instances of pins.
    verilog = re.sub(r"input (\s*wire\s+\[\d+:0\] ddram_(dq|dqs_p),)", r"inout \1", verilog)
    (folder / "core.v").write_text(verilog, encoding="utf-8")
    settings = core.sdram.controller.settings.phy
    made = {
        "registers": {name: register["addr"] for name, register in registers.items()},
        "sequence": _sequence(core),
        "phases": [settings.rdphase, settings.wrphase],
        "clocks": clocks,
    }
    (folder / "made.json").write_text(json.dumps(made, indent=1), encoding="utf-8")


def _exported(core) -> str:
    return export.get_csr_json(core.csr_regions, core.constants, core.mem_regions)


def _clocks(pll) -> list[float]:
    """Return the user's clock, half of the generator's first, and the oscillator's (MHz).

    If LiteX finds no setting, the process ends with ``NO_CLOCK``.
    """
    settings = copy.copy(pll)
    settings.clkouts = dict(pll.clkouts)
    try:
        clocks = settings.compute_config()
    except ValueError:
        sys.exit(NO_CLOCK)
    return [clocks["clko0_freq"] / 2e6, clocks["vco"] / 1e6]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
