"""Read TOML files of named entries, such as configurations and chips."""

import tomllib
from pathlib import Path
from typing import Any

_OWN = Path(__file__).parent


def read_table(path: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of a TOML file: a dictionary from names to dictionaries of values.

    If an entry has ``like = "NAME"``, each value that it does not set is taken from entry NAME.
    """
    tables: dict[str, dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))

    def values(name: str) -> dict[str, Any]:
        own = {key: value for key, value in tables[name].items() if key != "like"}
        return (values(tables[name]["like"]) if "like" in tables[name] else {}) | own

    return {name: values(name) for name in tables}


def own_table(name: str) -> dict[str, dict[str, Any]]:
    """Return the entries of the file ``name``.toml in this module's folder (:func:`read_table`)."""
    return read_table(_OWN / f"{name}.toml")
