"""The vector engine: random commands under both simulators, exact and in the stated cycles."""

import numpy as np
import pytest

from arch.config import PRESETS, Config
from hdl.vector import VectorEngine
from tb.configurations import UNITS, random_config
from tb.simulate import simulate

SMALLEST = Config(
    rows=1,
    cols=1,
    lanes=1,
    mem_width=8,
    operand_width=2,
    max_k=40,
    acc_width=12,
    scratchpad_bytes=256,
    scratchpad_banks=1,
    acc_depth=2,
    param_depth=1,
    table_slots=1,
    mask_depth=2,
    max_row=1,
)
"""As small as every field can be for random programs."""


def run_case(config, simulator, seed, *, steps=25, stall=0.3):
    config = config.replace(mem_addr_width=16)
    simulate(
        VectorEngine(config),
        bench="tb.bench_vector",
        simulator=simulator,
        seed=seed,
        parameters={"config": config.fields(), "programs": 2, "steps": steps, "stall": stall},
    )


@pytest.mark.parametrize(
    ("simulator", "changes"),
    [
        ("verilator", {"trace": True}),
        ("icarus", {"table_slots": 64, "param_depth": 9, "mask_depth": 40}),
        ("icarus", dict.fromkeys(UNITS, False)),
    ],
)
def test_odd_configurations(simulator, changes):
    run_case(PRESETS["odd"].replace(**changes), simulator, seed=1)


def test_smallest_configuration():
    run_case(SMALLEST, "icarus", seed=2, steps=60)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_configurations(seed):
    run_case(random_config(np.random.default_rng(seed)), "icarus", seed)
