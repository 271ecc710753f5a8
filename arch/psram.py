"""PSRAM chips with HyperBus: their geometry, and their times as their data sheets state them."""

import dataclasses
import math
from dataclasses import dataclass

from celosia.arch.errors import InputError
from celosia.arch.tables import own_table

COMMAND = 3
"""Periods of the chip's clock that a command takes; the last one counts as latency, too."""

WAY_NS = 15.0
"""Longest delay of the clock to the chip in a device's package and of a bit back from it, pads and
wires in the device included (ns)."""

MOST_COLUMNS = 64
"""Columns that are moved in one piece at most: more would gain less than their buffers take."""


@dataclass(frozen=True, kw_only=True)
class PsramTiming:
    """The times of a chip in cycles of a machine's clock, whose half is the chip's."""

    reset: int
    """In which RESET# is low at first."""
    init: int
    """From then on to the first command."""
    high: int
    """In which CS# is high between two commands, at least."""
    columns: int
    """Columns that move under one command, at most (a power of two)."""


@dataclass(frozen=True, kw_only=True)
class PsramChip:
    """A chip, or ``dies`` of them side by side that move in step, each with eight data lines.

    Times are in nanoseconds where nothing else is said. ``dies`` is a power of two. Each die has
    ``2**row_bits`` rows of ``2**col_bits`` columns of 16 bits, of which each edge of its clock
    moves eight.
    """

    name: str
    dies: int = 1
    row_bits: int
    col_bits: int
    latency: int
    """From the command's last period to the data's first one, in periods of the chip's clock;
    twice as many where a refresh is in the way."""
    code: int
    """The code of that latency in configuration register 0."""
    max_mhz: float
    """Highest clock of the chip with that latency."""
    rp: float
    """RESET# low."""
    vcs_us: float
    """From then on to the first command (microseconds)."""
    csm_us: float
    """Longest time of CS# low, as no refresh begins within (microseconds)."""
    css: float
    """From CS# low to the clock's first edge."""
    csh: float
    """From the clock's last edge to CS# high."""
    cshi: float
    """CS# high."""
    rwr: float
    """From CS# high to the next command."""
    acc: float
    """Latency, at least."""
    ckd: float
    """From an edge of the clock to what the chip drives because of it."""
    setup: float
    """Data before the clock's edge."""
    hold: float
    """Data behind the clock's edge."""

    def __post_init__(self) -> None:
        """Raise :class:`InputError` where columns of so many dies have no place in words."""
        if self.dies < 1 or self.dies & self.dies - 1:
            raise InputError(f"Field dies of {self.name} must be a power of two, not {self.dies}")

    @property
    def column_bytes(self) -> int:
        """Bytes of a column of all dies."""
        return 2 * self.dies

    @property
    def size(self) -> int:
        """The dies' bytes."""
        return self.column_bytes << self.row_bits + self.col_bits

    @property
    def fixed(self) -> bool:
        """The latency is always the double one, or not.

        Dies side by side do their refreshes at different times, and must move in step.
        """
        return self.dies > 1

    def at(self, clock: float) -> PsramTiming:
        """Return the times in cycles of a machine's clock (Hz).

        Raises :class:`InputError` where the chip is not made for the half of so fast a clock, or
        where no column moves within the time that a command may take.
        """
        most = min(2 * self.max_mhz, 1e3 / (self.ckd + WAY_NS), 2e3 * self.latency / self.acc)
        if not 0 < clock <= most * 1e6:
            raise InputError(
                f"Clock of a machine with {self.name} must be above 0 and at most {most:.4g} MHz, "
                f"not {clock / 1e6:g} MHz"
            )

        def cycles(nanoseconds: float) -> int:
            return max(1, math.ceil(nanoseconds * 1e-9 * clock - 1e-9))

        longest = math.floor(self.csm_us * 1e-6 * clock + 1e-9)
        columns = min(
            (longest - begin(2 * self.latency) - 1) // 2, MOST_COLUMNS, 1 << self.col_bits
        )
        if columns < 1:
            raise InputError(
                f"Clock of a machine with {self.name} must move a column in {self.csm_us:g} "
                f"microseconds, which {clock / 1e6:g} MHz does not"
            )
        return PsramTiming(
            reset=cycles(self.rp),
            init=cycles(self.vcs_us * 1e3),
            high=cycles(max(self.cshi, self.rwr)),
            columns=1 << columns.bit_length() - 1,
        )


def begin(latency: int) -> int:
    """Return the edge of the chip's clock that moves a command's first data, of 0 for its first."""
    return 2 * (COMMAND - 1 + latency)


CHIPS = {name: PsramChip(name=name, **values) for name, values in own_table("psram_chips").items()}
"""Every chip that is known, by its name."""


def side_by_side(name: str, dies: int) -> PsramChip:
    """Return so many chips of a name that move in step."""
    return dataclasses.replace(CHIPS[name], dies=dies)
