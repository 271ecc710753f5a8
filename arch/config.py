"""The one configuration that every circuit, golden model and program is made from."""

import dataclasses
import json
import tomllib
from dataclasses import dataclass
from typing import Any, Self

from celosia.arch import short_names
from celosia.arch.errors import InputError
from celosia.arch.fields import Fields
from celosia.arch.micro.config import check_micro
from celosia.arch.rules import check_ranges, check_rules, check_types
from celosia.arch.short_names import OPTIONAL, PATHS, RECORDS


@dataclass(frozen=True, kw_only=True)
class Config(Fields):
    """Everything that a generated accelerator depends on, in records.

    An absent unit's record is None. Raises :class:`InputTypeError` where a field has the wrong
    type and :class:`InputError` where its value, or its value together with another field's,
    cannot work.
    """

    def __post_init__(self) -> None:
        """Check every field alone, then the rules over several."""
        values = self.flat()
        check_types(values)
        check_ranges(values)
        check_rules(self)
        if self.micro is not None:
            check_micro(self, values)

    @classmethod
    def of(cls, **fields: Any) -> Self:
        """Return a configuration of default values but for some fields; see :meth:`replace`."""
        return cls().replace(**fields)

    def flat(self) -> dict[str, Any]:
        """Return every field's value by its short name (``celosia.arch.short_names``)."""
        return short_names.flat(self)

    def read(self, name: str) -> Any:
        """Return the value of a field by its short name or path, or of a derived size by name."""
        if name in PATHS:
            return self.flat()[name]
        value: Any = self
        for part in name.split("."):
            value = None if value is None else getattr(value, part)
        return value

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed.

        Fields are named by short names (``acc_depth=64``) or paths (``**{"accumulators.depth":
        64}``); a whole record may be given as such, as a mapping of its fields, or as None, which
        leaves a unit out. Raises :class:`InputError` where a field is unknown.
        """
        values = short_names.changed(self.flat(), short_names.by_short_names(changes))
        check_types(values)
        return type(self)(**short_names.records(values))

    def override(self, assignments: list[str]) -> Self:
        """Return a copy changed by texts such as ``rows=12`` or ``array.rows=12``.

        Raises :class:`InputError` where a text is malformed or its field is unknown.
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

    def fields(self) -> dict[str, Any]:
        """Return the records as mappings, None for absent units; :meth:`of` takes them again."""
        return dataclasses.asdict(self)

    def to_toml(self) -> str:
        """Return the configuration as TOML text: a table for each record that is present."""
        present = {name: value for name in RECORDS if (value := getattr(self, name)) is not None}
        lines = [f"name = {_toml(self.name)}\n"]
        base = {"softmax", "activation"} | ({"fused"} if self.micro is None else set())
        absent = [name for name in OPTIONAL if name in base and name not in present]
        lines += [f"{name} = false\n" for name in absent]
        for name, record in present.items():
            lines += [f"\n[{name}]\n"]
            for field in dataclasses.fields(record):
                lines.append(f"{field.name} = {_toml(getattr(record, field.name))}\n")
        return "".join(lines)


def _toml(value: Any) -> str:
    """Return a value as TOML writes it."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value).lower()
