"""Configuration fields with named options, and conversion of the older fields that they replace.

For example, ``multiplier`` replaces ``packed`` and ``pass_width``. Configurations may still have
older fields.
"""

from collections.abc import Mapping
from typing import Any

from celosia.arch.errors import InputError, InputTypeError
from celosia.arch.formats import OPERAND_BITS

_PASSES = {
    "single": (False, OPERAND_BITS),
    "shared": (True, OPERAND_BITS),
    "nibbles": (False, OPERAND_BITS // 2),
    "shared_nibbles": (True, OPERAND_BITS // 2),
    "adders": (False, 1),
}
"""Shared multipliers, and bits of a weight in a pass, of each multiplier."""
_OPERANDS = {
    **{f"int{width}": (width, False, False) for width in range(2, OPERAND_BITS + 1)},
    **{f"affine{width}": (width, True, False) for width in range(2, OPERAND_BITS + 1)},
    f"affine{2 * OPERAND_BITS}": (OPERAND_BITS, True, True),
}
"""Width of an operand (bits), zero points, and INT16 rows, of each type of operands."""
_BOTH = ((False, False), (True, False), (False, True), (True, True))
_GATING = dict(zip(("none", "operands", "idle", "all"), _BOTH, strict=True))
"""Gating of zero operands, and of unused columns and lanes, of each kind of gating."""
_OBSERVE = dict(zip(("none", "counters", "trace", "all"), _BOTH, strict=True))
"""Counters, and ports of a trace, of each kind of observation."""

_TABLES = (
    ("array", "multiplier", ("packed", "pass_width"), _PASSES),
    ("array", "operands", ("operand_width", "zero_points", "wide_operands"), _OPERANDS),
    ("array", "gating", ("operand_gating", "sleep"), _GATING),
    ("control", "observe", ("counters", "trace"), _OBSERVE),
)
CHOICES: dict[str, dict[str, dict[str, Any]]] = {
    choice: {name: dict(zip(earlier, values, strict=True)) for name, values in options.items()}
    for _, choice, earlier, options in _TABLES
}
"""Values of the earlier fields for each value of a choice, by the choice's short name."""

RECORDS = {choice: record for record, choice, _, _ in _TABLES}
"""The record of each choice."""

EARLIER = {name: choice for _, choice, earlier, _ in _TABLES for name in earlier}
"""The choice that replaced each earlier field, by short name."""

EARLIER_PATHS = {f"{RECORDS[choice]}.{name}": name for name, choice in EARLIER.items()} | {
    "array.wide": "wide_operands"
}
"""Short names of the earlier fields, by their places in records."""


def convert_older_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the field values of a configuration, with older fields converted to newer fields.

    ``values`` maps short names of fields to values. A newer field's value stands for values of
    older fields (:data:`CHOICES`); an older field in ``values`` replaces one of them. Raises
    :class:`InputError` if the result fits no value of the newer field.
    """
    after = {name: value for name, value in values.items() if name not in EARLIER}
    for choice, options in CHOICES.items():
        asked = {name: value for name, value in values.items() if EARLIER.get(name) == choice}
        # A choice of the wrong type stays as it is, and is refused with all other values.
        if asked and isinstance(after[choice], str):
            after[choice] = _option(choice, options, options.get(after[choice], {}) | asked)
    return after


def check_agreement(changes: Mapping[str, Any]) -> None:
    """Raise :class:`InputError` if ``changes`` has an older field that contradicts a newer field.

    ``changes`` maps short names of fields to new values. For example, ``packed`` true contradicts
    ``multiplier`` ``single``, which means ``packed`` false (:data:`CHOICES`).
    """
    for name, value in changes.items():
        choice = EARLIER.get(name, "")
        option = CHOICES[choice].get(str(changes[choice]), {}) if choice in changes else {}
        if name in option and option[name] != value:
            raise InputError(
                f"Field {choice} {_shown(changes[choice])} has {name} {_shown(option[name])}, but "
                f"{name} is {_shown(value)}; write only {choice}"
            )


def _option(choice: str, options: dict[str, dict[str, Any]], asked: dict[str, Any]) -> str:
    for name, value in asked.items():
        admitted = list(dict.fromkeys(each[name] for each in options.values()))
        if isinstance(value, bool) != isinstance(admitted[0], bool):
            kind = "true or false" if isinstance(admitted[0], bool) else "an integer"
            raise InputTypeError(f"Field {name} must be {kind}, not {value!r}")
        if value not in admitted:
            *most, last = map(_shown, sorted(admitted))
            raise InputError(
                f"Field {name} must be {', '.join(most)} or {last}, not {_shown(value)}"
            )
    for option, each in options.items():
        if each == asked:
            return option
    fields = " and ".join(f"{name} {_shown(value)}" for name, value in asked.items())
    raise InputError(f"No {choice} has {fields}; write {choice} as one of {', '.join(options)}")


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else str(value).lower()
