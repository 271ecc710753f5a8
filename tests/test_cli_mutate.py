"""Mutants of a unit: those that a bench detects or cannot detect, and the report of the rest."""

import json
import re
from pathlib import Path

import pytest
from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out

from celosia.arch.presets import PRESETS
from celosia.arch.support.cache import ROOT
from celosia.generators.campaign.case import Case, Outcome
from celosia.hdl.stream.flow import Flow
from celosia.tb.verify.formal.prover import missing_tools
from celosia.tb.verify.mutation import campaign
from celosia.tb.verify.mutation.equivalence import equivalent
from celosia.tb.verify.mutation.netlist import mutate
from celosia.tb.verify.mutation.parts import by_part, write_part
from celosia.tb.verify.mutation.reasons import reason, reasons

_NEVER = "        m.d.comb += self.late.eq(count >= 12)  # never"

needs_tools = pytest.mark.skipif(bool(missing_tools()), reason="the extra formal is not installed")


class Redundant(Component):
    """A register of 8 bits, times 0, so that nothing depends on it."""

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
    mutation = mutate(Redundant(), 40, 1)
    assert len(mutation.mutants) > 20
    assert sum("test_cli_mutate.py" in str(mutant) for mutant in mutation.mutants) > 10
    assert equivalent(mutation, []) == set()
    same = equivalent(mutation, mutation.mutants)
    kept = {int(path.name.split(".")[0]) for path in mutation.folder.glob("*.equivalent")}
    assert same == kept == equivalent(mutation, mutation.mutants[:1], 1) | kept
    # Adding 1 has constant inputs, which a constant in their place does not change.
    assert all(mutant.mode.startswith("c") for mutant in mutation.mutants if mutant.number in same)
    assert len(same) < len(mutation.mutants) / 2
    assert "celosia_mutant" not in mutation.verilog.partition(");")[0]


class Ring(Component):
    """A ring of two bits; always one is 1 if it starts so."""

    o: Out(1)

    def elaborate(self, _platform):
        m = Module()
        ring = Signal(2, init=1, reset_less=True)
        m.d.sync += ring.eq(ring.rotate_left(1))
        m.d.comb += self.o.eq(ring.xor())
        return m


@needs_tools
def test_a_mutant_is_compared_from_the_first_values_of_registers() -> None:
    mutation = mutate(Ring(), 30, 1)
    registers = [mutant for mutant in mutation.mutants if ".Q[" in mutant.cell]
    same = equivalent(mutation, mutation.mutants, 5)
    constant = {mutant.number for mutant in mutation.mutants if mutant.mode == "const1"}
    sums = {mutant.number for mutant in mutation.mutants if ".Y[" in mutant.cell}
    assert registers
    assert constant & sums
    assert constant & sums <= same


@needs_tools
def test_mutants_do_not_depend_on_where_the_sources_are() -> None:
    mutation = mutate(Redundant(), 40, 1)
    assert str(ROOT) not in (mutation.folder / "list.ys").read_text(encoding="utf-8")
    assert str(ROOT) not in (mutation.folder / "flat.il").read_text(encoding="utf-8")


class Nested(Component):
    """A unit within, and a sum behind it."""

    i: In(8)
    o: Out(8)

    def elaborate(self, _platform):
        m = Module()
        m.submodules.within = within = Redundant()
        m.d.comb += within.i.eq(self.i)
        m.d.sync += self.o.eq(within.o + within.rest + 3)
        return m


@needs_tools
def test_a_unit_within_has_no_mutants_where_it_is_left_out() -> None:
    cells = [mutant.cell for mutant in mutate(Nested(), 40, 1).mutants]
    assert any("within" in cell for cell in cells)
    rest = [mutant.cell for mutant in mutate(Nested(), 40, 1, ["within"]).mutants]
    assert len(rest) == 40
    assert not any("within" in cell for cell in rest)
    # Only a whole name is meant.
    assert mutate(Nested(), 40, 1, ["with"]).mutants


