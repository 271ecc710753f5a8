"""Properties are proven, and their proofs refuse the circuit that is broken on purpose."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

from celosia.tb.verify.formal import prover
from celosia.tb.verify.formal.catalog import PROPERTIES, table
from celosia.tb.verify.formal.prover import missing_tools, prove
from tests.support.longer import longer

PAGE = Path(__file__).parents[1] / "docs" / "proofs.md"

needs_tools = pytest.mark.skipif(bool(missing_tools()), reason="the extra formal is not installed")


LONG = (
    *("bank-bytes", "credits-order", "dispatch-progress", "packed-ternary", "ram-transparent"),
    *("queue-commands-memory", "queue-commands-memory-registered", "axi4-last"),
)
"""Properties whose proofs take longer; `make prove` has them too."""
ALIKE = (
    *("held-address", "held-load", "held-streamer"),
    *("held-row-queue", "queue-commands", "packed-products", "packed-int5"),
)
"""Properties with the assertions and assumptions of another one: held-tiles,
queue-commands-registered, parted-products and packed-nf4 show that they can fail."""


def cases(*later):
    return [*(name for name in PROPERTIES if name not in later), *longer(*later)]


@needs_tools
@pytest.mark.parametrize("name", cases(*LONG))
def test_property_holds(name):
    assert prove(PROPERTIES[name]) is None


@needs_tools
@pytest.mark.parametrize("name", cases(*LONG, *ALIKE))
def test_a_proof_can_fail(name):
    refutation = prove(PROPERTIES[name], broken=True)
    assert refutation is not None
    assert "induction" not in refutation, "the broken circuit must fail from power-on"


def test_every_broken_circuit_has_its_piece_of_source():
    for proof in PROPERTIES.values():
        old, new = proof.mutant
        source = Path(importlib.util.find_spec(proof.module).origin).read_text(encoding="utf-8")
        assert (source.count(old), old == new) == (1, False), proof.name


@needs_tools
def test_an_outcome_is_kept_for_its_circuit_and_its_cycles(monkeypatch):
    proof = PROPERTIES["skid-order"]
    outcomes = [prove(proof, broken=broken) for broken in (False, True)]
    monkeypatch.setattr(prover, "run_yosys", lambda *_: pytest.fail("it was proven again"))
    assert [prove(proof, broken=broken) for broken in (False, True)] == outcomes
    for other in (replace(proof, steps=proof.steps + 1), replace(proof, probes={"a": "b"})):
        with pytest.raises(pytest.fail.Exception, match="again"):
            prove(other)


def test_page_lists_every_property():
    assert table() in PAGE.read_text(encoding="utf-8")


@needs_tools
def test_command_reports_proofs_and_broken_circuits(celosia):
    code, out, _ = celosia("verify", "prove", "skid-order", "--json")
    assert code == 0
    (row,) = json.loads(out)["properties"]
    assert row["holds"] == "for all"
    assert row["counterexample"] is None
    code, out, _ = celosia("verify", "prove", "skid-order", "--broken", "--json")
    assert code == 0
    assert json.loads(out)["properties"][0]["counterexample"].startswith("harness.py:")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing",), "Unknown property 'nothing'; known are slice-order"),
        (("--jobs", "1"), "Option --jobs is gone: there is one proof a core"),
    ],
)
def test_wrong_words_are_refused(celosia, words, message):
    code, out, err = celosia("verify", "prove", *words)
    assert code == 2
    assert out == ""
    assert err.startswith(f"celosia: {message}")
