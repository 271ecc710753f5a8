"""A LiteX system whose processor classifies handwritten digits on a Celosia accelerator.

The firmware is in examples/firmware; the processor is a VexRiscv. Needs LiteX, its
pythondata-cpu-vexriscv, Verilator and riscv64-unknown-elf-gcc. Run it with a folder to write to,
and perhaps a configuration (tiny without one); it compiles the model, generates the system, builds
its simulation, and prints the firmware's output:

    python examples/litex_firmware.py DIR small
"""

import argparse
import subprocess
import sys
from pathlib import Path

from litex.build.generic_platform import Pins, Subsignal
from litex.build.sim import SimPlatform
from litex.soc.integration.export import get_csr_header, get_linker_regions
from litex.soc.integration.soc_core import get_mem_data
from litex_soc import CONTROL, IO, MAIN_MEMORY, CelosiaSoc, generate_verilog

from celosia.tb.machine.toolchain import Runtime

FIRMWARE = Path(__file__).parent / "firmware"
MEMORY_WIDTH = 16
"""Width of an address (bits) of the main memory; the accelerator uses all of it."""

ROM_BYTES = 1 << 17
SRAM_BYTES = 1 << 13
LIMIT = 20_000_000
"""Cycles after which the simulation is given up."""

STREAM = ("source_valid", "source_ready", "sink_valid", "sink_ready")
SERIAL = (
    "serial",
    0,
    *(Subsignal(name, Pins(1)) for name in STREAM),
    *(Subsignal(name, Pins(8)) for name in ("source_data", "sink_data")),
)


def compile_model(folder: Path, config: str) -> None:
    """Write the model, the driver and the accelerator's Verilog."""
    celosia = Path(sys.executable).with_name("celosia")
    words = [celosia, "compile", "digits", "--config", config]
    words += ["--set", f"mem_addr_width={MEMORY_WIDTH}", "--add", "c,verilog"]
    words += ["--bus", f"wishbone@{MAIN_MEMORY:#x}", "--control", "wishbone"]
    subprocess.run([*words, "--out", str(folder)], check=True, stdout=subprocess.DEVNULL)


def build_firmware(soc: CelosiaSoc, folder: Path) -> Path:
    """Return the firmware's bytes, compiled for the places of the system's memories."""
    texts = {
        "csr.h": get_csr_header(
            soc.csr_regions, soc.constants, soc.mem_regions["csr"].origin, True, False
        ),
        "regions.ld": get_linker_regions(soc.mem_regions),
        "places.h": f"#define CELOSIA_REGISTERS {CONTROL:#x}\n#define CELOSIA_MEMORY "
        f"{MAIN_MEMORY:#x}\n#define CELOSIA_MEMORY_BYTES {1 << MEMORY_WIDTH}\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    sources = ["celosia.c", "digits_model.c", "digits_samples.c"]
    compiler = ["riscv64-unknown-elf-gcc", "-march=rv32im", "-mabi=ilp32", "-std=c99", "-O2"]
    compiler += ["-Wall", "-Wextra", "-Werror", "-ffreestanding", "-nostdlib", "-I.", "-L."]
    linked = ["-T", FIRMWARE / "link.ld", "-o", "firmware.elf"]
    files = [FIRMWARE / "start.S", FIRMWARE / "main.c", *sources]
    subprocess.run([*compiler, *linked, *files, "-lgcc"], cwd=folder, check=True)
    copied = ["riscv64-unknown-elf-objcopy", "-O", "binary", "firmware.elf", "firmware.bin"]
    subprocess.run(copied, cwd=folder, check=True)
    return folder / "firmware.bin"


def build_simulation(sources: list[Path]) -> Path:
    """Return the simulation's program; the memories' contents are not part of it."""
    verilog = "".join(path.read_text(encoding="utf-8") for path in sources)
    harness = (FIRMWARE / "simulation.cpp").read_text(encoding="utf-8")
    words = ["--top-module", "celosia_soc", "-Mdir", ".", "-o", "simulation", "-O3"]
    words += ["-Wno-fatal", "-Wno-lint", "-Wno-style", "--output-split", "20000"]
    words += ["simulation.cpp", "top.v"]
    texts = {"simulation.cpp": harness}
    built = Runtime("soc").build("soc", words, verilog, texts, work="Build of the system")
    return built / "simulation"


def main(folder: Path, config: str) -> None:
    """Build the system with its firmware, and run it."""
    folder.mkdir(parents=True, exist_ok=True)
    compile_model(folder, config)
    platform = SimPlatform("SIM", [*IO, SERIAL])
    soc = CelosiaSoc(
        platform,
        folder,
        cpu_type="vexriscv",
        cpu_variant="lite",
        uart_name="sim",
        integrated_rom_size=ROM_BYTES,
        integrated_sram_size=SRAM_BYTES,
        integrated_main_ram_size=1 << MEMORY_WIDTH,
    )
    soc.finalize()
    firmware = build_firmware(soc, folder)
    soc.init_rom("rom", get_mem_data(str(firmware), data_width=32, endianness="little"), False)
    sources = generate_verilog(platform, soc, folder)
    simulation = build_simulation(sources)
    subprocess.run([simulation, str(LIMIT)], cwd=folder, check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("config", nargs="?", default="tiny")
    arguments = parser.parse_args()
    main(arguments.folder.resolve(), arguments.config)
