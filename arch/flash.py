"""SPI flash chips: their size, and their times as their makers' data sheets state them."""

import math
from dataclasses import dataclass

from celosia.arch.errors import InputError
from celosia.arch.tables import own_table

WAKE = 0xAB
"""Command that ends the power-down in which some FPGAs leave the flash that they have read."""

RESET = (0x66, 0x99)
"""Commands that, one behind the other, bring back the modes and registers of power-on."""

ONES = {24: (8, 16), 32: (10, 16, 20)}
"""Clocks with lines at 1, each a command, that end reads without a command (Winbond's Continuous
Read, ISSI's AX read), by the widths of addresses: the least that reach a read's mode bits on four
lines, and on two with an address of three or of four bytes. No chip drives a line within."""

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
    """From a command of the start-up to the next one."""
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
    reset_us: float
    """From the second of ``RESET`` to the next command (microseconds)."""
    power_us: float
    """From power-on to the first command (microseconds)."""
    exit_4byte: int = 0
    """Command that ends addresses of four bytes, with which a chip may be set to begin; 0: none."""
    qpi: bool = False
    """The chip has a mode in which it takes commands on four lines."""

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
            wake=cycles(max(self.wake_us * 1e3, self.reset_us * 1e3, self.deselect)),
            power=cycles(self.power_us * 1e3),
        )


@dataclass(frozen=True)
class FlashStep:
    """A command of the start-up: what lines carry in ``clocks`` clocks.

    ``line`` are the bits of line 0, the first one the highest; of a single bit it is a level.
    ``others`` are the levels of lines 1 to 3, the lowest first, of which line 1 is driven with
    ``quad``.
    """

    line: str
    clocks: int
    others: int = 0b111
    quad: bool = False


def start_up(chip: FlashChip, lanes: int) -> tuple[FlashStep, ...]:
    """Return the commands after which a chip is as it is at power-on, and takes ``READS``.

    It may have been left by whoever used it before in any of its modes: within reads that need no
    command, in commands on four lines (which only four ``lanes`` end), in power-down, in addresses
    of four bytes or with other dummy clocks, wrapped bursts or an upper half selected.
    """
    ones = ONES[32 if chip.exit_4byte else 24]
    steps = [FlashStep("1", clocks, quad=lanes == 4) for clocks in ones]
    codes: tuple[int, ...] = (WAKE, *RESET)
    if chip.qpi and lanes == 4:
        # Two clocks carry a command's two halves, of which line 0 has the lowest bits. The halves
        # of lines 1 to 3 are the same; a chip that takes one line sees no whole command.
        steps += [
            FlashStep(f"{code >> 4 & 1}{code & 1}", 2, code >> 5, quad=True) for code in codes
        ]
    codes += (chip.exit_4byte,) if chip.exit_4byte else ()
    return (*steps, *(FlashStep(f"{code:08b}", 8) for code in codes))


@dataclass(frozen=True, kw_only=True)
class FlashBoot:
    """A chip whose image (``celosia.arch.power_on``) begins at a byte address, and its lanes."""

    chip: FlashChip
    addr: int
    lanes: int = 1


CHIPS = {name: FlashChip(name=name, **values) for name, values in own_table("flash_chips").items()}
"""Every chip that is known, by its name."""
