"""Mutation testing of circuits that drive the pins of devices, such as memory controllers.

The modelled chips are smaller and start sooner than real chips, so that benches are short.
"""

from dataclasses import replace

from celosia.arch.ddr3 import CHIPS as DDR3_CHIPS
from celosia.arch.ddr3 import start_up_steps
from celosia.arch.flash import CHIPS as FLASH_CHIPS
from celosia.arch.psram import CHIPS as PSRAM_CHIPS
from celosia.arch.sdram import CHIPS as SDRAM_CHIPS
from celosia.hdl.flash.power_on import PowerOn
from celosia.hdl.flash.reader import FlashReader
from celosia.hdl.memory.ddr3.starter import Starter
from celosia.hdl.memory.psram.controller import PsramController
from celosia.hdl.memory.sdram.controller import SdramController
from celosia.tb.benches.catalog import circuit_bench
from celosia.tb.benches.power_on_images import SIZE
from celosia.tb.devices import data_sheets
from celosia.tb.devices.data_sheets import Time
from celosia.tb.devices.ddr3 import REGISTERS, SEQUENCE
from celosia.tb.devices.linked_host import ADDR, IDENTITY

CLOCK = 143e6
"""Clock of the SDRAM and of the flash (Hz)."""

PSRAM_CLOCK = 40e6
"""Clock of the machine with the PSRAM (Hz)."""

SDRAM = replace(
    SDRAM_CHIPS["IS42S16160G-7"],
    row_bits=11, col_bits=5, init_us=1.0, refreshes=2048, refresh_ms=2.0, rc=75.0, rrd=40.0,
)  # fmt: skip
SDRAM_SHEET = replace(
    data_sheets.SDRAM["IS42S16160G-7"],
    rows=2048, columns=32, power=1.0, refreshes=2048, ref=2.0, rc=Time(75.0), rrd=Time(40.0),
)  # fmt: skip

PSRAM = replace(PSRAM_CHIPS["W955D8MBYA"], row_bits=9, col_bits=4, vcs_us=1.0)
PSRAM_SHEET = replace(data_sheets.PSRAM["W955D8MBYA"], rows=512, columns=16, vcs=1.0)

FLASH = replace(FLASH_CHIPS["IS25LP128F"], power_us=1.0, wake_us=0.5, reset_us=1.0)
FLASH_SHEET = replace(data_sheets.FLASH["IS25LP128F"], vsl=1.0, res1=0.5, rst=1.0)


_WORDS = {"mem_width": 32, "mem_addr_width": 13}
"""Fields of the configuration: a memory word has two columns of a chip."""


LONGEST = 4
"""Longest wait of a step of a DDR3's start (cycles)."""


def _starter() -> Starter:
    start = start_up_steps(DDR3_CHIPS["MT41K64M16"], REGISTERS, SEQUENCE, (0, 1))
    quick = tuple(replace(step, wait=min(step.wait, LONGEST)) for step in start.wake)
    return Starter(replace(start, wake=quick))


DEVICE_BENCHES = {
    "sdram_controller": circuit_bench(
        "bench_memory_chip",
        lambda config: SdramController(config.memory, SDRAM, CLOCK),
        changes=_WORDS,
        settings={"device": "sdram"},
    ),
    "psram_controller": circuit_bench(
        "bench_memory_chip",
        lambda config: PsramController(config.memory, PSRAM, PSRAM_CLOCK),
        changes=_WORDS,
        settings={"device": "psram"},
    ),
    "ddr3_starter": circuit_bench("bench_ddr3_starter", lambda _config: _starter()),
    "flash_reader": circuit_bench(
        "bench_flash_reader",
        lambda _config: FlashReader(FLASH, CLOCK, 4),
        settings={"long_read": 50},
        mutants={"long_read": 33_000},
    ),
    "power_on": circuit_bench(
        "bench_power_on", lambda _config: PowerOn(IDENTITY.configuration, ADDR, SIZE)
    ),
}
"""Every bench of a circuit at a device, by its name."""
