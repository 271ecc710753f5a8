"""The multiplier: exact products, and the same from each family's own."""

import re
from pathlib import Path

import pytest

from fpga.multipliers import place_multipliers
from generators.verilog import to_verilog
from hdl.multiplier import Multiplier
from tb.simulate import simulate

CELLS = Path(__file__).parents[1] / "fpga" / "cells"
CASES = [(9, True), (8, False), (18, True), (1, True)]


@pytest.mark.parametrize(("width", "gating"), CASES)
def test_products_are_exact(width: int, gating: bool) -> None:
    given = {"width": width, "gating": gating}
    unit = Multiplier(**given)
    simulate(unit, bench="tb.bench_multiplier", simulator="icarus", seed=1, parameters=given)


@pytest.mark.parametrize(("width", "gating"), CASES)
def test_the_one_of_ecp5_does_the_same(width: int, gating: bool) -> None:
    given = {"width": width, "gating": gating}
    unit = Multiplier(**given)
    placed = place_multipliers(to_verilog(unit, "Multiplier"), "ecp5")
    assert placed.count("MULT18X18D #(") == 1
    simulate(
        unit,
        bench="tb.bench_multiplier",
        simulator="icarus",
        seed=2,
        parameters=given,
        verilog=re.sub(r"\bmodule Multiplier\b", "module top", placed)
        + (CELLS / "ecp5.v").read_text(encoding="utf-8"),
    )


def test_what_a_family_lacks_stays() -> None:
    wide = to_verilog(Multiplier(19, gating=True), "Multiplier")
    assert place_multipliers(wide, "ecp5") == wide
    narrow = to_verilog(Multiplier(8, gating=True), "Multiplier")
    assert place_multipliers(narrow, "ice40") == narrow


def test_width_is_checked() -> None:
    message = "^Multiplier width must be a positive integer, not 0$"
    with pytest.raises(ValueError, match=message):
        Multiplier(0, gating=True)
