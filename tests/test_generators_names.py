"""Names in generated Verilog: no reserved words, for any names of signals, parts or modules."""

from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from celosia.arch.presets import PRESETS
from celosia.generators.verilog.describe import meanings, ports
from celosia.generators.verilog.names import KEYWORDS
from celosia.generators.verilog.units import BUSES, CONTROL_BUSES, make_accelerator
from celosia.generators.verilog.verilog import to_verilog
from celosia.hdl.component import Component
from celosia.hdl.functions.argmax import ArgmaxUnit
from celosia.tb.machine.toolchain import missing_tools
from tests.support.standards import NO_NETS, refused_by_icarus, refused_by_slang


class Inner(Component):
    """A part. ``table`` is ``final`` of the next cycle."""

    table: In(4)
    final: Out(4)

    def elaborate(self, _platform):
        m = Module()
        m.d.sync += self.final.eq(self.table)
        return m


class Words(Component):
    """Everything is called by a reserved word. ``event`` is the input, ``event_`` another."""

    event: In(4)
    event_: In(4)
    unique: Out(4)

    def elaborate(self, _platform):
        m = Module()
        value = self.event ^ self.event_
        for word in sorted(KEYWORDS):
            register = Signal(4, name=word)
            m.d.sync += register.eq(value + 1)
            value = register
        m.submodules.program = inner = Inner()
        m.submodules.checker = store = Memory(shape=4, depth=4, init=[])
        write, read = store.write_port(), store.read_port()
        m.d.comb += [
            inner.table.eq(value),
            write.data.eq(inner.final),
            write.en.eq(1),
            self.unique.eq(read.data),
        ]
        return m


def test_the_reserved_words_are_all_of_ieee_1800() -> None:
    parsing = pytest.importorskip("pyslang.parsing", reason="slang is not installed")
    kinds = [name for name in dir(parsing.TokenKind) if name.endswith("Keyword")]
    squeezed = {kind.removesuffix("Keyword").lower() for kind in kinds}
    squeezed -= {"onestep", "unitsystemname", "rootsystemname"}
    assert {word.replace("_", "") for word in KEYWORDS} == squeezed


def test_whatever_has_the_name_of_a_reserved_word_is_legal(tmp_path: Path) -> None:
    text = to_verilog(Words(), "words")
    assert "\\" not in text
    source = tmp_path / "words.v"
    source.write_text(NO_NETS + text, encoding="utf-8")
    assert not refused_by_slang(source)
    if not missing_tools("icarus"):
        assert refused_by_icarus(source) == ""
    # Ports are described by the names that they have; what is distinct stays so.
    assert [port["name"] for port in ports(Words())] == ["event_", "event__", "unique_"]
    assert meanings(Words())["event_"] == "event is the input, event_ another"
    assert "input  wire [3:0] event__" in text


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("table", "must be no reserved word of SystemVerilog, not 'table'; celosia_table is free"),
        ("logic", "must be no reserved word of SystemVerilog, not 'logic'; celosia_logic is free"),
        ("std", "cannot be std, the name of SystemVerilog's own package"),
        ("TOP", "cannot be TOP, the name of Verilator's own module"),
        ("clk", "cannot be clk, the name of one of the module's ports"),
        ("host__addr", "cannot be host__addr, the name of one of the module's ports"),
        ("2a", "must be letters, digits and underscores, no digit first, not '2a'"),
    ],
)
def test_a_top_that_no_tool_takes_is_refused(celosia, tmp_path: Path, name, sentence) -> None:
    for words in (("generate", "--config", "tiny"), ("compile", "digits", "--add", "verilog")):
        outcome = celosia(*words, "--top", name, "--out", tmp_path / "out")
        assert outcome == (2, "", f"celosia: Option --top {sentence}\n")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match=r"^Name of a top module "):
        to_verilog(ArgmaxUnit(1), {"host__addr": "column"}.get(name, name))


def test_a_prefix_that_is_a_reserved_word_is_refused(celosia, tmp_path: Path) -> None:
    words = ("generate", "--config", "tiny", "--prefix", "begin", "--out", tmp_path / "out")
    message = "must be no reserved word of SystemVerilog, not 'begin'; celosia_begin is free"
    assert celosia(*words) == (2, "", f"celosia: Option --prefix {message}\n")


def test_a_part_never_has_the_name_of_the_top() -> None:
    text = to_verilog(Words(), "a_Inner", "a")
    assert "\nmodule a_Inner (" in text
    assert "\nmodule a_Inner_2 (" in text


@pytest.mark.parametrize("bus", ["native@0x40000000", "native:-3"])
@pytest.mark.parametrize(
    "command", [("generate",), ("generate", "--unit", "softmax"), ("compile", "digits")]
)
def test_a_place_on_a_bus_needs_a_bus(celosia, tmp_path: Path, bus, command) -> None:
    code, output, errors = celosia(*command, "--bus", bus, "--out", tmp_path / "out")
    message = f"Option --bus {bus} has an address, which is for axi4 or wishbone"
    assert (code, output, errors) == (2, "", f"celosia: {message}\n")
    assert not (tmp_path / "out").exists()


def test_every_port_of_an_accelerator_has_a_comment_of_its_own() -> None:
    for bus in BUSES:
        for control in CONTROL_BUSES:
            described = ports(make_accelerator(PRESETS["tiny"], bus, 32, 0, control))
            texts = {port["name"]: port["meaning"] for port in described}
            assert all(texts.values()), (bus, control)
            host = [text for name, text in texts.items() if name.startswith(("host", "irq"))]
            assert len(set(host)) == len(host)


class Described(Component):
    """A counter.

    - ``clear``: sets the count to 0;
    - ``step``: added in each cycle. Wraps with ``clear`` at 0.
    """

    count: Signal
    """Sum of all ``step``, see :class:`celosia.hdl.memory.ram.Ram`."""

    def __init__(self) -> None:
        super().__init__({"clear": In(1), "step": In(4), "count": Out(4)})


def test_ports_have_the_text_of_their_item_or_of_their_field() -> None:
    texts = meanings(Described())
    assert texts["clear"] == "clear: sets the count to 0"
    assert texts["step"] == "step: added in each cycle"
    assert texts["count"] == "Sum of all step, see Ram"
