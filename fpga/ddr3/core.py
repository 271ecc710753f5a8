"""LiteDRAM's core for a board's DDR3, generated in a separate process and cached."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from celosia.arch.ddr3 import Ddr3Chip, Ddr3Start, start_up_steps
from celosia.arch.errors import InputError, RunError
from celosia.arch.packages import remedy
from celosia.arch.support.cache import ROOT, cached, digest

NAME = "litedram_core"
"""Name of the Verilog module of LiteDRAM's core."""

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)

_SCRIPTS = tuple(Path(__file__).parent / name for name in ("generate.py", "model.py"))
_CLOCKS_MHZ = (20.0, 200.0)
"""Lowest and highest clock of a machine with DDR3 (MHz). A slower clock leaves too little time
between refreshes; an ECP5's PLL cannot make twice a faster clock."""
NO_CLOCK = 3
"""Exit code of the process if LiteX finds no setting of the clock generator."""
_SLOW_MHZ = 64.0
_SLOW_DELAY = 100  # of commands at clocks up to the one above, as in LiteX's target of OrangeCrab


class ClockError(InputError):
    """A clock frequency for which LiteX finds no PLL setting."""


@dataclass(frozen=True, kw_only=True)
class Ddr3:
    """A board's DDR3 chip, and the wiring between the chip and the FPGA."""

    chip: Ddr3Chip
    termination: str = "60ohm"
    """The chip's nominal termination (RTT_NOM)."""
    swapped_masks: bool = False
    """True if the board swaps the data masks of bytes 0 and 1."""
    high: int = 0
    """FPGA outputs that are wired to the supply and drive 1, against noise."""
    low: int = 0
    """FPGA outputs that are wired to ground and drive 0, against noise."""


@dataclass(frozen=True)
class Core:
    """LiteDRAM's core for a board: its Verilog, its start-up sequence and its clock.

    ``mhz`` is the frequency of the clock that the core makes for the machine (MHz).
    ``oscillator_mhz`` is the frequency of the PLL's VCO (MHz), or 0 if the core has no PLL. The
    board's oscillator has another frequency.
    """

    verilog: str
    start: Ddr3Start
    mhz: float
    oscillator_mhz: float


def make_core(
    ddr3: Ddr3,
    device: str,
    oscillator_mhz: float,
    mhz: float,
    *,
    model: bool = False,
    watched: bool = False,
) -> Core:
    """Return LiteDRAM's core for a device; the core's clock is within 1 % of ``mhz``.

    If ``model`` is true, the core is for simulation; if ``watched`` is also true, it prints timing
    violations of the chip. Errors:

    - :class:`InputError`: ``mhz`` is not from 20 to 200, or LiteDRAM is missing.
    - :class:`ClockError`: no PLL setting fits.
    - :class:`RunError`: LiteDRAM's generator fails.
    """
    least, most = _CLOCKS_MHZ
    if not least <= mhz <= most:
        raise InputError(
            f"Clock of a machine with DDR3 must be from {least:g} to {most:g} MHz, not {mhz:g} MHz"
        )
    try:
        versions = [metadata.version(name) for name in ("litedram", "litex", "migen")]
    except metadata.PackageNotFoundError:
        raise InputError(
            f"DDR3 needs the package litedram of the extra boards; {remedy('boards')}"
        ) from None
    config = {
        "cpu": None,
        "device": device,
        "memtype": "DDR3",
        "sdram_module": ddr3.chip.name,
        "sdram_module_nb": ddr3.chip.lanes,
        "sdram_rank_nb": 1,
        "sdram_phy": "ECP5DDRPHY",
        "dm_swap": ddr3.swapped_masks,
        "cmd_delay": _SLOW_DELAY if mhz <= _SLOW_MHZ else 0,
        "rtt_nom": ddr3.termination,
        "input_clk_freq": oscillator_mhz * 1e6,
        "sys_clk_freq": mhz * 1e6,
        "init_clk_freq": 25e6,
        "cmd_buffer_depth": 16,
        "user_ports": {"0": {"type": "native", "block_until_ready": False}},
    }
    wanted = json.dumps({"name": NAME, "model": model, "watched": watched, "config": config})
    scripts = [script.read_text(encoding="utf-8") for script in _SCRIPTS]

    def generate(folder: Path) -> None:
        (folder / "core.json").write_text(wanted, encoding="utf-8")
        command = [sys.executable, "-m", "celosia.fpga.ddr3.generate", str(folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
        (folder / "generate.log").write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode == NO_CLOCK:
            raise ClockError(
                f"Clock of a machine with DDR3 must be one that LiteX's clock generator makes of "
                f"{oscillator_mhz:g} MHz within 1 %, not {mhz:g} MHz"
            )
        if done.returncode:
            raise RunError(f"LiteDRAM makes no core for {ddr3.chip.name}:\n{done.stderr[-2000:]}")

    folder = cached("litedram", digest(wanted, *versions, *scripts), generate)
    made = json.loads((folder / "made.json").read_text(encoding="utf-8"))
    # Comments differ from call to call.
    verilog = _COMMENT.sub("", (folder / "core.v").read_text(encoding="utf-8"))
    start = start_up_steps(ddr3.chip, made["registers"], made["sequence"], tuple(made["phases"]))
    return Core(verilog, start, *made["clocks"])
