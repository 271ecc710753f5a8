"""The gate: pairs as they are recorded, and comparisons that fail."""

import re

import pytest

from celosia.arch.presets import PRESETS
from celosia.fpga.boards import BOARDS
from celosia.generators.verilog.units import UNITS, make_unit
from celosia.generators.verilog.verilog import to_verilog
from tools import gate
from tools.gate_entries import CIRCUIT, PAIR, QUICK, TABLE, entries, measure, verilog_hash

RECORDED = gate.read_record()


LATER = ("digits-simplified small",)
"""Pairs that `make test-long` compares: another model for digits is in each run."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] * (name.removeprefix(f"{PAIR}/") in LATER))
        for name in QUICK
    ],
)
def test_a_pair_is_as_recorded(name: str) -> None:
    assert measure(name) == RECORDED[name], f"`python -m tools.gate --only '{name}'` compares it"


def test_a_unit_is_as_recorded() -> None:
    name = f"{CIRCUIT}/requantizer tiny"
    assert measure(name) == RECORDED[name]


def test_every_preset_unit_and_board_has_an_entry() -> None:
    names = entries().keys()
    assert {f"{CIRCUIT}/{unit} {preset}" for unit in UNITS for preset in PRESETS} <= names
    assert {f"{CIRCUIT}/board {board} uart" for board in BOARDS} <= names
    assert sum(name.startswith(PAIR) for name in names) >= 71
    assert len(QUICK) == 12


def test_the_record_has_known_entries_in_order() -> None:
    assert list(RECORDED) == sorted(RECORDED)
    assert RECORDED.keys() <= entries().keys()
    assert all("failed" not in entry for entry in RECORDED.values())


VERILOG = """\
// Made of a description that changes.
module top (
  // the clock
  input wire clk /* rising */
);
  wire [3:0] inner;
  top_part inner_part (
    .clk(clk) // by name
  );
endmodule
module top_part(input wire clk);
  wire [3:0] top;
  initial $display("// no comment");
endmodule
"""


def test_comments_and_names_of_modules_do_not_count() -> None:
    renamed = VERILOG.replace("top_part", "unit_7").replace("that changes", "")
    first, last = renamed.split("module unit_7(")
    assert verilog_hash(renamed) == verilog_hash(VERILOG)
    assert verilog_hash(f"module unit_7({last}{first}") == verilog_hash(VERILOG)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("inner_part", "other_part"),
        ("wire [3:0] inner", "wire [3:0] other"),
        ("[3:0] top", "[4:0] top"),
        ("// no comment", "// another one"),
        ("  top_part inner_part", "  top_part again (.clk(clk));\n  top_part inner_part"),
    ],
)
def test_everything_else_counts(old: str, new: str) -> None:
    assert old in VERILOG
    assert verilog_hash(VERILOG.replace(old, new)) != verilog_hash(VERILOG)


def test_another_top_prefix_and_class_name_give_the_same_hash() -> None:
    text = to_verilog(make_unit("softmax", PRESETS["tiny"]), "top")
    other = to_verilog(make_unit("softmax", PRESETS["tiny"]), "softmax", "other")
    renamed = re.sub(r"\bother_Row(\w+)\b", r"other_Line\1", other)
    assert other != renamed
    assert verilog_hash(text) == verilog_hash(renamed)
    wider = make_unit("softmax", PRESETS["tiny"].replace(max_row=64))
    assert verilog_hash(text) != verilog_hash(to_verilog(wider, "top"))


BEFORE: gate.Entries = {
    "pair/a": {"words": 1000, "cycles": 10_000, "integers": "00"},
    "pair/b": {"words": 1000, "cycles": 10_000, "integers": "01"},
    "circuit/c": {"verilog": "02"},
}


@pytest.mark.parametrize(
    ("name", "change", "allowed"),
    [
        ("pair/a", {"words": 1001}, "compiler"),
        ("pair/a", {"words": 1021}, ""),
        ("pair/a", {"cycles": 9_999}, "compiler"),
        ("pair/a", {"cycles": 10_001}, ""),
        ("pair/a", {"integers": "03"}, ""),
        ("pair/a", {"cycles": None}, ""),
        ("circuit/c", {"verilog": "03"}, ""),
        ("pair/new", {"words": 1}, ""),
    ],
)
def test_rules_refuse_what_they_say(name: str, change: gate.Entry, allowed: str) -> None:
    after = BEFORE | {name: {**BEFORE.get(name, {}), **change}}
    assert [difference.entry for difference in gate.differences(BEFORE, after)] == [name]
    assert {rule for rule in gate.RULES if gate.passes(BEFORE, after, rule)} == set(
        [allowed] * bool(allowed)
    )
    assert all(gate.passes(after, after, rule) for rule in gate.RULES)


def test_faster_pairs_pay_for_slower_ones_up_to_a_bound() -> None:
    faster = BEFORE | {"pair/b": {**BEFORE["pair/b"], "cycles": 9_900}}
    slower = faster | {"pair/a": {**BEFORE["pair/a"], "cycles": 10_050}}
    slowest = faster | {"pair/a": {**BEFORE["pair/a"], "cycles": 10_051}}
    assert gate.passes(BEFORE, slower, "compiler")
    assert not gate.passes(BEFORE, slowest, "compiler")


def test_a_missing_entry_is_a_difference() -> None:
    after = {name: entry for name, entry in BEFORE.items() if name != "pair/a"}
    assert not gate.passes(BEFORE, after, "compiler")


def test_the_command_fails_where_an_entry_is_not_as_recorded(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{CIRCUIT}/reciprocal tiny"
    monkeypatch.setattr(gate, "RECORD", tmp_path / "gate.json")
    monkeypatch.setattr(gate, "_measured", lambda names, _: [(entry, MADE) for entry in names])

    def run(*words: str, only: str = name) -> int:
        monkeypatch.setattr("sys.argv", ["gate", *words, "--only", only])
        return gate.main()

    assert run() == 1
    assert run("--record") == 0
    assert run() == 0
    gate.write_record({name: {"verilog": "00"}})
    assert run() == 1
    assert re.search(rf"{name} +verilog +00 +01 +refused", capsys.readouterr().out)
    assert run("--missing") == 0
    assert run(only="pair/none") == 2


MADE: gate.Entry = {"verilog": "01"}


def test_a_pair_that_is_refused_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLE["encoders"], "wrong", "digits --config none")
    assert "Unknown configuration 'none'" in str(measure(f"{PAIR}/wrong")["failed"])
