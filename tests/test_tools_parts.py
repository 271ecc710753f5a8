"""Exports for parts: machines are drawn the same again, and an export is placed."""

from pathlib import Path

import pytest

from celosia.fpga.part import PARTS
from tools.parts import COUNT, SEED, machine, placed, table


def test_machines_are_the_same_again_and_of_many_parts() -> None:
    drawn = [machine(SEED, index) for index in range(COUNT)]
    assert drawn == [machine(SEED, index) for index in range(COUNT)]
    assert {part for part, _ in drawn} == set(PARTS)
    assert len({config for _, config in drawn}) == COUNT


@pytest.mark.long
@pytest.mark.parametrize("part", ["ecp5:25k", "ice40:up5k", "gowin:gw1n-9c"])
def test_an_export_is_placed_between_registers(celosia, tmp_path: Path, part: str) -> None:
    words = ("generate", "--config", "tiny", "--unit", "requantizer", "--device", part)
    assert celosia(*words, "--out", tmp_path / "export")[0] == 0
    report = placed(part, tmp_path / "export", tmp_path, "celosia_requantizer")
    assert report["end"] == "placed"
    assert report["mhz"] > 1
    assert 0 < report["luts"] < PARTS[part].capacity["luts"]


def test_the_table_has_a_line_for_each_machine() -> None:
    _, config = machine(SEED, 18)
    first = {"part": "ecp5:25k", "config": config.fields()}
    counts = {"luts": 1234, "multipliers": 5, "block_rams": 6}
    record = {
        "3": {**first, "end": "placed", "sentence": "x", "mhz": 61.0, **counts},
        "7": {**first, "end": "refused", "sentence": "celosia: too many; it fits with lanes=1"},
    }
    begin = "`ecp5:25k` | 5x3 systolic | 1 | 8,192"
    assert table(record).splitlines()[2:] == [
        f"| 3 | {begin} | placed | 1,234 | 5 | 6 | 61 |",
        f"| 7 | {begin} | refused: too many; it fits with lanes=1 |  |  |  |  |",
    ]
