"""Generated Verilog: readable, accepted by two simulators without warnings, the same every time."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.back import rtlil
from amaranth.hdl import (
    ClockDomain,
    ClockSignal,
    Module,
    Mux,
    ResetSignal,
    Signal,
    signed,
    unsigned,
)
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from celosia.arch.config import Config
from celosia.arch.matrix_config import MatrixConfig
from celosia.arch.presets import PRESETS
from celosia.arch.support.cache import ROOT
from celosia.generators.verilog.units import make_unit
from celosia.generators.verilog.verilog import WAIVERS, to_verilog
from celosia.hdl.component import Component, InDomain
from celosia.hdl.matrix.systolic import SystolicArray
from celosia.hdl.memory.ram import Ram
from celosia.hdl.stream.pipeline import delay
from celosia.tb.machine.fast_build import accelerator_verilog
from celosia.tb.machine.toolchain import environment, missing_tools
from tests.support.configurations import ODD
from tests.support.longer import longer


class Stage(Component):
    """One stage. ``i`` is its input; ``o`` leaves one cycle later."""

    def __init__(self, width: int):
        self.width = width
        super().__init__({"i": In(signed(width)), "o": Out(signed(width)), "unused": Out(1)})

    def elaborate(self, _platform):
        m = Module()
        forgotten = Signal(8)
        m.d.sync += [self.o.eq(self.i + 1), forgotten.eq(forgotten + 1)]
        return m


class Counter(Component):
    """A counter."""

    o: Out(4)

    def elaborate(self, _platform):
        m = Module()
        m.d.sync += self.o.eq(self.o + 1)
        return m


class Pair(Component):
    """Two counters; ``clear`` resets the first."""

    first: Out(4)
    second: Out(4)
    clear: In(1)

    def elaborate(self, _platform):
        m = Module()
        first, second = Counter(), Counter()
        m.domains.core = core = ClockDomain("core", local=True)
        m.submodules.first = InDomain(first, "core")
        m.submodules.second = second
        m.d.comb += [
            core.clk.eq(ClockSignal()),
            core.rst.eq(ResetSignal() | self.clear),
            self.first.eq(first.o),
            self.second.eq(second.o),
        ]
        return m


class Around(Component):
    """A pair below the top."""

    first: Out(4)
    clear: In(1)

    def elaborate(self, _platform):
        m = Module()
        m.submodules.pair = pair = Pair()
        m.d.comb += [self.first.eq(pair.first), pair.clear.eq(self.clear)]
        return m


class Chain(Component):
    """A chain of stages with a memory.

    ``i`` carries the first number and what it is stored with. ``o`` is the last stage's.
    """

    i: In(stream.Signature(data.StructLayout({"number": signed(4), "tag": 3})))
    o: Out(4)
    wide: Out(6)
    stored: Out(4)

    def elaborate(self, _platform):
        m = Module()
        before = self.i.payload.number
        for index in range(5):
            m.submodules[f"stage_{index}"] = stage = Stage(4)
            m.d.comb += stage.i.eq(before)
            before = stage.o
        m.submodules.stage_wide = wide = Stage(6)
        m.submodules.store = store = memory.Memory(shape=unsigned(4), depth=8, init=[])
        write, read = store.write_port(), store.read_port()
        m.d.comb += [
            write.addr.eq(self.i.payload.tag),
            write.data.eq(self.i.payload.number),
            write.en.eq(self.i.valid),
            read.addr.eq(self.i.payload.tag),
            self.stored.eq(read.data),
            wide.i.eq(before),
            self.wide.eq(wide.o),
            self.o.eq(before),
            self.i.ready.eq(1),
        ]
        return m


def modules(verilog: str) -> dict[str, str]:
    sources = re.findall(r"^module (\w+) \(\n(.*?)^endmodule$", verilog, re.MULTILINE | re.DOTALL)
    return dict(sources)


def test_a_component_is_one_module_for_each_set_of_parameters() -> None:
    texts = modules(to_verilog(Chain()))
    assert list(texts) == ["Chain", "Chain_Stage_2", "Chain_Stage"]
    assert texts["Chain"].count("  Chain_Stage stage_") == 5
    assert texts["Chain"].count("  Chain_Stage_2 stage_wide (") == 1


def test_comments_say_what_a_module_and_its_ports_are() -> None:
    verilog = to_verilog(Chain(), "top")
    assert "// Chain: A chain of stages with a memory.\nmodule top (" in verilog
    assert "// Stage: One stage.\n// Parameters: width = 6\nmodule top_Stage_2 (" in verilog
    assert (
        "  // i carries the first number and what it is stored with: number [3:0], tag [6:4]\n"
        "  input  wire [6:0] i__payload,\n" in verilog
    )
    assert "  // o is the last stage's\n  output wire [3:0] o,\n" in verilog
    assert "  // i is its input\n  input  wire [3:0] i,\n" in verilog, "inner modules', too"


def test_what_drives_nothing_is_left_out() -> None:
    verilog = to_verilog(Chain())
    assert "forgotten" not in verilog
    assert "  output wire unused" in verilog, "a port stays even where nothing drives it"


class Shared(Component):
    """Uses a sum twenty times, and the clock and the reset as values."""

    a: In(8)
    o: Out(20)
    p: Out(2)

    def elaborate(self, _platform):
        m = Module()
        total = self.a + 1
        for bit in range(20):
            m.d.comb += self.o[bit].eq(Mux(total[bit % 8], total[0], self.a[bit % 8]))
        m.d.comb += self.p.eq(Mux(self.a[0], ClockSignal(), ResetSignal()))
        return m


def test_a_shared_expression_is_one_cell() -> None:
    verilog = to_verilog(Shared())
    assert verilog.count(" + ") == 1
    assert rtlil.convert(Shared()).count("cell $add") > 1, "as Amaranth alone converts it"
    assert "a[0] ? clk : rst" in verilog


class Clash(Component):
    """Has signals, a port of a part and a part of one name, and registers without any."""

    a: In(2)
    b: Out(2)

    def elaborate(self, _platform):
        m = Module()
        m.submodules.o = stage = Stage(2)
        held = [Signal(2, name="o") for _ in range(3)]
        m.d.sync += [held[0].eq(stage.o), held[1].eq(held[0]), held[2].eq(held[1])]
        old = delay(m, self.a ^ held[2], 2)
        m.d.comb += [stage.i.eq(self.a), self.b.eq(old + delay(m, old, 1))]
        return m


def test_each_signal_has_a_name_of_its_own() -> None:
    text = modules(to_verilog(Clash()))["Clash"]
    assert re.findall(r"(\w+) <= (\w+)_next;", text) == [
        (name, name) for name in ("o_2", "o_3", "o_4", "old_1", "old", "old_d1")
    ]
    assert "  Clash_Stage o (\n    .clk(clk),\n    .i(a),\n    .o(o__o),\n" in text


def test_two_drivers_of_a_bit_are_refused() -> None:
    class Twice(Component):
        o: Out(1)

        def elaborate(self, _platform):
            m = Module()
            m.d.comb += self.o.eq(1)
            m.d.sync += self.o.eq(0)
            return m

    with pytest.raises(Exception, match=r"driven from d\.comb"):
        to_verilog(Twice())


@pytest.mark.parametrize("name", ["micro", "tiny"])
def test_names_are_those_of_the_sources(name: str) -> None:
    verilog = re.sub(r" *//.*", "", accelerator_verilog(PRESETS[name]))
    assert not re.search(r"[Aa]maranth|\bsrc\b|\$\d|port_\d", verilog)
    registers = re.findall(r"^    (\w+) <= \w+;$", verilog, re.MULTILINE)
    assert len(registers) > 30
    assert not [name for name in registers if re.match(r"_|register|signal|like", name)]


@pytest.mark.parametrize("name", ["micro", "tiny"])
def test_ports_of_inner_modules_have_comments(name: str) -> None:
    verilog = accelerator_verilog(PRESETS[name])
    ports = re.findall(r"^(.*)\n  (?:input|output) +(?:wire|reg) .*$", verilog, re.MULTILINE)
    known = [line for line in ports if line.startswith("  // ")]
    assert len(known) > 0.9 * len(ports)


def test_a_component_converts_the_same_way_twice() -> None:
    component = Chain()
    assert (
        to_verilog(component, "top") == to_verilog(component, "top") == to_verilog(Chain(), "top")
    )


def test_parts_of_an_earlier_conversion_are_made_with_and_without_places() -> None:
    plain, placed, again = (
        to_verilog(make_unit("requantizer", PRESETS["tiny"]), "top", places=places)
        for places in (False, True, False)
    )
    assert plain == again
    assert "src =" not in plain
    assert len(modules(placed)) > 1
    assert all("src =" in text for text in modules(placed).values())


def test_an_array_is_one_element() -> None:
    config = PRESETS["small"].replace(rows=6, cols=7, lanes=1)
    verilog = to_verilog(SystolicArray(config.part(MatrixConfig)), "array")
    texts = modules(verilog)
    assert texts["array"].count("  array_ElementColumn ") == 7
    assert texts["array_ElementColumn"].count("  array_ProcessingElement") == 6
    kinds = [name for name in texts if name.startswith("array_ProcessingElement")]
    assert len(kinds) <= 6, "elements differ by their row's sum width only"
    assert len(verilog.splitlines()) < 3000


@pytest.mark.parametrize(
    "config",
    [ODD, *longer(PRESETS["tiny"], PRESETS["odd"].replace(trace=True))],
    ids=lambda config: config.name,
)
def test_two_simulators_accept_it_without_a_warning(config: Config, tmp_path: Path) -> None:
    verilog = accelerator_verilog(config)
    source = tmp_path / "top.v"
    source.write_text(verilog, encoding="utf-8")
    lints = {
        "icarus": ["iverilog", "-g2005", "-Wall", "-Wno-timescale", "-o", os.devnull, source],
        "verilator": [
            "verilator",
            "--lint-only",
            "-Wall",
            "--quiet",
            "--top-module",
            "top",
            source,
        ],
    }
    for simulator, command in lints.items():
        if missing_tools(simulator):
            pytest.skip(f"{simulator} is not installed")
        done = subprocess.run(command, capture_output=True, env=environment(), encoding="utf-8")
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""


def test_each_waiver_has_a_reason_in_the_text() -> None:
    verilog = to_verilog(Stage(3))
    for rule, reason in WAIVERS.items():
        assert re.search(rf"lint_off {rule} +\*/ // {re.escape(reason)}\n", verilog)


@pytest.mark.parametrize(
    ("unit", "preset"),
    [("matrix_engine", "tiny"), ("vector_engine", "tiny"), *longer(("accelerator", "tiny"))],
)
def test_runs_with_other_hash_seeds_give_the_same_bytes(unit: str, preset: str) -> None:
    program = (
        "import sys\n"
        "from celosia.arch.presets import PRESETS\n"
        "from celosia.generators.verilog.units import make_unit\n"
        "from celosia.generators.verilog.verilog import to_verilog\n"
        f"sys.stdout.write(to_verilog(make_unit('{unit}', PRESETS['{preset}']), 'top'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=True,
        cwd=ROOT,
        encoding="utf-8",
        env=os.environ | {"PYTHONHASHSEED": "1"},
    )
    assert done.stdout == to_verilog(make_unit(unit, PRESETS[preset]), "top")


class Halves(wiring.Component):
    """A word with one part that rests. ``i`` is that part, ``o`` the word."""

    i: In(3)
    o: Out(data.StructLayout({"rests": 8, "moves": 8}))

    def elaborate(self, _platform):
        m = Module()
        count = Signal(8)
        m.d.sync += count.eq(count + 1)
        m.d.comb += self.o.rests.eq(self.i)
        with m.Switch(count):
            with m.Case(1):
                m.d.comb += self.o.moves.eq(5)
            with m.Case(2):
                m.d.comb += self.o.moves.eq(count)
        return m


def test_every_process_runs_at_time_0() -> None:
    text = to_verilog(Halves(), "halves")
    processes = text.split("\n  always @*")[1:]
    assert len(processes) > 2
    assert all(process.startswith(" begin\n    if (_start)") for process in processes)


def test_memories_without_an_order_say_so():
    ordered = to_verilog(Ram(8, 16), "top")
    unordered = to_verilog(Ram(8, 16, ordered=False), "top")
    assert "(*" not in ordered
    assert unordered.replace("  (* no_rw_check *)\n", "", 1).count("no_rw_check") == 0
    assert "  (* no_rw_check *)\n  reg [7:0] memory [15:0];\n" in unordered


@pytest.mark.parametrize("component", [Pair, Around])
def test_one_module_serves_two_domains(component) -> None:
    """A component with a separate reset is the module of others, with another reset."""
    text = to_verilog(component(), "top")
    assert text.count("\nmodule top_Counter") == 1
    first, second = (
        re.search(rf"^  top_Counter {name}\w* \((.*?)\);", text, re.MULTILINE | re.DOTALL)[1]
        for name in ("first", "second")
    )
    assert ".rst(core_rst)" in first
    assert ".rst(rst)" in second
    assert "core_rst = rst | clear" in text
