"""Chips as the project has them, beside their makers' data sheets."""

import dataclasses

import pytest

from celosia.arch.ddr3 import CHIPS as DDR3_CHIPS
from celosia.arch.flash import CHIPS as FLASH_CHIPS
from celosia.arch.psram import CHIPS as PSRAM_CHIPS
from celosia.arch.sdram import CHIPS as SDRAM_CHIPS
from celosia.arch.sdram import POSTPONED
from celosia.fpga.boards import get_board, with_sdram
from celosia.tb.devices import data_sheets
from celosia.tb.devices.data_sheets import DDR3, FLASH, PSRAM, SDRAM, Time
from tools.chips import DOCUMENT, KINDS, document, rows


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in KINDS for name in KINDS[kind]])
def test_a_chip_has_its_data_sheets_figures(kind: str, name: str) -> None:
    assert all(ours == sheets for _, ours, sheets in rows(kind, name))


def test_every_chip_of_a_board_has_a_data_sheet() -> None:
    for chips, sheets in (
        (SDRAM_CHIPS, SDRAM),
        (PSRAM_CHIPS, PSRAM),
        (FLASH_CHIPS, FLASH),
        (DDR3_CHIPS, DDR3),
    ):
        assert chips.keys() == sheets.keys()
    chip = with_sdram(get_board("icesugar_pro")).sdram
    assert chip is not None
    assert chip.name == "IS42S16160B-7"


def test_the_table_of_chips_is_made_of_both() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "python -m tools.chips makes it"


@pytest.mark.parametrize("name", SDRAM)
@pytest.mark.parametrize("mhz", [25, 50, 66, 80, 100, 133])
def test_cycles_of_an_sdram_are_never_shorter_than_its_data_sheet(name: str, mhz: int) -> None:
    sheet, timing = SDRAM[name], SDRAM_CHIPS[name].at(mhz * 1e6)
    period = 1e3 / mhz
    for field in ("rcd", "rp", "ras", "rc", "rfc", "wr", "rrd", "mrd"):
        assert getattr(timing, field) * period >= getattr(sheet, field).at(period) - 1e-9, field
    assert timing.refresh * sheet.refreshes * period <= sheet.ref * 1e6
    assert sheet.apart > POSTPONED
    # A row stays open from one refresh to the next at most.
    assert (POSTPONED + 1) * timing.refresh * period <= sheet.ras_max.at(period) + 3e4


def test_a_chips_own_count_of_refreshes_counts() -> None:
    chip = SDRAM_CHIPS["M12L64322A-5T"]
    assert (1 << chip.row_bits, chip.refreshes) == (2048, 4096)
    assert chip.at(64e6).refresh == 1000
    fewer = dataclasses.replace(chip, refreshes=2048)
    assert fewer.at(64e6).refresh == 2000


def test_times_in_clocks_and_nanoseconds_are_the_longer_ones() -> None:
    assert [Time(ns=14, clocks=2).at(period) for period in (5, 7, 10)] == [14, 14, 20]
    assert data_sheets.SDRAM["W9825G6KH-6"].figures(20)["WR"] == 40
    assert SDRAM_CHIPS["W9825G6KH-6"].at(50e6).wr == 2
