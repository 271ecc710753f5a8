"""Checks of external memory chips of any kind."""

from amaranth.utils import exact_log2

from celosia.arch.config import Config
from celosia.arch.ddr3 import Ddr3Chip
from celosia.arch.errors import InputError
from celosia.arch.psram import PsramChip
from celosia.arch.sdram import SdramChip


def check_holds(chip: Ddr3Chip | PsramChip | SdramChip, config: Config) -> None:
    """Raise :class:`InputError` if a configuration addresses more bytes than a chip has."""
    if 1 << config.memory.addr_width > chip.size:
        raise InputError(
            f"mem_addr_width must be at most {exact_log2(chip.size)}, as {chip.name} has "
            f"{chip.size} bytes, not {config.memory.addr_width}"
        )
