"""PSRAM chips with HyperBus: their geometry, and their timing from the makers' data sheets."""

import dataclasses
import math
from dataclasses import dataclass

from celosia.arch.errors import InputError
from celosia.arch.tables import own_table

COMMAND = 3
"""Periods of the chip's clock that a command takes; the latency count starts in the last one."""

WAY_NS = 15.0
"""Longest delay of the clock from the device to the chip and of a bit back, with the device's pads
and wires (ns)."""

MOST_COLUMNS = 64
"""Most columns moved by one command: longer commands gain less than their buffers cost."""


@dataclass(frozen=True, kw_only=True)
class PsramTiming:
    """Timing of a PSRAM chip in cycles of the machine's clock, which is twice the chip's clock."""

    reset: int
    """Time with RESET# low after power-on."""
    init: int
    """Time from the end of the reset to the first command."""
    high: int
    """Shortest time with CS# high between two commands."""
    columns: int
    """Most columns moved by one command (a power of two)."""


@dataclass(frozen=True, kw_only=True)
class PsramChip:
    """A PSRAM memory of ``dies`` equal chips in parallel, which run in lockstep.

    A chip has eight data lines, moved at each clock edge, and ``2**row_bits`` rows of
    ``2**col_bits`` 16-bit columns. Times are in nanoseconds unless stated. Raises
    :class:`InputError` if ``dies`` is no power of two.
    """

    name: str
    dies: int = 1
    row_bits: int
    col_bits: int
    latency: int
    """Periods of the chip's clock from the command's last period to the first data; twice that
    number if a refresh is due."""
    code: int
    """Code of this latency in configuration register 0."""
    max_mhz: float
    """Highest clock of the chip with this latency (MHz)."""
    rp: float
    """Shortest time with RESET# low."""
    vcs_us: float
    """Time from the reset's end to the first command (microseconds)."""
    csm_us: float
    """Longest time with CS# low, during which no refresh begins (microseconds)."""
    css: float
    """Time from CS# low to the first clock edge."""
    csh: float
    """Time from the last clock edge to CS# high."""
    cshi: float
    """Shortest time with CS# high."""
    rwr: float
    """Time from CS# high to the next command."""
    acc: float
    """Shortest access latency."""
    ckd: float
    """Time from a clock edge to the data that the chip drives after it."""
    setup: float
    """Setup time of data before a clock edge."""
    hold: float
    """Hold time of data after a clock edge."""

    def __post_init__(self) -> None:
        """Check that the number of dies is a power of two."""
        if self.dies < 1 or self.dies & self.dies - 1:
            raise InputError(f"Field dies of {self.name} must be a power of two, not {self.dies}")

    @property
    def column_bytes(self) -> int:
        """Size of the data at one column address (bytes): two bytes for each die.

        A column of a die is a word of 16 bits. All dies get the same address at the same time, so
        an access to a column address moves one column of each die.
        """
        return 2 * self.dies

    @property
    def size(self) -> int:
        """Size of all dies (bytes)."""
        return self.column_bytes << self.row_bits + self.col_bits

    @property
    def fixed(self) -> bool:
        """True if every access has the longer latency of ``2 * latency`` clock periods.

        The longer latency gives time for a refresh. A single die has the longer latency only during
        a refresh. Parallel dies refresh at different times but must return data together, so they
        always have the longer latency.
        """
        return self.dies > 1

    def at(self, clock: float) -> PsramTiming:
        """Return the chip's timing in cycles of a machine with the clock ``clock`` (Hz).

        The chip's clock is half of the machine's clock. Raises :class:`InputError` if the chip does
        not support this frequency, or if a command cannot move one column within ``csm_us``, the
        longest time with CS# low.
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
    """Return the number of the clock edge with the first data of a command to a PSRAM chip.

    Edge 0 is the first edge of the command. ``latency`` is the chip's access latency, in periods of
    its clock.
    """
    return 2 * (COMMAND - 1 + latency)


CHIPS = {name: PsramChip(name=name, **values) for name, values in own_table("psram_chips").items()}
"""Every supported chip by name."""


def side_by_side(name: str, dies: int) -> PsramChip:
    """Return a PSRAM memory of ``dies`` chips that run in lockstep; ``name`` is a key of CHIPS."""
    return dataclasses.replace(CHIPS[name], dies=dies)
