"""Random configurations: every field has every kind of value."""

from collections import defaultdict

import numpy as np

from celosia.arch.choices import CHOICES
from celosia.arch.protection import UNITS as PROTECTED
from celosia.arch.rules import ARRAYS, MULTIPLIER_WIDTHS
from celosia.arch.short_names import PATHS
from celosia.tb.verify.configurations import UNITS, random_config

DRAWN = 700


def test_every_field_is_drawn() -> None:
    values_by_field = defaultdict(set)
    for seed in range(DRAWN):
        for name, value in random_config(np.random.default_rng(seed)).flat().items():
            values_by_field[name].add(value)
    same = {name for name in PATHS if len(values_by_field[name]) < 2}
    assert same == {"name", "micro", "requantizer"}
    flags = {name for name, values in values_by_field.items() if values <= {False, True}}
    assert {*UNITS} - {"operand_gating"} | {
        "packed_slots",
        "packed_cache",
        "block_exponents",
    } <= flags
    for name, values in (
        ("array", set(ARRAYS)),
        *((choice, set(options)) for choice, options in CHOICES.items()),
        ("multiplier_width", set(MULTIPLIER_WIDTHS)),
        ("mem_width", {8 << place for place in range(7)}),
        ("scratchpad_banks", {1 << place for place in range(5)}),
    ):
        assert values_by_field[name] == values
    assert max(values_by_field["rows"]) > 12
    assert max(values_by_field["cols"]) > 12
    for name in ("low_rows", "row_factors", "sparse_lanes", "weight_group", "pre_depth"):
        assert max(values_by_field[name]) > 3, name
    assert {0, 65536} < values_by_field["watchdog"]
    drawn = {
        part.partition("=")[0] for text in values_by_field["protect"] for part in text.split(",")
    }
    assert drawn == {"none", "detect", "correct", *PROTECTED}
