"""A LiteX system with a Celosia accelerator: both ports on the system's Wishbone bus.

The registers are at CONTROL, external memory is the system's main memory. Needs LiteX. Run it with
a folder to write to; it generates the accelerator there, then the system's Verilog, celosia_soc.v:

    python examples/litex_soc.py DIR
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from litex.build.generic_platform import Pins
from litex.build.io import CRG
from litex.build.sim import SimPlatform
from litex.soc.integration.soc import SoCRegion
from litex.soc.integration.soc_core import SoCCore
from litex.soc.interconnect import wishbone
from migen import Cat, ClockSignal, Constant, Instance, Module, ResetSignal, Signal

CONTROL = 0x8000_0000
"""Bus address of the registers."""

MAIN_MEMORY = 0x4000_0000
"""Bus address of LiteX's main memory."""

IO = [("sys_clk", 0, Pins(1)), ("interrupt", 0, Pins(1))]


class Celosia(Module):
    """The generated accelerator: ``control`` is its slave, ``memory`` its master.

    ``irq`` is its interrupt line, a level. A system with a processor has an interrupt for it; this
    one, without, has a pin.
    """

    def __init__(self, folder: Path):
        described = json.loads((folder / "celosia_accelerator.json").read_text(encoding="utf-8"))
        width = described["bus"]["data_width"]
        self.control = control = wishbone.Interface(32, 8, addressing="word")
        place = Signal((width // 8 - 1).bit_length())  # of a byte in a word; always 0
        self.memory = memory = wishbone.Interface(width, 32 - len(place), bursting=True)
        self.irq = Signal()
        self.specials += Instance(
            described["module"],
            i_clk=ClockSignal(),
            i_rst=ResetSignal(),
            i_wbs_cyc_i=control.cyc,
            i_wbs_stb_i=control.stb,
            i_wbs_we_i=control.we,
            i_wbs_adr_i=Cat(Constant(0, 2), control.adr),
            i_wbs_dat_i=control.dat_w,
            i_wbs_sel_i=control.sel,
            o_wbs_dat_o=control.dat_r,
            o_wbs_ack_o=control.ack,
            o_wbs_err_o=control.err,
            o_wbm_cyc_o=memory.cyc,
            o_wbm_stb_o=memory.stb,
            o_wbm_we_o=memory.we,
            o_wbm_adr_o=Cat(place, memory.adr),
            o_wbm_dat_o=memory.dat_w,
            o_wbm_sel_o=memory.sel,
            o_wbm_cti_o=memory.cti,
            o_wbm_bte_o=memory.bte,
            i_wbm_dat_i=memory.dat_r,
            i_wbm_ack_i=memory.ack,
            i_wbm_err_i=memory.err,
            o_irq=self.irq,
        )


class CelosiaSoc(SoCCore):
    """An accelerator and main memory on a bus; the options are those of ``SoCCore``."""

    def __init__(self, platform: SimPlatform, folder: Path, **options: Any):
        ident = "LiteX system with a Celosia accelerator"
        super().__init__(platform, clk_freq=int(50e6), ident=ident, **options)
        self.crg = CRG(platform.request("sys_clk"))
        platform.add_source(str(folder / "celosia_accelerator.v"))
        self.celosia = Celosia(folder)
        region = SoCRegion(origin=CONTROL, size=1 << 10, cached=False)
        self.bus.add_slave("celosia", self.celosia.control, region)
        self.bus.add_master("celosia", self.celosia.memory)
        self.comb += platform.request("interrupt").eq(self.celosia.irq)


def generate_verilog(platform: SimPlatform, soc: CelosiaSoc, folder: Path) -> list[Path]:
    """Write the system's Verilog and its memories' contents; return all Verilog that it needs."""
    verilog = platform.get_verilog(soc, name="celosia_soc")
    files = {"celosia_soc.v": verilog.main_source, **verilog.data_files}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / "celosia_soc.v", *(Path(source[0]) for source in platform.sources)]


def main(folder: Path) -> None:
    """Generate the accelerator and the system."""
    celosia = Path(sys.executable).with_name("celosia")
    generate = [celosia, "generate", "--config", "tiny", "--set", "mem_addr_width=16"]
    generate += ["--bus", f"wishbone@{MAIN_MEMORY:#x}", "--control", "wishbone"]
    subprocess.run([*generate, "--out", str(folder)], check=True)
    platform = SimPlatform("SIM", IO)
    # Without a processor; whatever writes to the serial port is the host.
    soc = CelosiaSoc(
        platform,
        folder,
        cpu_type=None,
        uart_name="crossover",
        integrated_sram_size=0,
        integrated_main_ram_size=1 << 16,
    )
    generate_verilog(platform, soc, folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    main(parser.parse_args().folder)
