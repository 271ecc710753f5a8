"""Checks that an SDRAM, PSRAM or DDR3 chip is large enough for the external memory port."""

from amaranth.utils import exact_log2

from celosia.arch.ddr3 import Ddr3Chip
from celosia.arch.errors import InputError
from celosia.arch.psram import PsramChip
from celosia.arch.records import Memory
from celosia.arch.sdram import SdramChip


def check_holds(chip: Ddr3Chip | PsramChip | SdramChip, memory: Memory) -> None:
    """Raise :class:`InputError` if a chip has fewer bytes than the memory port can address."""
    if 1 << memory.addr_width > chip.size:
        raise InputError(
            f"mem_addr_width must be at most {exact_log2(chip.size)}, as {chip.name} has "
            f"{chip.size} bytes, not {memory.addr_width}"
        )
