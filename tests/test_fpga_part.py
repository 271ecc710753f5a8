"""Exports within a part: surplus multipliers and memories become tables, and no others."""

import dataclasses
import math
import re
from pathlib import Path

import pytest

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.matrix_config import MatrixConfig
from celosia.arch.presets import PRESETS, load
from celosia.fpga.devices import DEVICES, Device
from celosia.fpga.hierarchy import Hierarchy
from celosia.fpga.part import PARTS, get_part, needs, surplus, within
from celosia.fpga.part_fit import family_needs, fit_part, with_registers
from celosia.fpga.synthesis import exported
from celosia.generators.verilog.units import make_unit
from celosia.hdl.arithmetic.reciprocal import Reciprocal
from celosia.hdl.matrix.systolic import SystolicArray
from celosia.tb.benches.simulate import simulate
from celosia.tb.machine.circuit_sources import kept_verilog

CHANGES = {"rows": 5, "cols": 3, "lanes": 1}


def part(name: str = "GW2A-18C", **capacity: int) -> Device:
    """Return a device with less or more of some resources."""
    device = DEVICES[name]
    return dataclasses.replace(device, capacity={**device.capacity, **capacity})


def made_within(verilog: str, device: Device) -> str:
    """Return a design whose surplus is made of tables."""
    design = Hierarchy(verilog)
    return within(design, device.family, surplus(needs(design, device.family), device))


@pytest.mark.parametrize("multipliers", [0, 7, 14, 15])
def test_an_array_with_fewer_multipliers_has_the_same_sums(multipliers: int) -> None:
    array = SystolicArray(PRESETS["small"].replace(**CHANGES).part(MatrixConfig))
    device = part(multipliers=multipliers)
    verilog = made_within(kept_verilog(array, "top"), device)
    left = needs(Hierarchy(verilog), device.family)
    assert sum(product.copies for product in left.products) == multipliers
    assert ("_tables" in verilog) == (multipliers < 15)
    settings = {"config": CHANGES, "cycles": 300, "rate": 0.8, "latency": array.latency}
    simulate(
        array,
        bench="celosia.tb.benches.bench_systolic",
        simulator="icarus",
        seed=multipliers,
        parameters=settings,
        verilog=verilog,
    )


@pytest.mark.parametrize("block_rams", [0, 5, 9, 100])
def test_no_more_memories_ask_for_block_ram_than_there_are(block_rams: int) -> None:
    verilog = kept_verilog(make_unit("scratchpad", PRESETS["tiny"]), "top")
    device = part("LFE5U-25F", block_rams=block_rams)
    design = Hierarchy(verilog)
    made = Hierarchy(made_within(verilog, device))
    family = device.family
    styled = {name for name, text in made.texts.items() if 'ram_style = "distributed"' in text}
    tables = sum(made.copies[name] for name in styled)
    whole = needs(design, family)
    assert (tables == 0) == (whole.block_rams <= block_rams)
    blocks = [memory for memory in needs(made, family).memories if memory.name not in styled]
    assert sum(memory.blocks for memory in blocks) <= block_rams
    assert len(blocks) + tables == len(whole.memories)


def test_tables_of_a_memory_keep_the_modules_below_it() -> None:
    device = part("GW1NR-9C", multipliers=0, block_rams=0)
    design = Hierarchy(exported(kept_verilog(Reciprocal(12), "top"), "gowin", device))
    below = re.findall(r"^  (top_\w+) (?=#|\w+ |\\)", "".join(design.texts.values()), re.MULTILINE)
    assert {*below, "top"} == {*design.texts}
    assert not needs(design, device.family).products


def test_nothing_changes_where_everything_fits() -> None:
    verilog = kept_verilog(make_unit("softmax", PRESETS["tiny"]), "top")
    assert Hierarchy(made_within(verilog, get_part("ecp5:85k"))).texts == Hierarchy(verilog).texts


def test_parts_have_the_names_of_place_and_route() -> None:
    assert get_part("ECP5:85K") is DEVICES["LFE5U-85F"]
    assert sorted(device.name for device in PARTS.values()) == sorted(DEVICES)
    with pytest.raises(
        InputError,
        match=r"^Unknown device 'ecp5:12k'; did you mean ecp5:25k\? known are ecp5:25k, ",
    ):
        get_part("ecp5:12k")


