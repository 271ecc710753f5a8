"""Functions for layout fields and ports that exist only in some configurations.

Assignments to absent fields are ignored, so that a circuit needs no conditions.
"""

from typing import Any

from amaranth.hdl import Const, Module, Shape, Value
from amaranth.lib.wiring import In, Out

from celosia.hdl.stream.pipeline import delay

_OPTIONAL: set[str] = set()
"""Names of all optional fields and ports."""


def present(**fields: Any) -> dict[str, Any]:
    """Return the optional fields that a layout has, as a dictionary from name to shape.

    Each argument NAME=SHAPE is an optional field. The result has the field only if SHAPE is wider
    than 0 bits. SHAPE may also be True for one bit, or False for 0 bits.
    """
    _OPTIONAL.update(fields)
    shapes = {
        name: int(shape) if isinstance(shape, bool) else shape for name, shape in fields.items()
    }
    return {name: shape for name, shape in shapes.items() if Shape.cast(shape).width}


def inputs(**fields: Any) -> dict[str, Any]:
    """Return the optional input ports that a component has, as a dictionary from name to port.

    Each argument NAME=SHAPE is an optional port. The result has the port only if SHAPE is wider
    than 0 bits. SHAPE may also be True for one bit, or False for 0 bits.
    """
    return {name: In(shape) for name, shape in present(**fields).items()}


def outputs(**fields: Any) -> dict[str, Any]:
    """Return the optional output ports that a component has, as a dictionary from name to port.

    Each argument NAME=SHAPE is an optional port. The result has the port only if SHAPE is wider
    than 0 bits. SHAPE may also be True for one bit, or False for 0 bits.
    """
    return {name: Out(shape) for name, shape in present(**fields).items()}


def has(record: Any, name: str) -> bool:
    """Return true if ``record`` has the optional field or port ``name``, false if it lacks it.

    ``record`` is a payload, a component or an interface. Raises :class:`AttributeError` if no
    record of the project has an optional field of this name, as for a misspelled name.
    """
    signature = getattr(record, "signature", None)
    members = signature.members if signature is not None else record.shape().members
    if name not in members and name not in _OPTIONAL:
        raise AttributeError(f"No layout has an optional field {name}")
    return name in members


def assign(sink: Any, **values: Any) -> list[Any]:
    """Return a list of statements that assign each argument NAME to the field NAME of ``sink``.

    A value for an optional field that ``sink`` does not have is ignored.
    """
    return [getattr(sink, name).eq(value) for name, value in values.items() if has(sink, name)]


def carry(sink: Any, source: Any, *names: str) -> list[Any]:
    """Return a list of statements that assign the fields ``names`` of ``source`` to ``sink``.

    A name is ignored if ``source`` or ``sink`` does not have this optional field.
    """
    return assign(sink, **{name: getattr(source, name) for name in names if has(source, name)})


def chain(sink: Any, source: Any, *names: str) -> list[Any]:
    """Return a list of assignments of ports NAME_o of ``source`` to ports NAME_i of ``sink``.

    NAME stands for each name in ``names``; ``source`` and ``sink`` are components. A name is
    ignored if the optional port NAME_o or NAME_i does not exist.
    """
    present_names = [name for name in names if has(source, f"{name}_o")]
    return assign(sink, **{f"{name}_i": getattr(source, f"{name}_o") for name in present_names})


def late_field(m: Module, record: Any, name: str, cycles: int) -> Value:
    """Return the field ``name`` of a record, delayed by ``cycles`` cycles.

    The result is 0 if the record does not have this optional field.
    """
    if not has(record, name):
        return Const(0, 1)
    return delay(m, getattr(record, name), cycles, name=name)
