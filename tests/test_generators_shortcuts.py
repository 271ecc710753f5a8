"""Shortcuts through Amaranth's conversion: the circuit stays, and Amaranth is left as it was."""

import gc

import pytest
from amaranth.back import rtlil
from amaranth.hdl import ClockSignal, Module, Mux, ResetSignal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from arch.presets import PRESETS
from generators.verilog.modules import distinct_modules
from generators.verilog.shortcuts import shortcuts
from generators.verilog.verilog import to_verilog
from hdl.accelerator import Accelerator


class Shared(wiring.Component):
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


class Loop(wiring.Component):
    """Drives a bit from two domains."""

    o: Out(1)

    def elaborate(self, _platform):
        m = Module()
        m.d.comb += self.o.eq(1)
        m.d.sync += self.o.eq(0)
        return m


def test_a_shared_expression_is_one_cell() -> None:
    verilog = to_verilog(Shared())
    assert verilog.count(" + ") == 1
    assert rtlil.convert(Shared()).count("cell $add") > 1, "as Amaranth alone converts it"


def test_clocks_and_resets_are_values_too() -> None:
    assert "a[0] ? clk : rst" in to_verilog(Shared())


def test_two_drivers_of_a_bit_are_refused() -> None:
    with pytest.raises(Exception, match="driven from domain"):
        to_verilog(Loop())


def test_amaranth_is_left_as_it_was() -> None:
    own = rtlil.ModuleEmitter, Value.__len__
    with shortcuts():
        assert rtlil.ModuleEmitter is not own[0]
        assert Value.__len__ is not own[1]
        assert not gc.isenabled()
    assert (rtlil.ModuleEmitter, Value.__len__) == own
    assert gc.isenabled()


def test_a_large_machine_is_short_enough_to_be_written_in_seconds() -> None:
    # A hundred thousand characters take about a tenth of a second.
    lengths = {
        source.name: len(source.text)
        for source in distinct_modules(Accelerator(PRESETS["medium"]), "top")
    }
    assert sum(lengths.values()) < 2_300_000
    assert max(lengths.values()) < 100_000, "a part that occurs often is to be a component"
