"""Short names of a configuration's fields, used by ``--set``, ``Config.replace`` and messages.

A short name, such as ``rows`` for the field ``array.rows``, never changes. The short name of an
optional unit is a Boolean field: true if the unit is present.
"""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from celosia.arch.choices import EARLIER, EARLIER_PATHS, check_agreement, convert_older_fields
from celosia.arch.errors import InputError, check_known
from celosia.arch.fields import Fields

PATHS = {
    "name": "name",
    "rows": "array.rows",
    "cols": "array.cols",
    "array": "array.kind",
    "multiplier": "array.multiplier",
    "packed_slots": "weights.pairs",
    "packed_cache": "packed_cache",
    "low_rows": "packed_cache.low_rows",
    "block_exponents": "packed_cache.exponents",
    "weight_depth": "array.weight_depth",
    "operands": "array.operands",
    "gating": "array.gating",
    "acc_width": "accumulators.width",
    "max_k": "accumulators.longest_sum",
    "lanes": "vector.lanes",
    "softmax_lanes": "softmax.lanes",
    "scratchpad_bytes": "scratchpad.bytes",
    "scratchpad_banks": "scratchpad.banks",
    "scratchpad_align": "scratchpad.align",
    "registered": "control.registered",
    "acc_depth": "accumulators.depth",
    "mem_width": "memory.width",
    "mem_addr_width": "memory.addr_width",
    "program_depth": "control.program_depth",
    "param_depth": "vector.words",
    "pre_depth": "fused.words",
    "multiplier_width": "vector.multiplier_width",
    "bias_width": "vector.bias_width",
    "table_slots": "activation.slots",
    "row_factors": "factors.rows",
    "max_row": "vector.longest_row",
    "queue_depth": "control.queue_depth",
    "watchdog": "control.watchdog",
    "b_transpose": "array.b_transpose",
    "activation": "activation",
    "wide_functions": "activation.polynomials",
    "softmax": "softmax",
    "norm": "vector.norm",
    "rotary": "vector.rotary",
    "argmax": "vector.argmax",
    "fused": "fused",
    "weight_formats": "weights.formats",
    "weight_group": "weights.group",
    "sparse_lanes": "sparse.lanes",
    "sparse_depth": "sparse.longest_row",
    "throttle": "throttle.cycles",
    "protect": "control.protect",
    "observe": "control.observe",
    "micro": "micro",
    "requantizer": "micro.requantizer",
}
"""The path of each short name: record and field, or an optional unit."""

SHORT = {path: name for name, path in PATHS.items()}
"""The short name of each path."""


def _record(annotation: Any) -> tuple[type, bool]:
    """Return a record's class, and whether it may be None."""
    if isinstance(annotation, types.UnionType):
        return typing.get_args(annotation)[0], True
    return annotation, False


_KINDS = {field.name: _record(field.type) for field in dataclasses.fields(Fields)}
RECORDS: dict[str, type] = {name: kind for name, (kind, _) in _KINDS.items() if name != "name"}
"""The class of each record, by its name in a configuration."""
OPTIONAL = tuple(name for name, (_, absent) in _KINDS.items() if absent)
"""Names of the records that may be absent."""


def _leaf(record: str, name: str) -> tuple[type, Any]:
    """Return a field's type, and its value in a machine without the record."""
    (field,) = (each for each in dataclasses.fields(RECORDS[record]) if each.name == name)
    assert isinstance(field.type, type)
    absent = field.type() if field.default is dataclasses.MISSING else field.default
    return field.type, absent


def _describe(path: str) -> tuple[type, Any]:
    record, _, name = path.partition(".")
    if name:
        return _leaf(record, name)
    return (str, "") if path == "name" else (bool, False)


TYPES = {name: _describe(path)[0] for name, path in PATHS.items()}
"""Type of each field by short name."""
ABSENT = {name: _describe(path)[1] for name, path in PATHS.items()}
"""Value of each field in a machine without its unit, by short name."""


def flat(config: Fields) -> dict[str, Any]:
    """Return a dictionary from the short name of each configuration field to the field's value.

    If the configuration lacks an optional unit, the values of the unit's fields are those in
    :data:`ABSENT`.
    """
    return {short: value(config, short) for short in PATHS}