class Turning(Component):
    """A counter of ten states beside a memory; ``late`` reports states that never come."""

    i: In(8)
    o: Out(8)
    late: Out(1)

    def elaborate(self, _platform):
        m = Module()
        count = Signal(4)
        m.submodules.memory = memory = Memory(shape=8, depth=16, init=[])
        write, read = memory.write_port(), memory.read_port()
        m.d.sync += count.eq(Mux(count == 9, 0, count + 1))
        m.d.comb += [write.en.eq(1), write.addr.eq(count), write.data.eq(self.i)]
        m.d.comb += [read.addr.eq(count), self.o.eq(read.data)]
        m.d.comb += self.late.eq(count >= 12)  # never
        return m


@needs_tools
def test_mutants_that_differ_only_in_states_that_never_come_are_told() -> None:
    mutation = mutate(Turning(), 40, 1)
    numbers = equivalent(mutation, mutation.mutants)
    same = [mutant for mutant in mutation.mutants if mutant.number in numbers]
    never = Path(__file__).read_text(encoding="utf-8").splitlines().index(_NEVER) + 1
    lines = [int(source.rpartition(":")[2]) for mutant in same for source in mutant.sources]
    assert never in lines
    # What is written, where, and what is read count as seen.
    assert not any("memory" in mutant.cell and mutant.mode == "inv" for mutant in same)
    assert 2 < len(same) < len(mutation.mutants) / 2


class Asleep(Component):
    """A word that is asked for only while it is live, and a memory whose first word stays 0."""

    i: In(2)
    go: In(1)
    stop: In(1)
    ask: In(1)
    scrub: In(1)
    address: In(2)
    o: Out(2)
    word: Out(2)

    def elaborate(self, _platform):
        m = Module()
        live = Signal()
        held = Signal(2)
        m.submodules.memory = memory = Memory(shape=2, depth=4, init=[])
        write, read = memory.write_port(), memory.read_port()
        enters = Signal()
        m.d.comb += enters.eq(self.go & self.i.any())
        m.d.sync += live.eq(enters | (live & ~self.stop))
        with m.If(enters | ~live):  # unneeded
            m.d.sync += held.eq(self.i)
        m.d.comb += self.o.eq(held & (live & self.ask).replicate(2))
        m.d.comb += [read.en.eq(1), read.addr.eq(self.address), self.word.eq(read.data)]
        m.d.comb += [write.addr.eq(self.address), write.data.eq(self.i), write.en.eq(self.i != 0)]
        with m.If(self.address == 0):
            m.d.comb += [write.data.eq(0), write.en.eq(self.scrub)]  # unneeded
        return m


@needs_tools
def test_mutants_of_what_is_not_looked_at_are_told() -> None:
    mutation = mutate(Asleep(), 60, 1)
    numbers = equivalent(mutation, mutation.mutants)
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    texts = {
        lines[int(source.rpartition(":")[2]) - 1]: mutant
        for mutant in mutation.mutants
        if mutant.number in numbers
        for source in mutant.sources
    }
    assert any("live)" in text and "unneeded" in text for text in texts), texts
    assert any(".scrub" in text or "scrub: In" in text for text in texts), texts
    assert len(numbers) < len(mutation.mutants) / 2


class Parted(Component):
    """Two counters beside memories, of which one gets what the other brings."""

    i: In(8)
    o: Out(8)
    late: Out(2)

    def elaborate(self, _platform):
        m = Module()
        m.submodules.first = first = Turning()
        m.submodules.second = second = Turning()
        m.d.comb += [first.i.eq(self.i), second.i.eq(first.o), self.o.eq(second.o)]
        m.d.comb += self.late.eq(Cat(first.late, second.late))
        return m


@needs_tools
def test_submodules_are_looked_at_alone(tmp_path) -> None:
    mutation = mutate(Parted(), 30, 1)
    parts = by_part(mutation.mutants)
    assert set(parts) == {"first", "second"}
    write_part(mutation, "second", parts["second"], tmp_path)
    text = (tmp_path / "both.il").read_text(encoding="utf-8")
    assert "second.count" in text
    assert "first.count" not in text
    numbers = equivalent(mutation, mutation.mutants)
    never = Path(__file__).read_text(encoding="utf-8").splitlines().index(_NEVER) + 1
    same = [mutant for mutant in mutation.mutants if mutant.number in numbers]
    assert never in [int(source.rpartition(":")[2]) for mutant in same for source in mutant.sources]
    assert len(same) < len(mutation.mutants) / 2


