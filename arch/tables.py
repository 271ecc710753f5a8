"""Tables of things that are known by name, such as configurations and chips, in TOML files."""

import tomllib
from pathlib import Path
from typing import Any

_OWN = Path(__file__).parent


def read_table(path: Path) -> dict[str, dict[str, Any]]:
    """Return the values of each entry of a file of this project, by the entry's name.

    One that is ``like`` another of the file has that one's values where it tells none.
    """
    tables: dict[str, dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))

    def values(name: str) -> dict[str, Any]:
        own = {key: value for key, value in tables[name].items() if key != "like"}
        return (values(tables[name]["like"]) if "like" in tables[name] else {}) | own

    return {name: values(name) for name in tables}


def own_table(name: str) -> dict[str, dict[str, Any]]:
    """Return one of the tables beside this module."""
    return read_table(_OWN / f"{name}.toml")
