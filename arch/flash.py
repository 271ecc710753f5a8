"""SPI flash chips: their sizes, and their timing from the makers' data sheets."""

import math
from dataclasses import dataclass

from celosia.arch.errors import InputError
from celosia.arch.tables import own_table

WAKE = 0xAB
"""Command that ends the power-down in which some FPGAs leave the flash after configuration."""

RESET = (0x66, 0x99)
"""The two commands that, in this order, restore the modes and registers of power-on."""

ONES = {24: (8, 16), 32: (10, 16, 20)}
"""Numbers of clocks with all lines at 1, one number a command, that end a continuous read.

Continuous reads (Winbond's Continuous Read, ISSI's AX read) need no command byte. The numbers are
by address width (bits): the fewest clocks that reach a read's mode bits on four lines, and on two
lines with an address of three or of four bytes. The chip drives no line during these clocks.
"""

READS = {1: 0x0B, 4: 0x6B}
"""Read commands by the number of data lanes: 8 bits of command, 24 of address, 8 clocks of waiting,
then bytes without end."""

WAITED = 8
"""Clocks between the address and the data of the read commands."""

ADDR_WIDTH = 24
"""Width of an address (bits); it reaches the first 16 MB of larger chips."""

BOARD_NS = 20.0
"""Longest delay from the FPGA's clock edge to the chip and back with a data bit, pads included
(ns)."""


@dataclass(frozen=True, kw_only=True)
class FlashTiming:
    """Timing of a flash chip in cycles of the machine's clock."""

    half: int
    """Half a period of the chip's clock."""
    deselect: int
    """Time between two commands."""
    wake: int
    """Time from a start-up command to the next one."""
    power: int
    """Time from power-on to the first command."""


@dataclass(frozen=True, kw_only=True)
class FlashChip:
    """An SPI flash chip of ``size`` bytes; times are in nanoseconds unless stated otherwise."""

    name: str
    size: int
    max_mhz: float
    """Highest clock of the commands in ``READS`` (MHz)."""
    select: float
    """Shortest time from the fall of the select line to the first rising clock edge, and from the
    last rising clock edge to the rise of the select line."""
    deselect: float
    """Shortest time between two commands."""
    valid: float
    """Longest time from a falling clock edge to valid data."""
    wake_us: float
    """Time from ``WAKE`` to the next command (microseconds)."""
    reset_us: float
    """Time from the second command of ``RESET`` to the next command (microseconds)."""
    power_us: float
    """Time from power-on to the first command (microseconds)."""
    exit_4byte: int = 0
    """Command that ends 4-byte address mode, in which some chips may be configured to start; 0:
    none."""
    qpi: bool = False
    """True if the chip has a mode that takes commands on four lines."""

    @property
    def reachable(self) -> int:
        """Number of the chip's bytes that the ``ADDR_WIDTH`` address bits of a read can select."""
        return min(self.size, 1 << ADDR_WIDTH)

    def at(self, clock: float) -> FlashTiming:
        """Return the chip's timing in cycles of the machine's clock (``clock``, in Hz), rounded up.

        A period of the chip's clock is long enough for an edge to reach the chip and its data to
        return. Raises :class:`InputError` if ``clock`` is not above 0.
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
    """A start-up command of a flash chip: levels of its four data lines for ``clocks`` clocks."""

    line: str
    """Levels of line 0: a character 0 or 1 for each clock, or one for all clocks."""
    clocks: int
    others: int = 0b111
    """Constant levels of lines 1 to 3, line 1 in the lowest bit."""
    quad: bool = False
    """False if the chip drives line 1, whose level in ``others`` is then ignored."""


def start_up(chip: FlashChip, lanes: int) -> tuple[FlashStep, ...]:
    """Return the commands, in order, that set a flash chip from any mode to its power-on state.

    ``lanes`` is the number of data lines of reads. With 4, the commands also end the mode in which
    the chip receives commands on four lines (QPI). The chip then accepts the commands
    :data:`READS`.
    """
    ones = ONES[32 if chip.exit_4byte else 24]
    steps = [FlashStep("1", clocks, quad=lanes == 4) for clocks in ones]
    codes: tuple[int, ...] = (WAKE, *RESET)
    if chip.qpi and lanes == 4:
        # Two clocks carry a command's two halves; line 0 has the lowest bits. The halves of
        # lines 1 to 3 are the same; a chip that takes one line sees no whole command.
        steps += [
            FlashStep(f"{code >> 4 & 1}{code & 1}", 2, code >> 5, quad=True) for code in codes
        ]
    codes += (chip.exit_4byte,) if chip.exit_4byte else ()
    return (*steps, *(FlashStep(f"{code:08b}", 8) for code in codes))


@dataclass(frozen=True, kw_only=True)
class FlashBoot:
    """A flash chip that holds a power-on image (``celosia.arch.power_on``).

    ``addr`` is the image's byte address in the chip, and ``lanes`` the number of data lines on
    which the machine reads the image.
    """

    chip: FlashChip
    addr: int
    lanes: int = 1


CHIPS = {name: FlashChip(name=name, **values) for name, values in own_table("flash_chips").items()}
"""Every supported chip by name."""