class Offering(Component):
    """A word that is offered at times."""

    i: In(2)
    go: In(1)
    o: Out(Flow(2))

    def elaborate(self, _platform):
        m = Module()
        m.d.sync += self.o.valid.eq(self.go)
        m.d.sync += self.o.payload.eq(Mux(self.go, self.i, ~self.i))  # not offered
        return m


@needs_tools
def test_a_payload_counts_while_it_is_offered() -> None:
    mutation = mutate(Offering(), 30, 1)
    numbers = equivalent(mutation, mutation.mutants)
    same = {mutant.mode for mutant in mutation.mutants if mutant.number in numbers}
    assert "inv" in same
    assert 2 < len(numbers) < len(mutation.mutants) / 2


@needs_tools
@pytest.mark.slow
def test_a_bench_notices_most_mutants(monkeypatch, celosia) -> None:
    monkeypatch.setattr(campaign, "GROUP", 12)
    fields = {"config": "tiny", "count": "12", "prove": "240", "set": "", "unit": "argmax"}
    case = Case("mutant", 1, 0, tuple(fields.items()))
    result = campaign.run(case)
    assert result["mutants"] == 12
    assert result["killed"] + result["equivalent"] + len(result["survivors"]) == 12
    assert result["killed"] >= 10
    # With a bench that asks for nothing, all of them survive that are not proven to be equal.
    monkeypatch.setattr(campaign, "_passed", lambda *_: True)
    blind = campaign.run(case)
    assert blind["equivalent"] == result["equivalent"], "a mutant is proven that was noticed"
    assert (blind["killed"], len(blind["survivors"])) == (0, 12 - blind["equivalent"])
    assert all(re.search(r" at \S+ of hdl/\w+/\w+\.py:\d+", each) for each in blind["survivors"])
    code, out, _ = celosia("verify", "mutate", "argmax", "--count", "12", "--json", "--jobs", "1")
    assert code == 0
    report = json.loads(out.splitlines()[-1])
    assert report["score"] == round(result["killed"] / (12 - result["equivalent"]), 4)
    assert report["mutants"] == 12


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("x",), "Unknown unit 'x'; benches are for requantizer, "),
        (
            ("argmax", "--config", "x"),
            "Unknown configuration 'x'; use a TOML file or one of micro, ",
        ),
        (("argmax", "--count", "0"), "--count must be from 1 to 65,535, not 0"),
        ((), "Missing argument 'UNIT...'"),
    ],
)
def test_wrong_words_are_refused(celosia, words, message) -> None:
    code, out, err = celosia("verify", "mutate", *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"celosia: {message}")


@pytest.mark.parametrize("unit", campaign.MUTATED)
def test_each_unit_has_its_circuit_and_parameters(unit) -> None:
    component, settings = campaign.MUTATED[unit].make(PRESETS["tiny"].replace(lanes=2))
    assert component.signature.members
    assert json.dumps(settings)


def test_known_survivors_are_of_units_and_are_printed_with_their_reasons(monkeypatch, celosia):
    assert set(reasons()) <= set(campaign.MUTATED)
    files = re.findall(
        r"[\w/]+\.py", " ".join(each for unit in reasons().values() for each in unit)
    )
    assert all((ROOT / file).exists() for file in files)
    known, why = next(iter(reasons()["argmax"].items()))
    mutant = known.replace(".py", ".py:9, hdl/functions/argmax.py:12")
    assert reason("table", mutant) is None
    result = {"mutants": 2, "killed": 0, "equivalent": 0, "survivors": [mutant, "inv at new"]}
    outcomes = [Outcome(Case("mutant", 1, 0), result, "", 0)]
    monkeypatch.setattr("celosia.cli.campaign_options.Runner.run", lambda *_, **__: outcomes)
    code, out, _ = celosia("verify", "mutate", "argmax", "--count", "2", "--jobs", "1")
    assert code == 0
    assert f"argmax: {mutant} ({why})\nargmax: inv at new\n" in out
