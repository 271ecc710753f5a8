"""SPI flash chips: their size, and their times as their makers' data sheets state them."""

import math
from dataclasses import dataclass

from arch.errors import InputError
from arch.tables import own_table

WAKE = 0xAB
"""Command that ends the power-down in which some FPGAs leave the flash that they have read."""

READS = {1: 0x0B, 4: 0x6B}
"""Commands that read, by the lanes that data come on: 8 bits of command, 24 of address, 8 clocks of
waiting, then bytes without end."""

WAITED = 8
"""Clocks between the address and the data of these commands."""

ADDR_WIDTH = 24
"""Width of an address (bits): 16 MB of larger chips."""

BOARD_NS = 20.0
"""Longest delay of a clock to the chip and of a bit back from it, pads included (ns)."""


@dataclass(frozen=True, kw_only=True)
class FlashTiming:
    """The times of a chip in cycles of one clock."""

    half: int
    """Half a period of the chip's clock."""
    deselect: int
    """Between two commands."""
    wake: int
    """From the command ``WAKE`` to the next one."""
    power: int
    """From power-on to the first command."""


@dataclass(frozen=True, kw_only=True)
class FlashChip:
    """A chip of some bytes; times are in nanoseconds where nothing else is said."""

    name: str
    size: int
    max_mhz: float
    """Fastest clock of the commands ``READS``."""
    select: float
    """From the select line's fall to the clock's first rise, and from its last rise to the select
    line's, at least."""
    deselect: float
    """Between two commands."""
    valid: float
    """From the clock's fall to valid data, at most."""
    wake_us: float
    """From ``WAKE`` to the next command (microseconds)."""
    power_us: float
    """From power-on to the first command (microseconds)."""

    @property
    def reachable(self) -> int:
        """Bytes that an address of ``ADDR_WIDTH`` bits reaches."""
        return min(self.size, 1 << ADDR_WIDTH)

    def at(self, clock: float) -> FlashTiming:
        """Return the times in cycles of a clock (Hz); data have a period for the whole round trip.

        Raises :class:`InputError` where the clock is not above 0.
        """
        if clock <= 0:
            raise InputError(f"Clock of {self.name} must be above 0 MHz, not {clock / 1e6:g} MHz")

        def cycles(nanoseconds: float) -> int:
            return max(1, math.ceil(nanoseconds * 1e-9 * clock - 1e-9))

        period = max(1e3 / self.max_mhz, self.valid + BOARD_NS, 2 * self.select)
        return FlashTiming(
            half=cycles(period / 2),
            deselect=cycles(self.deselect),
            wake=cycles(self.wake_us * 1e3),
            power=cycles(self.power_us * 1e3),
        )


@dataclass(frozen=True, kw_only=True)
class FlashBoot:
    """A chip with an image (``arch.power_on``) from a byte address on, read by so many lanes."""

    chip: FlashChip
    addr: int
    lanes: int = 1


CHIPS = {name: FlashChip(name=name, **values) for name, values in own_table("flash_chips").items()}
"""Every chip that is known, by its name."""
