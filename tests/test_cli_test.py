"""Every unit's bench by the command, on a small machine, one with everything, and an odd one."""

import json

import pytest

from celosia.tb.benches.catalog import BENCHES
from celosia.tb.machine.toolchain import missing_tools

CONFIGURATIONS = {
    "tiny": ("--config", "tiny"),
    "lanes": (
        *("--config", "tiny", "--set", "lanes=2", "--set", "rotary=true"),
        *("--set", "argmax=true", "--set", "weight_depth=7"),
    ),
    "odd": ("--config", "odd"),
}
GROUPS = 9
"""Parts of the units. Three run here, each on another configuration; long tests run all parts on
all configurations."""
ENGINES = ("matrix_engine", "vector_engine", "accelerator", "axi4_bridge")
"""Units whose own tests run the same benches on many machines; here long tests do."""

PARTS = [
    [name for name in list(BENCHES)[first::GROUPS] if name not in ENGINES]
    for first in range(GROUPS)
]

pytestmark = pytest.mark.skipif(bool(missing_tools("icarus")), reason="Icarus is not installed")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "units"),
    [
        *(
            pytest.param(
                name, units, marks=[pytest.mark.long] * (group != 4 * own), id=f"{name}-{group}"
            )
            for own, name in enumerate(CONFIGURATIONS)
            for group, units in enumerate(PARTS)
        ),
        *(
            pytest.param(name, ENGINES, marks=pytest.mark.long, id=f"{name}-engines")
            for name in CONFIGURATIONS
        ),
    ],
)
def test_every_unit_passes(celosia, name, units) -> None:
    command = ("test", *CONFIGURATIONS[name], "--sim", "icarus", *units, "--json")
    code, output, errors = celosia(*command)
    report = json.loads(output)
    assert (code, report["failed"]) == (0, 0), errors
    assert [row["unit"] for row in report["benches"]] == list(units)
    assert report["tests"] >= len(units)
    assert all(row["cycles"] > 50 for row in report["benches"])
    assert report["cycles"] == sum(row["cycles"] for row in report["benches"])


def test_tests_and_cycles_are_told_below_the_table(celosia) -> None:
    words = ("test", "table", "softmax", "--sim", "icarus")
    code, output, _ = celosia(*words)
    assert code == 0
    assert "0 of 2 benches failed; 3 tests, " in output
