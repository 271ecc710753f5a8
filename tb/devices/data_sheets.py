"""Timing and sizes of memory chips from their data sheets, for the models that test circuits."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Time:
    """A time in a data sheet: the longer of ``ns`` nanoseconds and ``clocks`` clock periods.

    If the sheet gives the time in only one of these units, the other field is 0.
    """

    ns: float = 0.0
    clocks: int = 0

    def at(self, period: float) -> float:
        """Return the longer of ``ns`` nanoseconds and ``clocks`` clock periods, in nanoseconds.

        ``period`` is the clock period (ns).
        """
        return max(self.ns, self.clocks * period)


@dataclass(frozen=True, kw_only=True)
class SdramSheet:
    """Timing and size of an SDR SDRAM chip, from the chip's data sheet.

    The timing fields have the parameters' names in lower case: ``rcd`` is tRCD.
    """

    source: str
    seen: bool
    bits: int
    """Width of the data bus."""
    banks: int
    rows: int
    columns: int
    frequency: dict[str, float]
    """Highest clock frequency (MHz) at each CAS latency, ``CL2`` and ``CL3``."""
    rcd: Time
    rp: Time
    ras: Time
    ras_max: Time
    rc: Time
    rfc: Time
    wr: Time
    rrd: Time
    mrd: Time
    ref: float
    """Interval in which the chip needs ``refreshes`` refreshes (ms)."""
    refreshes: int
    apart: int = 9
    """Longest time between two refreshes, in multiples of the average."""
    power: float
    """Time from power-on to the first command (microseconds)."""

    @property
    def refi(self) -> float:
        """Average time between two refreshes, tREFI (ns)."""
        return self.ref * 1e6 / self.refreshes

    def figures(self, period: float) -> dict[str, float]:
        """Return the sheet's numbers, a dictionary from field name in upper case to value.

        A :class:`Time` is converted to nanoseconds for a clock period of ``period`` ns; other
        values keep their units. ``CL2`` and ``CL3`` are the highest clock frequencies (MHz) at
        these CAS latencies.
        """
        by_name: dict[str, float] = {f"CL{cas}": self.frequency[f"CL{cas}"] for cas in (2, 3)}
        for name, value in vars(self).items():
            if isinstance(value, Time):
                by_name[name.upper()] = value.at(period)
            elif not isinstance(value, str | bool | dict):
                by_name[name.upper()] = value
        return by_name


@dataclass(frozen=True, kw_only=True)
class PsramSheet:
    """Timing and size of a HyperBus PSRAM die, from the die's data sheet.

    The timing fields have the parameters' names in lower case: ``rp`` is tRP. Times are in
    nanoseconds, but ``vcs`` and ``csm`` are in microseconds.
    """

    source: str
    seen: bool
    rows: int
    columns: int
    latency: dict[str, list[float]]
    """For each latency's code in configuration register 0: its periods, and its highest clock
    (MHz)."""
    rp: float
    vcs: float
    csm: float
    css: float
    csh: float
    cshi: float
    rwr: float
    acc: float
    ckd: float
    dsv: float
    setup: float
    hold: float
    ck_max: float

    def figures(self) -> dict[str, float]:
        """Return the sheet's numbers, a dictionary from field name to value.

        Two entries for each latency code N (a hexadecimal digit) replace the field ``latency``:
        ``periods_N`` is the latency in clock periods, and ``mhz_N`` is the highest clock frequency
        (MHz) with this latency.
        """
        left = ("source", "seen", "latency")
        by_name = {name: value for name, value in vars(self).items() if name not in left}
        for code, (periods, mhz) in self.latency.items():
            by_name |= {f"periods_{int(code, 2):x}": periods, f"mhz_{int(code, 2):x}": mhz}
        return by_name


@dataclass(frozen=True, kw_only=True)
class FlashSheet:
    """Timing and size of an SPI flash chip, from the chip's data sheet.

    The timing fields have the parameters' names in lower case: ``shsl`` is tSHSL. Times are in
    nanoseconds, but ``res1``, ``rst`` and ``vsl`` are in microseconds. ``size`` is in bytes,
    ``frequency`` is in MHz.
    """

    source: str
    seen: bool
    size: int
    frequency: float
    slch: float
    chsh: float
    shsl: float
    clqv: float
    res1: float
    rst: float
    vsl: float
    exit_4byte: int = 0
    """Command that ends addresses of four bytes; 0 if the chip has none."""
    qpi: bool = False
    """The chip has a mode in which commands come on four lines."""


@dataclass(frozen=True, kw_only=True)
class Ddr3Sheet:
    """Timing and size of a DDR3 SDRAM chip, from the chip's data sheet.

    The timing fields have the parameters' names in lower case: ``rp`` is tRP. All times are in
    nanoseconds. ``bits`` is the width of the data bus.
    """

    source: str
    seen: bool
    bits: int
    banks: int
    rows: int
    columns: int
    rp: float
    rcd: float
    wr: float
    ras: float
    faw: float
    rfc: float
    refi: float


def _read(values: dict[str, Any]) -> dict[str, Any]:
    """Return a sheet's fields by our names: times without their ``t``, pairs as :class:`Time`."""
    fields = {}
    for name, value in values.items():
        timed = isinstance(value, dict) and value.keys() <= {"ns", "clocks"}
        key = name[1:].lower() if name[0] == "t" and name[1].isupper() else name
        fields[key] = Time(**value) if timed else value
    return fields


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def _sheets(kind: str, of: type) -> dict[str, Any]:
    return {name: of(**_read(values)) for name, values in _TABLES[kind].items()}


SDRAM: dict[str, SdramSheet] = _sheets("sdram", SdramSheet)
PSRAM: dict[str, PsramSheet] = _sheets("psram", PsramSheet)
FLASH: dict[str, FlashSheet] = _sheets("flash", FlashSheet)
DDR3: dict[str, Ddr3Sheet] = _sheets("ddr3", Ddr3Sheet)
