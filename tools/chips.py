"""The table of the memory chips beside their data sheets: `python -m tools.chips`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from celosia.arch.ddr3 import CHIPS as DDR3_CHIPS
from celosia.arch.flash import CHIPS as FLASH_CHIPS
from celosia.arch.psram import CHIPS as PSRAM_CHIPS
from celosia.arch.sdram import CHIPS as SDRAM_CHIPS
from celosia.arch.support.pages import table
from celosia.tb.devices.data_sheets import DDR3, FLASH, PSRAM, SDRAM, Time

DOCUMENT = Path(__file__).parents[1] / "docs" / "chips.md"

Figures = Callable[[Any, Any], list[tuple[str, Any, Any]]]


_HEAD = """# Memory chips

Figures of each chip that boards have, as its data sheet and the circuits have them.
Sources are in `tb/devices/data_sheets.toml`. A time without a unit is in ns.
"""


def _time(ns: float, clocks: int) -> Time:
    return Time(ns=ns, clocks=clocks)


def _sdram(chip: Any, sheet: Any) -> list[tuple[str, Any, Any]]:
    plain = [(f"t{name.upper()}", _time(getattr(chip, name), 0), getattr(sheet, name))
             for name in ("rcd", "rp", "ras", "rc", "rfc")]  # fmt: skip
    clocked = []
    for name in ("wr", "rrd", "mrd"):
        theirs = getattr(sheet, name)
        clocks = getattr(chip, f"{name}_clocks")
        # Any command takes one clock.
        clocked.append(
            (f"t{name.upper()}", _time(getattr(chip, name), clocks if clocks > 1 else 0), theirs)
        )
    return [
        ("data lines", chip.data_width, sheet.bits),
        ("banks", 1 << chip.bank_bits, sheet.banks),
        ("rows", 1 << chip.row_bits, sheet.rows),
        ("columns", 1 << chip.col_bits, sheet.columns),
        ("fastest clock (MHz)", chip.max_mhz, sheet.frequency["CL3"]),
        ("fastest clock with CAS latency 2 (MHz)", chip.cas_mhz, sheet.frequency["CL2"]),
        *plain,
        *clocked,
        ("refreshes", chip.refreshes, sheet.refreshes),
        ("tREF (ms)", chip.refresh_ms, sheet.ref),
        ("pause at power-on (µs)", chip.init_us, sheet.power),
    ]


def _psram(chip: Any, sheet: Any) -> list[tuple[str, Any, Any]]:
    periods, mhz = sheet.latency[f"0b{chip.code:04b}"]
    pairs = [("tRP", "rp"), ("tCSS", "css"), ("tCSH", "csh"), ("tCSHI", "cshi"), ("tRWR", "rwr")]
    pairs += [("tACC", "acc"), ("tCKD", "ckd"), ("tIS", "setup"), ("tIH", "hold")]
    return [
        ("rows", 1 << chip.row_bits, sheet.rows),
        ("columns", 1 << chip.col_bits, sheet.columns),
        ("latency (clocks)", chip.latency, periods),
        ("fastest clock with it (MHz)", chip.max_mhz, mhz),
        *((name, getattr(chip, field), getattr(sheet, field)) for name, field in pairs),
        ("tVCS (µs)", chip.vcs_us, sheet.vcs),
        ("tCSM (µs)", chip.csm_us, sheet.csm),
    ]


def _flash(chip: Any, sheet: Any) -> list[tuple[str, Any, Any]]:
    return [
        ("bytes", chip.size, sheet.size),
        ("fastest clock (MHz)", chip.max_mhz, sheet.frequency),
        ("tSLCH, tCHSH", chip.select, max(sheet.slch, sheet.chsh)),
        ("tSHSL", chip.deselect, sheet.shsl),
        ("tCLQV", chip.valid, sheet.clqv),
        ("tRES1 (µs)", chip.wake_us, sheet.res1),
        ("tRST (µs)", chip.reset_us, sheet.rst),
        ("tVSL (µs)", chip.power_us, sheet.vsl),
        ("command that ends addresses of four bytes", chip.exit_4byte, sheet.exit_4byte),
        ("commands on four lines", chip.qpi, sheet.qpi),
    ]


def _ddr3(chip: Any, sheet: Any) -> list[tuple[str, Any, Any]]:
    return [
        ("data lines", chip.data_width, sheet.bits),
        ("banks", 1 << chip.bank_bits, sheet.banks),
        ("rows", 1 << chip.row_bits, sheet.rows),
        ("columns", 1 << chip.col_bits, sheet.columns),
    ]


KINDS: dict[str, dict[str, tuple[Any, Any]]] = {
    kind: {name: (chips[name], sheets[name]) for name in sheets}
    for kind, chips, sheets in (
        ("SDRAM", SDRAM_CHIPS, SDRAM),
        ("PSRAM", PSRAM_CHIPS, PSRAM),
        ("DDR3", DDR3_CHIPS, DDR3),
        ("SPI flash", FLASH_CHIPS, FLASH),
    )
}
"""Every chip and its data sheet, by their kind and name."""

_FIGURES: dict[str, Figures] = {
    "SDRAM": _sdram,
    "PSRAM": _psram,
    "DDR3": _ddr3,
    "SPI flash": _flash,
}


def rows(kind: str, name: str) -> list[tuple[str, Any, Any]]:
    """Return each figure of a chip: its name, ours, and the data sheet's."""
    return _FIGURES[kind](*KINDS[kind][name])


def _shown(value: Any) -> str:
    if isinstance(value, Time):
        parts = [f"{value.ns:g}"] if value.ns else []
        return ", ".join(parts + ([f"{value.clocks} clocks"] if value.clocks else []))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _cell(figure: tuple[str, Any, Any]) -> str:
    """Return a figure, and the data sheet's beside it if they differ."""
    ours, theirs = map(_shown, figure[1:])
    return ours if ours == theirs else f"{ours}, but {theirs} in the sheet"


def document() -> str:
    """Return the page."""
    text = _HEAD
    for kind, chips in KINDS.items():
        lines = zip(*(rows(kind, name) for name in chips), strict=True)
        cells = ((line[0][0], *map(_cell, line)) for line in lines)
        text += f"\n## {kind}\n\n{table(('figure', *chips), cells)}\n"
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