def value(config: Fields, short: str) -> Any:
    """Return the value of the configuration field with the short name ``short``.

    If the machine lacks the circuit to which the field belongs, the result is the value of
    :data:`ABSENT` for this field.
    """
    record, _, name = PATHS[short].partition(".")
    held = getattr(config, record)
    if name:
        return ABSENT[short] if held is None else getattr(held, name)
    return held if record == "name" else held is not None


def switch(record: str) -> str:
    """Return the short name of the field that adds an optional unit to the machine.

    The machine lacks the unit if this field is false, 0 or empty. The field is the unit's Boolean,
    such as ``softmax``, or the first field of its record, such as ``sparse_lanes`` for ``sparse``.
    """
    if record in SHORT:
        return SHORT[record]
    first = dataclasses.fields(RECORDS[record])[0]
    return SHORT[f"{record}.{first.name}"]


def records(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration's records (one dataclass for each unit) and its name, by record name.

    ``values`` maps the short name of every field to its value. An absent unit is None
    (:func:`switch`). Raises :class:`InputError` if a field of an absent unit differs from
    :data:`ABSENT`.
    """
    made: dict[str, Any] = {"name": values["name"]}
    for record, kind in RECORDS.items():
        paths = {each.name: f"{record}.{each.name}" for each in dataclasses.fields(kind)}
        held = {name: values[SHORT[path]] for name, path in paths.items()}
        if record in OPTIONAL and not values[switch(record)]:
            _check_absent(record, {SHORT[paths[name]]: value for name, value in held.items()})
            made[record] = None
        else:
            made[record] = kind(**held)
    return made


def _check_absent(record: str, held: Mapping[str, Any]) -> None:
    unit = switch(record)
    for short, value in held.items():
        if short != unit and value != ABSENT[short]:
            raise InputError(
                f"Field {short} needs {unit}, but {short} is {shown(value)} and {unit} "
                f"{shown(ABSENT[unit])}"
            )


def shown(value: Any) -> str:
    """Return a value as text for an error message: a string in quotes, ``True`` as ``true``."""
    return repr(value) if isinstance(value, str) else str(value).lower()


def by_short_names(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return changed fields as a dictionary from short name to new value.

    A key of ``changes`` is a short name (``rows``), a path (``array.rows``) or a record
    (``array``). The value of a record is an instance, a mapping, or None to remove the unit. Raises
    :class:`InputError` for unknown names.
    """
    values: dict[str, Any] = {}
    for name, value in changes.items():
        record, dot, leaf = name.partition(".")
        if dot:
            values |= _table(record, {leaf: value})
        elif name in RECORDS and (value is None or isinstance(value, Mapping | RECORDS[name])):
            values |= _table(name, value)
        elif name in OPTIONAL and name not in SHORT and value is False:
            values |= _table(name, None)
        else:
            if name not in EARLIER:
                check_known("field", name, sorted(PATHS))
            values[name] = value
    return values


def _table(record: str, value: Any) -> dict[str, Any]:
    """Return by short names the fields that a table or a record sets; None removes the record."""
    check_known("record", record, RECORDS)
    if value is None:
        return {switch(record): ABSENT[switch(record)]}
    if not isinstance(value, Mapping):
        value = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    shorts = SHORT | EARLIER_PATHS
    for leaf in value:
        if f"{record}.{leaf}" not in shorts:
            fields = [each.name for each in dataclasses.fields(RECORDS[record])]
            check_known(f"field of {record}", leaf, fields)
    present = {SHORT[record]: True} if record in OPTIONAL and record in SHORT else {}
    return present | {shorts[f"{record}.{leaf}"]: each for leaf, each in value.items()}


def changed(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return all field values of a configuration after ``changes``, by short name.

    Older fields are converted (:func:`celosia.arch.choices.convert_older_fields`). If ``changes``
    removes a unit, the unit's other fields get their values in :data:`ABSENT`. Raises
    :class:`InputError` if older and newer fields contradict each other.
    """
    check_agreement(changes)
    after = convert_older_fields({**values, **changes})
    for record in OPTIONAL:
        unit = switch(record)
        if unit in changes and not changes[unit]:
            for each in dataclasses.fields(RECORDS[record]):
                short = SHORT[f"{record}.{each.name}"]
                after[short] = changes.get(short, ABSENT[short])
    return after
