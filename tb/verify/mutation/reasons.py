"""Known survivors of mutation campaigns, and the reasons why no bench detects them."""

import functools
import tomllib
from pathlib import Path


@functools.cache
def reasons() -> dict[str, dict[str, str]]:
    """Return the reason of every known survivor: a dictionary by unit, then by mutant."""
    path = Path(__file__).with_name("survivors.toml")
    units = tomllib.loads(path.read_text(encoding="utf-8"))
    return {
        unit: {mutant: reason for reason, mutants in groups.items() for mutant in mutants}
        for unit, groups in units.items()
    }
