"""Known survivors of mutation campaigns, and the reasons why no bench detects them."""

import functools
import re
import tomllib
from pathlib import Path


def reason(unit: str, mutant: str) -> str | None:
    """Return the recorded reason why no bench detects a mutant, or None if no reason is recorded.

    ``mutant`` is a text: the change, and the source files and lines of the changed cell. Line
    numbers are ignored.
    """
    change, _, sources = re.sub(r"(\.py):\d+", r"\1", mutant).rpartition(" of ")
    files = ", ".join(dict.fromkeys(sources.split(", ")))
    return reasons().get(unit, {}).get(f"{change} of {files}")


@functools.cache
def reasons() -> dict[str, dict[str, str]]:
    """Return the recorded reasons why mutants survive, by unit and mutant.

    The result is a dictionary from a unit's name to another dictionary, from mutant to reason. A
    mutant is described by a text: its change, and the source files of the changed cell.
    """
    path = Path(__file__).with_name("survivors.toml")
    units = tomllib.loads(path.read_text(encoding="utf-8"))
    return {
        unit: {mutant: reason for reason, mutants in groups.items() for mutant in mutants}
        for unit, groups in units.items()
    }
