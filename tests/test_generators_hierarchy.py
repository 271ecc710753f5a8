"""Conversions of components: which share a module, and which are kept for other designs."""

import gc
import warnings

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from celosia.arch.matrix_config import MatrixConfig
from celosia.arch.presets import PRESETS
from celosia.arch.records import Sparse
from celosia.generators.verilog import hierarchy
from celosia.generators.verilog.hierarchy import circuit_key
from celosia.generators.verilog.units import make_unit
from celosia.generators.verilog.verilog import to_verilog
from celosia.hdl.arithmetic.reciprocal import Normalizer
from celosia.hdl.component import Component
from celosia.hdl.functions.row_divide import RowDivide
from celosia.hdl.functions.row_factors import RowFactors
from celosia.hdl.functions.softmax import SoftmaxUnit
from celosia.hdl.sparse.engine import SparseMatrixEngine
from celosia.hdl.stream.skid import Skid
from tests.test_generators_verilog import Stage, modules


class Private(Component):
    """Adds a private number. ``o`` is the sum."""

    def __init__(self, number: int, init: int):
        self.__number = number
        super().__init__({"i": In(4), "o": Out(4, init=init)})

    def elaborate(self, _platform):
        m = Module()
        m.d.sync += self.o.eq(self.i + self.__number)
        return m


class Privates(Component):
    """Sums of three numbers."""

    i: In(4)
    o: Out(4)

    def elaborate(self, _platform):
        m = Module()
        value = self.i
        for part in (Private(1, 2), Private(3, 2), Private(3, 5), Private(3, 5)):
            m.submodules += part
            m.d.comb += part.i.eq(value)
            value = part.o
        m.d.comb += self.o.eq(value)
        return m


def test_private_attributes_and_initial_values_of_ports_are_in_a_modules_key() -> None:
    names = list(modules(to_verilog(Privates(), "top")))
    assert names == ["top", "top_Private_3", "top_Private_2", "top_Private"]


def test_only_what_differs_from_earlier_designs_is_converted(monkeypatch) -> None:
    def verilog(**changes: int) -> str:
        return to_verilog(make_unit("softmax", PRESETS["tiny"].replace(**changes)), "top")

    monkeypatch.setattr(hierarchy, "_KNOWN", {})
    alone = verilog(max_row=64)
    monkeypatch.setattr(hierarchy, "_KNOWN", {})
    verilog()
    converted = []

    def noted(component, *arguments, convert=rtlil.convert, **options):
        converted.append(type(component).__name__)
        return convert(component, *arguments, **options)

    monkeypatch.setattr(rtlil, "convert", noted)
    assert verilog(max_row=64) == alone
    assert {"SoftmaxUnit", "RowQueue", "RowWeights"} <= {*converted}
    assert not {"CreditQueue", "Multiplier", "OctaveExponential"} & {*converted}


def test_a_key_has_every_argument_or_there_is_none() -> None:
    layouts = [data.StructLayout({"x": width}) for width in (3, 3, 4)]
    same, equal, other = (circuit_key(Skid(layout)) for layout in layouts)
    assert same == equal != other
    row = stream.Signature(data.StructLayout({"beat": 1, "row": 1}))
    assert circuit_key(RowDivide(lanes=1, weighted=row)) is None
    # A class of another package may have a circuit that depends on any attribute.
    stage, normalizer = Stage(2), Normalizer(5)
    stage.part = normalizer.part = Normalizer(4)
    assert circuit_key(stage) is None
    assert circuit_key(normalizer) == circuit_key(Normalizer(5)) != circuit_key(Normalizer(4))


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (unsigned(3), unsigned(4)),
        (unsigned(3), signed(3)),
        (data.StructLayout({"x": 1}), data.StructLayout({"y": 1})),
        ([1, 2], [2, 1]),
        ({"x": 1}, {"x": 2}),
    ],
)
def test_a_key_has_shapes_lists_and_mappings(value, other) -> None:
    """No port shows the attribute, so only its value distinguishes the circuits."""
    keys = []
    for each in (value, other, value):
        stage = Stage(2)
        stage.part = each
        keys.append(circuit_key(stage))
    assert keys[0] == keys[2]
    assert keys[0] != keys[1]
    assert {keys[0]} == {keys[2]}


def test_parts_of_a_component_that_is_known_cause_no_warnings() -> None:
    rtlil.convert(Stage(2))  # before a first conversion Amaranth does not warn
    gc.collect()  # the components of other tests
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        RowFactors(lanes=1, max_row=4)
        SoftmaxUnit(1, 4)
        SoftmaxUnit(1, 4, factors=2)
        SparseMatrixEngine(PRESETS["tiny"].part(MatrixConfig), Sparse(lanes=1))
        gc.collect()
    assert [warning.filename for warning in caught] == [__file__] * 4
