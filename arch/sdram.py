"""SDR SDRAM chips: their geometry, and their timing from the makers' data sheets."""

import math
from dataclasses import dataclass

from celosia.arch.errors import InputError
from celosia.arch.tables import own_table

POSTPONED = 7
"""Most refreshes that may be postponed; makers allow 8 or 9 average intervals between two."""

URGENT = 4
"""Number of postponed refreshes from which one may interrupt a transfer."""


@dataclass(frozen=True, kw_only=True)
class SdramTiming:
    """Timing of an SDR SDRAM chip in cycles of the machine's clock."""

    cas: int
    """READ to its data."""
    rcd: int
    """ACTIVATE to READ or WRITE of the same bank."""
    rp: int
    """PRECHARGE to ACTIVATE or REFRESH of the same bank."""
    ras: int
    """Shortest time from ACTIVATE to PRECHARGE of the same bank."""
    rc: int
    """ACTIVATE to ACTIVATE of the same bank."""
    rfc: int
    """REFRESH to any command."""
    wr: int
    """Last written data to PRECHARGE."""
    rrd: int
    """ACTIVATE to ACTIVATE of another bank."""
    mrd: int
    """MODE REGISTER SET to any command."""
    refresh: int
    """Average interval between two refreshes."""
    init: int
    """Power-on to the first command."""


@dataclass(frozen=True, kw_only=True)
class SdramChip:
    """An SDR SDRAM chip, or several in parallel that share commands and addresses.

    The chips together have ``2**bank_bits`` banks of ``2**row_bits`` rows of ``2**col_bits``
    columns of ``data_width`` bits. Times are in nanoseconds unless stated. ``NAME_clocks`` is the
    least number of clock cycles for the time ``NAME``.
    """

    name: str
    data_width: int
    row_bits: int
    col_bits: int
    bank_bits: int = 2
    max_mhz: float
    cas_mhz: float
    """Highest clock with a CAS latency of 2 cycles (MHz); above it the latency is 3."""
    rcd: float
    rp: float
    ras: float
    rc: float
    rfc: float
    wr: float = 0.0
    wr_clocks: int = 1
    rrd: float = 0.0
    rrd_clocks: int = 1
    mrd: float = 0.0
    mrd_clocks: int = 2
    refreshes: int
    """Refreshes required in ``refresh_ms``; a chip may need more than one for each row address."""
    refresh_ms: float = 64.0
    """Refresh period (milliseconds)."""
    init_us: float = 200.0
    """Time from power-on to the first command (microseconds)."""

    @property
    def size(self) -> int:
        """Size of the chip (bytes)."""
        bits = self.bank_bits + self.row_bits + self.col_bits
        return (self.data_width // 8) << bits

    def at(self, clock: float) -> SdramTiming:
        """Return the chip's timing in cycles of a clock of ``clock`` Hz.

        Raises :class:`InputError` if the clock is above the chip's limit, or too slow for accesses
        between refreshes.
        """
        if not 0 < clock <= self.max_mhz * 1e6:
            raise InputError(
                f"Clock of {self.name} must be above 0 and at most {self.max_mhz:g} MHz, not "
                f"{clock / 1e6:g} MHz"
            )

        def cycles(nanoseconds: float, clocks: int = 1) -> int:
            return max(clocks, math.ceil(nanoseconds * 1e-9 * clock - 1e-9))

        timing = SdramTiming(
            cas=2 if clock <= self.cas_mhz * 1e6 else 3,
            rcd=cycles(self.rcd),
            rp=cycles(self.rp),
            ras=cycles(self.ras),
            rc=cycles(self.rc),
            rfc=cycles(self.rfc),
            wr=cycles(self.wr, self.wr_clocks),
            rrd=cycles(self.rrd, self.rrd_clocks),
            mrd=cycles(self.mrd, self.mrd_clocks),
            refresh=math.floor(self.refresh_ms * 1e-3 * clock / self.refreshes),
            init=cycles(self.init_us * 1e3),
        )
        # No refresh interrupts a transfer, which is at most one row long.
        piece = (1 << self.col_bits) + timing.ras + timing.wr + timing.rp
        waits = (POSTPONED + 1 - URGENT) * timing.refresh < piece
        if waits or timing.refresh < 4 * (timing.rp + timing.rfc + timing.rcd):
            raise InputError(
                f"Clock of {self.name} must leave time between refreshes, which "
                f"{clock / 1e6:g} MHz does not"
            )
        return timing


CHIPS = {name: SdramChip(name=name, **values) for name, values in own_table("sdram_chips").items()}
"""Every supported chip by name."""