def test_without_a_part_it_says_which_parts_have_enough() -> None:
    verilog = kept_verilog(make_unit("systolic_array", PRESETS["small"]), "top")
    assert family_needs(verilog) == (
        "Needs 64 multipliers and 0 block RAMs: ecp5:85k, ecp5:um5g-85k have them; "
        "--device FAMILY:PART brings it within a part"
    )


class TestFits:
    """The cells of plain synthesis are counted; else a machine that fits is found."""

    @staticmethod
    def fit(device: Device, **changes: int):
        config = PRESETS["tiny"].replace(**changes)
        steps: list[str] = []
        fit = fit_part(
            config,
            lambda config: kept_verilog(make_unit("systolic_array", config), "top"),
            "top",
            device,
            steps.append,
        )
        return fit, steps

    def test_what_fits_is_counted(self) -> None:
        device = part("LFE5U-25F", multipliers=5)
        fit, steps = self.fit(device, rows=3, cols=3)
        assert fit.used["multipliers"] == 3  # five take the places of four controlled ones
        assert 0 < fit.used["luts"] < device.capacity["luts"]
        assert re.fullmatch(
            r"LFE5U-25F: 6 of 9 multipliers made of tables; [\d,]+ of 24,288 LUT4s, "
            r"[\d,]+ of 24,288 registers, 3 of 5 multipliers, 0 of 56 block RAMs",
            fit.sentence(device),
        )
        assert len(steps) == 2

    def test_what_does_not_fit_is_refused_with_a_value_that_does(self) -> None:
        device = part("LFE5U-25F", luts=560, multipliers=0)
        with pytest.raises(InputError) as refused:
            self.fit(device, rows=3, cols=3)
        value = re.fullmatch(
            r"LFE5U-25F has 560 LUT4s \(95% of them can be placed\), but the design "
            r"needs (?:at least )?[\d,]+, among them what replaces multipliers and block RAMs "
            r"beyond its 0 and 56, of \d+ and 0; it fits with --set (\w+)=(\d+)",
            str(refused.value),
        )
        assert value is not None, refused.value
        self.fit(device, **{"rows": 3, "cols": 3, value[1]: int(value[2])})

    def test_nothing_is_promised_that_was_not_found(self) -> None:
        with pytest.raises(InputError, match=r"; half of any one field does not fit either$"):
            self.fit(part("LFE5U-25F", luts=3, multipliers=0), rows=1, cols=1)


def test_registers_between_units_are_those_of_the_boards(tmp_path: Path, celosia) -> None:
    config = PRESETS["tiny"]
    assert with_registers(config, get_part("ecp5:85k")).control.registered
    assert with_registers(PRESETS["micro"], get_part("ecp5:85k")) == PRESETS["micro"]
    assert with_registers(config, get_part("ice40:up5k")) == config
    words = ("generate", "--config", "tiny", "--unit", "table", "--device", "ecp5:25k")
    for changes, registered in (((), True), (("--set", "control.registered=false"), False)):
        code, out, _ = celosia(*words, *changes, "--out", tmp_path / str(registered))
        assert code == 0
        assert f"registered={str(registered).lower()}" in out
        toml = tmp_path / str(registered) / "config.toml"
        assert load(str(toml), []).control.registered == registered


def test_fewer_registers_are_a_remedy_where_tables_are_too_few() -> None:
    config = PRESETS["tiny"].replace(registered=True)

    def make(config: Config) -> str:
        return kept_verilog(make_unit("load_engine", config), "top")

    def luts(registered: bool) -> int:
        device = part("LFE5U-25F")
        fit = fit_part(config.replace(registered=registered), make, "top", device, lambda _: None)
        return fit.used["luts"]

    least, most = luts(False), luts(True)
    assert least < most
    device = part("LFE5U-25F", luts=math.ceil(least / 0.95) + 1)
    with pytest.raises(InputError, match=r"it fits with --set registered=false$"):
        fit_part(config, make, "top", device, lambda _: None)
