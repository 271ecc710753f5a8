"""Coverage: points are read, merged and placed; a weaker bench reaches fewer of them."""

import json
from dataclasses import replace

import pytest
from amaranth.hdl import Module, Mux
from amaranth.lib.wiring import In, Out, connect, flipped

from celosia.generators.campaign.case import Case
from celosia.hdl.component import Component
from celosia.tb.benches.catalog import BENCHES
from celosia.tb.verify.coverage import units
from celosia.tb.verify.coverage.points import Points, from_json, merge, read_points, to_json, totals
from celosia.tb.verify.coverage.verilog import CoveredVerilog


class Chooser(Component):
    """A register that takes the larger of two values where it is asked to."""

    a: In(4)
    b: In(4)
    take: In(1)
    o: Out(4)

    def elaborate(self, _platform):
        m = Module()
        with m.If(self.take & (self.a != 0)):
            m.d.sync += self.o.eq(self.a)
        return m


class Wrapper(Component):
    """The same circuit, one level below."""

    a: In(4)
    b: In(4)
    take: In(1)
    o: Out(4)

    def elaborate(self, _platform):
        m = Module()
        m.submodules.inner = inner = Chooser()
        connect(m, flipped(self), inner)
        return m


def point(verilog: CoveredVerilog, text: str, comment: str, count: int, kind: str) -> str:
    """Return a line of Verilator's file, of the first line of Verilog that has a text."""
    line = next(n for n, each in enumerate(verilog.lines, 1) if text in each)
    fields = {"f": "top.v", "l": line, "n": 5, "page": f"v_{kind}/top", "o": comment, "h": "top"}
    return "C '" + "".join(f"\1{k}\2{v}" for k, v in fields.items()) + f"' {count}\n"


def data_of(verilog: CoveredVerilog, *, reached: int) -> str:
    return "".join(
        (
            "# SystemC::Coverage-3\n",
            point(verilog, "if (_start)", "if", 0, "branch"),
            point(verilog, "reg _start", "block", 1, "line"),
            point(verilog, "if (_2)", "if", reached, "branch"),
            point(verilog, "if (_2)", "else", 1, "branch"),
            point(verilog, "wire take", "take:0->1", 1, "toggle"),
        )
    )


def test_points_are_merged_over_designs_and_placed_in_python(tmp_path) -> None:
    alone, wrapped = CoveredVerilog(Chooser()), CoveredVerilog(Wrapper())
    assert alone.modules[0].key == wrapped.modules[1].key != wrapped.modules[0].key
    data = tmp_path / "coverage.dat"
    data.write_text(data_of(alone, reached=0))
    modules = read_points(data, alone)
    assert totals(modules.values()) == {"line": (1, 2), "toggle": (1, 1)}
    (module,) = modules.values()
    (missed,) = module.points["line"].holes
    assert missed.startswith("if of `if (_2) begin` at tests/test_cli_coverage.py:")
    assert from_json(json.loads(json.dumps(to_json(modules)))) == modules
    again = tmp_path / "wrapped.dat"
    again.write_text(data_of(wrapped, reached=3).replace("v_branch/top", "v_branch/top_Chooser"))
    merge(modules, read_points(again, wrapped))
    assert modules[alone.modules[0].key].points["line"] == Points(2, 3, 0, {})


class Sums(Component):
    """Two choices, in one assignment each."""

    a: In(4)
    b: In(4)
    o: Out(4)
    p: Out(4)

    def elaborate(self, _platform):
        m = Module()
        m.submodules.cross = inner = Chooser()
        m.d.comb += [
            inner.a.eq(self.a),
            inner.b.eq(self.b),
            self.o.eq(Mux(self.a[0], self.b, self.a)),
            self.p.eq(Mux(self.b[0], self.b, self.a) + inner.o),
        ]
        return m


def test_the_order_of_assignments_and_names_of_others_make_no_other_module(
    tmp_path, monkeypatch
) -> None:
    """An instance whose name is a word of Verilog has another name in the text."""
    own = CoveredVerilog(Sums())
    assert "  top_Chooser cross_ (" in own.lines
    choices = "  assign o = a[0] ? b : a;", "  assign _1 = b[0] ? b : a;"
    first, second = (own.lines.index(choice) for choice in choices)
    lines = list(own.lines)
    lines[first], lines[second] = choices[1], choices[0]
    text = "\n".join(lines).replace("top_Chooser", "top_Chooser_7") + "\n"
    monkeypatch.setattr(
        "celosia.tb.verify.coverage.verilog.to_verilog", lambda *_args, **_given: text
    )
    other = CoveredVerilog(Sums())
    assert [each.key for each in other.modules] == [each.key for each in own.modules]
    modules = {}
    for verilog, reached in zip((own, other), choices, strict=True):
        data = tmp_path / "coverage.dat"
        data.write_text(
            "".join(
                point(verilog, text, comment, int(text == reached), "branch")
                for text in choices
                for comment in ("cond_then", "cond_else")
            )
        )
        merge(modules, read_points(data, verilog))
    assert modules[own.modules[0].key].points["line"].missed == {}


@pytest.fixture(scope="module")
def whole() -> dict:
    case = Case("coverage", 1, 0, (("config", "tiny"), ("units", "rotary")))
    return units.run(case)


def test_a_weaker_bench_reaches_fewer_points(monkeypatch, whole) -> None:
    shares = totals(from_json(whole["modules"]).values())
    assert shares["line"][0] == shares["line"][1] > 90
    assert shares["toggle"][0] > 0.95 * shares["toggle"][1]
    weak = {"lanes": 2, "operand_width": 8, "commands": 2, "beats": 3, "stall": 0.0}
    bench = replace(BENCHES["rotary"], settings=weak, config={}, unit={})
    monkeypatch.setitem(BENCHES, "rotary", bench)
    case = Case("coverage", 1, 0, (("config", "tiny"), ("units", "rotary")))
    fewer = totals(from_json(units.run(case)["modules"]).values())
    assert fewer["line"][0] < shares["line"][0]
    assert fewer["toggle"][0] < shares["toggle"][0]
    assert fewer["line"][1] == shares["line"][1]


def test_the_command_tells_shares_by_unit(celosia, whole) -> None:
    words = ("verify", "coverage", "rotary", "--config", "tiny", "--jobs", "1", "--json")
    code, out, _ = celosia(*words)
    report = json.loads(out.splitlines()[-1])
    assert (code, report["failed"], report["line"], report["holes"]) == (0, 0, 1.0, [])
    reached = {
        kind: {"reached": hits, "count": count}
        for kind, (hits, count) in totals(from_json(whole["modules"]).values()).items()
    }
    assert report["points"] == reached
    (row,) = report["units"]
    assert (row["unit"], row["own_line"], row["toggle"]) == ("rotary", 1.0, report["toggle"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("x",), "Unknown unit 'x'; known are accelerator_steady, "),
        (("--config", "x"), "Unknown configuration 'x'; known are tiny, full, odd"),
    ],
)
def test_wrong_words_are_refused(celosia, words, message) -> None:
    code, out, err = celosia("verify", "coverage", *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"celosia: {message}")
