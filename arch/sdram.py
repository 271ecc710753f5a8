"""SDR SDRAM chips: their geometry, and their times as their makers' data sheets state them."""

import math
from dataclasses import dataclass

from arch.errors import InputError
from arch.tables import own_table

POSTPONED = 8
"""Refreshes that may be late at most (JEDEC's limit for SDR SDRAM)."""


@dataclass(frozen=True, kw_only=True)
class SdramTiming:
    """The times of a chip in cycles of one clock."""

    cas: int
    """From READ to its data."""
    rcd: int
    """From ACTIVATE to READ or WRITE of the same bank."""
    rp: int
    """From PRECHARGE to ACTIVATE or REFRESH of the same bank."""
    ras: int
    """From ACTIVATE to PRECHARGE of the same bank, at least."""
    rc: int
    """From ACTIVATE to ACTIVATE of the same bank."""
    rfc: int
    """From REFRESH to any command."""
    wr: int
    """From the last written data to PRECHARGE."""
    rrd: int
    """From ACTIVATE to ACTIVATE of another bank."""
    mrd: int
    """From MODE REGISTER SET to any command."""
    refresh: int
    """Between two refreshes, on average."""
    init: int
    """From power-on to the first command."""


@dataclass(frozen=True, kw_only=True)
class SdramChip:
    """A chip, or several side by side that share commands and addresses.

    Times are in nanoseconds where nothing else is said. Of ``2**bank_bits`` banks each has
    ``2**row_bits`` rows of ``2**col_bits`` columns of ``data_width`` bits.
    """

    name: str
    data_width: int
    row_bits: int
    col_bits: int
    bank_bits: int = 2
    max_mhz: float
    cas_mhz: float
    """Highest clock with a CAS latency of 2 cycles; above it is 3 (MHz)."""
    rcd: float
    rp: float
    ras: float
    rc: float
    rfc: float
    wr: float
    rrd: float
    mrd: int = 2
    """Cycles."""
    refresh_ms: float = 64.0
    """In which every row is refreshed once (milliseconds)."""
    init_us: float = 200.0
    """From power-on to the first command (microseconds)."""

    @property
    def size(self) -> int:
        """The chip's bytes."""
        bits = self.bank_bits + self.row_bits + self.col_bits
        return (self.data_width // 8) << bits

    def at(self, clock: float) -> SdramTiming:
        """Return the times in cycles of a clock (Hz).

        Raises :class:`InputError` where the chip is not made for so fast a clock, or where the
        refreshes of a row take longer than there is time between them.
        """
        if not 0 < clock <= self.max_mhz * 1e6:
            raise InputError(
                f"Clock of {self.name} must be above 0 and at most {self.max_mhz:g} MHz, not "
                f"{clock / 1e6:g} MHz"
            )

        def cycles(nanoseconds: float) -> int:
            return max(1, math.ceil(nanoseconds * 1e-9 * clock - 1e-9))

        rows = 1 << self.row_bits
        timing = SdramTiming(
            cas=2 if clock <= self.cas_mhz * 1e6 else 3,
            rcd=cycles(self.rcd),
            rp=cycles(self.rp),
            ras=cycles(self.ras),
            rc=cycles(self.rc),
            rfc=cycles(self.rfc),
            wr=cycles(self.wr),
            rrd=cycles(self.rrd),
            mrd=self.mrd,
            refresh=math.floor(self.refresh_ms * 1e-3 * clock / rows),
            init=cycles(self.init_us * 1e3),
        )
        if timing.refresh < 4 * (timing.rp + timing.rfc + timing.rcd):
            raise InputError(
                f"Clock of {self.name} must leave time between refreshes, which "
                f"{clock / 1e6:g} MHz does not"
            )
        return timing


CHIPS = {name: SdramChip(name=name, **values) for name, values in own_table("sdram_chips").items()}
"""Every chip that is known, by its name."""
