"""Fields of payloads and ports of units that a machine may not have.

A unit's layouts and signatures say once which fields it has. The circuit that drives them gives all
values; those of an absent unit are dropped, so that it leaves no logic.
"""

from typing import Any

from amaranth.hdl import Const, Module, Shape, Value
from amaranth.lib.wiring import In, Out

from celosia.hdl.stream.pipeline import delay

_OPTIONAL: set[str] = set()
"""Names of fields that some layout or signature may lack."""


def present(**fields: Any) -> dict[str, Any]:
    """Return those shapes that have bits: a flag that a unit lacks is one of no bits (False)."""
    _OPTIONAL.update(fields)
    shapes = {
        name: int(shape) if isinstance(shape, bool) else shape for name, shape in fields.items()
    }
    return {name: shape for name, shape in shapes.items() if Shape.cast(shape).width}


def inputs(**fields: Any) -> dict[str, Any]:
    """Return input ports of those shapes that have bits."""
    return {name: In(shape) for name, shape in present(**fields).items()}


def outputs(**fields: Any) -> dict[str, Any]:
    """Return output ports of those shapes that have bits."""
    return {name: Out(shape) for name, shape in present(**fields).items()}


def has(record: Any, name: str) -> bool:
    """Return whether a payload has a field, or a component or an interface a port.

    Raises :class:`AttributeError` if no layout or signature made by :func:`present` names it.
    """
    signature = getattr(record, "signature", None)
    members = signature.members if signature is not None else record.shape().members
    if name not in members and name not in _OPTIONAL:
        raise AttributeError(f"No layout has an optional field {name}")
    return name in members


def assign(sink: Any, **values: Any) -> list[Any]:
    """Return assignments of values to those fields or ports that a sink has, in their order."""
    return [getattr(sink, name).eq(value) for name, value in values.items() if has(sink, name)]


def carry(sink: Any, source: Any, *names: str) -> list[Any]:
    """Return assignments to a sink of those fields or ports that both it and a source have."""
    return assign(sink, **{name: getattr(source, name) for name in names if has(source, name)})


def chain(sink: Any, source: Any, *names: str) -> list[Any]:
    """Return assignments of a source's ports NAME_o to the ports NAME_i that a sink has."""
    present_names = [name for name in names if has(source, f"{name}_o")]
    return assign(sink, **{f"{name}_i": getattr(source, f"{name}_o") for name in present_names})


def late_field(m: Module, record: Any, name: str, cycles: int) -> Value:
    """Return a field of ``cycles`` cycles ago, or 0 if the record has none of this name."""
    if not has(record, name):
        return Const(0, 1)
    return delay(m, getattr(record, name), cycles, name=name)
