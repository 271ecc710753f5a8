"""The configuration from which every circuit, golden model and program is made."""

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from celosia.arch import short_names
from celosia.arch.choices import CHOICES, EARLIER
from celosia.arch.errors import InputError
from celosia.arch.fields import Fields
from celosia.arch.isa import DEFINITIONS, Definition
from celosia.arch.micro.config import CONSTANTS, check_micro
from celosia.arch.rules import check_ranges, check_rules, check_types
from celosia.arch.short_names import OPTIONAL, PATHS, RECORDS


@dataclass(frozen=True, kw_only=True)
class Config(Fields):
    """The parameters of one accelerator: one record (dataclass) for each unit of the machine.

    The record of a unit that the machine lacks is None. Raises :class:`InputTypeError` if a field
    has the wrong type, and :class:`InputError` if a field's value is out of range or contradicts
    another field.
    """

    def __post_init__(self) -> None:
        """Check the type and range of every field, then the rules between fields."""
        values = self.flat()
        check_types(values)
        check_ranges(values)
        check_rules(self)
        if self.micro is not None:
            check_micro(self, {name: self.read(name) for name in CONSTANTS})

    @classmethod
    def of(cls, **fields: Any) -> Self:
        """Return the default configuration with some fields changed; see :meth:`replace`."""
        return cls().replace(**fields)

    def flat(self) -> dict[str, Any]:
        """Return a dictionary from each field's short name to the field's value.

        Short names are defined in ``celosia.arch.short_names``.
        """
        return short_names.flat(self)

    def read(self, name: str) -> Any:
        """Return the value of a configuration field, or of a size derived from fields.

        ``name`` is a field's short name (``acc_depth``), a field's path (``accumulators.depth``) or
        a property of this class (``line_bytes``). The result is None if a path names a field of a
        unit that the machine lacks.
        """
        if name in PATHS:
            return short_names.value(self, name)
        if name in EARLIER:
            return CHOICES[EARLIER[name]][short_names.value(self, EARLIER[name])][name]
        value: Any = self
        for part in name.split("."):
            value = None if value is None else getattr(value, part)
        return value

    def replace(self, **changes: Any) -> Self:
        """Return a copy of the configuration with some fields changed.

        A change names a field (``acc_depth=64``, or its path in ``**{"accumulators.depth": 64}``)
        or a record, whose value is an instance, a mapping, or None to remove the unit. Raises
        :class:`InputError` for unknown names.
        """
        values = short_names.changed(self.flat(), short_names.by_short_names(changes))
        check_types(values)
        return type(self)(**short_names.records(values))

    def override(self, assignments: list[str]) -> Self:
        """Return a copy of the configuration, changed by texts ``FIELD=VALUE``.

        FIELD is a field's short name or path, such as ``array.rows``. VALUE is TOML; other text is
        a string. Raises :class:`InputError` if a text has another form or its field is unknown.
        """
        changes: dict[str, Any] = {}
        for assignment in assignments:
            name, equals, text = assignment.partition("=")
            if not equals or not assignment.isprintable():
                raise InputError(f"An override must look like FIELD=VALUE, not {assignment!r}")
            try:
                changes[name] = tomllib.loads(f"value = {text}")["value"]
            except (tomllib.TOMLDecodeError, RecursionError):
                changes[name] = text
        return self.replace(**changes)

    @property
    def instructions(self) -> list[Definition]:
        """List of the definitions of all instructions that the machine has."""
        return [
            definition
            for definition in DEFINITIONS.values()
            if definition.unit is None or self.read(definition.unit)
        ]

    def fields(self) -> dict[str, Any]:
        """Return the configuration as nested dictionaries, by record name and field name.

        A record's entry is None if the machine lacks the record's unit. The entry ``name`` is the
        configuration's name. ``Config.of(**fields)`` makes an equal configuration from the result.
        """
        return dataclasses.asdict(self)

    def to_toml(self) -> str:
        """Return the configuration as TOML text: a table for each record that is present."""
        present = {name: value for name in RECORDS if (value := getattr(self, name)) is not None}
        lines = [f"name = {_toml(self.name)}\n"]
        base = {"softmax", "activation"} | ({"fused"} if self.micro is None else set())
        absent = [name for name in OPTIONAL if name in base and name not in present]
        lines += [f"{name} = false\n" for name in absent]
        return "".join(lines) + tables(present)


def tables(records: Mapping[str, Any]) -> str:
    """Return TOML text with one table for each record; ``records`` maps table names to records."""
    lines = []
    for name, record in records.items():
        lines += [f"\n[{name}]\n"]
        for field in dataclasses.fields(record):
            lines.append(f"{field.name} = {_toml(getattr(record, field.name))}\n")
    return "".join(lines)


def _toml(value: Any) -> str:
    """Return a value as TOML writes it."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value).lower()
