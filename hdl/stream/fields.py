"""Optional fields of payloads, and optional ports, for units that a machine may not have.

Layouts and signatures define which fields and ports exist. A circuit can assign values to all
fields: these functions drop the values of absent fields, so that an absent unit leaves no logic.
"""

from typing import Any

from amaranth.hdl import Const, Module, Shape, Value
from amaranth.lib.wiring import In, Out

from celosia.hdl.stream.pipeline import delay

_OPTIONAL: set[str] = set()
"""Names of all optional fields and ports."""


def present(**fields: Any) -> dict[str, Any]:
    """Return those fields whose shapes have at least one bit, a dictionary from name to shape.

    A flag can be given as a Boolean: True is a shape of one bit, False of none.
    """
    _OPTIONAL.update(fields)
    shapes = {
        name: int(shape) if isinstance(shape, bool) else shape for name, shape in fields.items()
    }
    return {name: shape for name, shape in shapes.items() if Shape.cast(shape).width}


def inputs(**fields: Any) -> dict[str, Any]:
    """Return an input port for each field whose shape has bits, a dictionary from name to port."""
    return {name: In(shape) for name, shape in present(**fields).items()}


def outputs(**fields: Any) -> dict[str, Any]:
    """Return an output port for each field whose shape has bits, a dictionary from name to port."""
    return {name: Out(shape) for name, shape in present(**fields).items()}


def has(record: Any, name: str) -> bool:
    """Return whether a payload has the field ``name``, or a component or interface has that port.

    Raises :class:`AttributeError` for an absent name that is not optional: no earlier call of
    :func:`present` had this name.
    """
    signature = getattr(record, "signature", None)
    members = signature.members if signature is not None else record.shape().members
    if name not in members and name not in _OPTIONAL:
        raise AttributeError(f"No layout has an optional field {name}")
    return name in members


def assign(sink: Any, **values: Any) -> list[Any]:
    """Return assignments of ``values`` to a sink, without values for fields that the sink lacks."""
    return [getattr(sink, name).eq(value) for name, value in values.items() if has(sink, name)]


def carry(sink: Any, source: Any, *names: str) -> list[Any]:
    """Return assignments of the fields ``names`` from source to sink, if both have the field."""
    return assign(sink, **{name: getattr(source, name) for name in names if has(source, name)})


def chain(sink: Any, source: Any, *names: str) -> list[Any]:
    """Return assignments from the ports NAME_o of a component to the ports NAME_i of another.

    A name in ``names`` is ignored if one of the two components lacks its port.
    """
    present_names = [name for name in names if has(source, f"{name}_o")]
    return assign(sink, **{f"{name}_i": getattr(source, f"{name}_o") for name in present_names})


def late_field(m: Module, record: Any, name: str, cycles: int) -> Value:
    """Return the field ``name`` of a record, delayed by ``cycles`` cycles; 0 if it is absent."""
    if not has(record, name):
        return Const(0, 1)
    return delay(m, getattr(record, name), cycles, name=name)
