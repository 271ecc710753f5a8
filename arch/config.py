"""The one configuration that every circuit, golden model and program is made from."""

import dataclasses
import json
import tomllib
from dataclasses import dataclass, fields
from typing import Any, Self

from celosia.arch.errors import InputError, check_known
from celosia.arch.fields import Fields
from celosia.arch.rules import check_ranges, check_rules, check_types


@dataclass(frozen=True, kw_only=True)
class Config(Fields):
    """Everything that a generated accelerator depends on.

    Raises :class:`InputTypeError` where a field has the wrong type and :class:`InputError` where
    its value, or its value together with another field's, cannot work.
    """

    def __post_init__(self) -> None:
        """Check every field alone, then the rules over several."""
        check_types(self)
        check_ranges(self)
        self._check_rules()

    def _check_rules(self) -> None:
        check_rules(self)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed.

        Raises :class:`InputError` where a field is unknown.
        """
        known = {field.name for field in fields(self) if field.init}
        for name in changes:
            check_known("field", name, sorted(known))
        return dataclasses.replace(self, **changes)

    def override(self, assignments: list[str]) -> Self:
        """Return a copy changed by texts such as ``rows=12`` or ``norm=false``.

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
        """Return every field's value by name; the constructor takes them again."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.init}

    def to_toml(self) -> str:
        """Return the configuration as TOML text, each field with its meaning's name and value."""
        lines = []
        for name, value in self.fields().items():
            quoted = isinstance(value, str)
            text = json.dumps(value, ensure_ascii=False) if quoted else str(value).lower()
            lines.append(f"{name} = {text}\n")
        return "".join(lines)
