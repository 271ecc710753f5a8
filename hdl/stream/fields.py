"""Fields of payloads and ports of units that a machine may not have.

A unit's layouts and signatures say once which fields it has. The circuit that drives them gives all
values; those of an absent unit are dropped, so that it leaves no logic.
"""

from typing import Any

from amaranth.hdl import Const, Module, Shape, Value
from amaranth.lib.wiring import In, Out

from celosia.hdl.stream.pipeline import delay


def present(**fields: Any) -> dict[str, Any]:
    """Return those shapes that have bits: a flag that a unit lacks is one of no bits (False)."""
    shapes = {name: int(it) if isinstance(it, bool) else it for name, it in fields.items()}
    return {name: shape for name, shape in shapes.items() if Shape.cast(shape).width}


def inputs(**fields: Any) -> dict[str, Any]:
    """Return input ports of those shapes that have bits."""
    return {name: In(shape) for name, shape in present(**fields).items()}


def outputs(**fields: Any) -> dict[str, Any]:
    """Return output ports of those shapes that have bits."""
    return {name: Out(shape) for name, shape in present(**fields).items()}


def members_of(record: Any) -> Any:
    """Return the names of a payload's fields, or of a component's or an interface's ports."""
    signature = getattr(record, "signature", None)
    return signature.members if signature is not None else record.shape().members


def assign(sink: Any, **values: Any) -> list[Any]:
    """Return assignments of values to those fields or ports that a sink has, in their order."""
    names = members_of(sink)
    return [_field(sink, name).eq(value) for name, value in values.items() if name in names]


def carry(sink: Any, source: Any, *names: str) -> list[Any]:
    """Return assignments to a sink of those fields or ports that both it and a source have."""
    names_of_both = [name for name in names if name in members_of(source)]
    return assign(sink, **{name: _field(source, name) for name in names_of_both})


def chain(sink: Any, source: Any, *names: str) -> list[Any]:
    """Return assignments of a source's ports NAME_o to the ports NAME_i that a sink has."""
    values = {f"{name}_i": f"{name}_o" for name in names if f"{name}_o" in members_of(source)}
    return assign(sink, **{port: _field(source, name) for port, name in values.items()})


def late_field(m: Module, record: Any, name: str, cycles: int) -> Value:
    """Return a field of ``cycles`` cycles ago, or 0 if the record has none of this name."""
    if name not in members_of(record):
        return Const(0, 1)
    return delay(m, _field(record, name), cycles, name=name)


def _field(record: Any, name: str) -> Any:
    return getattr(record, name)
