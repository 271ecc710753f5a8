"""Fields of absent units: values for them are dropped, misspelled names are not."""

import pytest
from amaranth.hdl import Const, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from celosia.hdl.stream.fields import assign, carry, chain, inputs, late_field, outputs, present

WITH = Signal(data.StructLayout({"kept": 4, **present(flag=True, size=3)}))
WITHOUT = Signal(data.StructLayout({"kept": 4, **present(flag=False, size=0)}))


def test_fields_without_bits_are_left_out() -> None:
    assert present(flag=False, size=0, empty=data.StructLayout({}), wide=True) == {"wide": 1}
    assert set(inputs(a=1, b=False)) == {"a"}
    assert set(outputs(a=False, b=range(5))) == {"b"}


def test_values_of_absent_fields_are_dropped() -> None:
    assert len(assign(WITH, kept=1, flag=1, size=2)) == 3
    assert len(assign(WITHOUT, kept=1, flag=1, size=2)) == 1
    assert len(carry(WITH, WITHOUT, "kept", "flag", "size")) == 1


def test_a_chain_has_the_ports_of_both() -> None:
    full = wiring.Signature(inputs(x_i=2, y_i=1) | outputs(x_o=2, y_o=1)).create()
    part = wiring.Signature(inputs(x_i=2, y_i=False) | outputs(x_o=2, y_o=False)).create()
    assert len(chain(full, full, "x", "y")) == 2
    assert len(chain(full, part, "x", "y")) == 1


def test_a_late_field_is_a_register_or_zero() -> None:
    assert isinstance(late_field(Module(), WITHOUT, "flag", 2), Const)
    register = late_field(Module(), WITH, "size", 2)
    assert isinstance(register, Signal)
    assert register.name == "size"


@pytest.mark.parametrize("call", [lambda: assign(WITH, keptt=1), lambda: carry(WITH, WITH, "flg")])
def test_a_name_of_no_layout_is_an_error(call) -> None:
    with pytest.raises(AttributeError, match="No layout has an optional field"):
        call()


def test_ports_of_a_component_count() -> None:
    class Unit(wiring.Component):
        def __init__(self) -> None:
            super().__init__({"always": In(1), **inputs(sometimes=False)})

    assert len(assign(Unit(), always=1, sometimes=1)) == 1
