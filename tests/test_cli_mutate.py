"""Mutants of a unit: what a bench notices, what it cannot, and what is told of the rest."""

import json
import re

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import Component, In, Out

from generators.campaign.case import Case
from tb.formal.prover import missing_tools
from tb.mutation import campaign
from tb.mutation.equivalence import equivalent
from tb.mutation.netlist import mutate

needs_tools = pytest.mark.skipif(bool(missing_tools()), reason="the extra formal is not installed")


class Redundant(Component):
    """A register of 8 bits, of which a product with 0 takes nothing."""

    i: In(8)
    o: Out(8)
    rest: Out(8)

    def elaborate(self, _platform):
        m = Module()
        held = Signal(8)
        m.d.sync += held.eq(self.i + 1)
        m.d.comb += [self.o.eq(held), self.rest.eq(held & 0 & self.i)]
        return m


@needs_tools
def test_mutants_that_change_nothing_are_told_from_others() -> None:
    found = mutate(Redundant(), 40, 1)
    assert len(found.mutants) > 20
    assert sum("test_cli_mutate.py" in str(one) for one in found.mutants) > 10
    assert equivalent(found, []) == set()
    same = equivalent(found, found.mutants)
    # Adding 1 has constant inputs, which a constant in their place does not change.
    assert all(one.mode.startswith("c") for one in found.mutants if one.number in same)
    assert len(same) < len(found.mutants) / 2
    assert "celosia_mutant" not in found.verilog.partition(");")[0]


@needs_tools
@pytest.mark.slow
def test_a_bench_notices_most_mutants(monkeypatch, celosia) -> None:
    monkeypatch.setattr(campaign, "GROUP", 12)
    case = Case("mutant", 1, 0, (("config", "tiny"), ("count", "12"), ("unit", "argmax")))
    result = campaign.run(case)
    assert result["mutants"] == 12
    assert result["killed"] + result["equivalent"] + len(result["survivors"]) == 12
    assert result["killed"] >= 10
    # With a bench that asks for nothing, all of them survive that are not proven to be equal.
    monkeypatch.setattr(campaign, "_passed", lambda *_: True)
    blind = campaign.run(case)
    assert (blind["killed"], len(blind["survivors"])) == (0, 12 - blind["equivalent"])
    assert all(re.search(r" at \S+ of hdl/\w+/\w+\.py:\d+", each) for each in blind["survivors"])
    code, out, _ = celosia("mutate", "--unit", "argmax", "--count", "12", "--json", "--jobs", "1")
    assert code == 0
    found = json.loads(out.splitlines()[-1])
    assert found["score"] == round(result["killed"] / (12 - result["equivalent"]), 4)
    assert found["mutants"] == 12


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--unit", "x"), "Unknown unit 'x'; benches are for requantizer, "),
        (("--unit", "argmax", "--config", "x"), "Unknown preset 'x'; known are micro, "),
        (("--unit", "argmax", "--count", "0"), "--count must be from 1 to 65,535, not 0"),
        ((), "Missing option '--unit'"),
    ],
)
def test_wrong_words_are_refused(celosia, words, message) -> None:
    code, out, err = celosia("mutate", *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"celosia: {message}")
