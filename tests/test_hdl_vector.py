"""The vector engine: random commands under both simulators, exact and in the stated cycles."""

import numpy as np
import pytest

from celosia.arch.presets import PRESETS
from celosia.hdl.engines import vector_engine
from celosia.tb.benches.simulate import simulate
from celosia.tb.verify.configurations import UNITS, random_config
from tests.support.configurations import SMALLEST
from tests.support.longer import is_longer, longer


def run_case(config, simulator, seed, *, steps=20, programs=1):
    config = config.replace(mem_addr_width=16)
    simulate(
        vector_engine(config),
        bench="celosia.tb.benches.bench_vector",
        simulator=simulator,
        seed=seed,
        parameters={"config": config.fields(), "programs": programs, "steps": steps, "stall": 0.3},
    )


@pytest.mark.parametrize(
    ("preset", "changes", "simulator"),
    [
        (
            "tiny",
            {"cols": 10, "lanes": 4, "fused": False, "rotary": True, "argmax": True}
            | {"sleep": True},
            "verilator",
        ),
        ("odd", {"table_slots": 64, "param_depth": 9, "lanes": 3, "sleep": True}, "icarus"),
        ("odd", dict.fromkeys(UNITS, False), "icarus"),
        ("tiny", {"scratchpad_align": 4, "lanes": 4, "norm": False}, "icarus"),
        *longer(("tiny", {"registered": True, "lanes": 2, "fused": True}, "icarus")),
    ],
)
def test_presets_with_changes(preset, changes, simulator, request):
    steps = 20 if is_longer(request) else 10
    run_case(PRESETS[preset].replace(**changes), simulator, seed=1, steps=steps)


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        (
            "odd",
            {"cols": 6, "trace": True, "multiplier_width": 16, "bias_width": 12, "pre_depth": 29}
            | {"param_depth": 70},
        ),
        # Three beats a row for four of other instructions, and one of all columns.
        ("odd", {"cols": 12, "lanes": 2, "softmax_lanes": 4, "sleep": True}),
        *longer(
            ("tiny", {"softmax_lanes": 4, "rotary": True, "lanes": 2, "registered": True}),
            ("tiny", {"norm": False}),
        ),
    ],
)
def test_accumulators_as_input(preset, changes, request):
    steps = 20 if is_longer(request) else 10
    run_case(PRESETS[preset].replace(fused=True, **changes), "icarus", seed=4, steps=steps)


@pytest.mark.parametrize(
    ("factors", "changes"),
    [
        (5, {"fused": False, "lanes": 3, "argmax": True}),
        (16, {"registered": True, "softmax_lanes": 6, "bias_width": 20}),
        *longer(
            (1, {}),
            (3, {"registered": True, "rotary": True}),
            (40, {"registered": True, "softmax_lanes": 6, "lanes": 3, "norm": True}),
            (7, {"registered": False, "softmax": True, "lanes": 2}),
        ),
    ],
)
def test_norms_and_softmaxes_that_leave_their_factors(factors, changes, request):
    # Without most units every fourth command is a NORM.
    absent = dict.fromkeys(
        ("softmax", "activation") if "softmax_lanes" not in changes else (), False
    )
    units = {"fused": True, "multiplier_width": 16, "row_factors": factors} | absent
    config = PRESETS["odd"].replace(cols=6, program_depth=8192, **units | changes)
    run_case(config, "icarus", seed=7, steps=24 if is_longer(request) else 12)


@pytest.mark.parametrize("registered", [True, *longer(False)])
def test_rows_whose_tile_columns_are_spaced(registered):
    # Without most units every third command is a DRAIN, and every eighth a spaced one.
    absent = dict.fromkeys(("softmax", "activation"), False)
    units = {"fused": True, "rotary": True, "registered": registered, "acc_depth": 8}
    config = PRESETS["odd"].replace(cols=2, lanes=2, program_depth=8192, **units, **absent)
    run_case(config, "icarus", seed=8, steps=48)


# Two cases have every value; every pair and all three together are in the longer tests.
@pytest.mark.parametrize(
    ("registered", "wide", "factors", "steps"),
    [
        (False, 0, 0, 60),
        (True, 6, 9, 30),
        *longer((True, 0, 0, 60), (False, 6, 0, 60), (False, 0, 9, 60)),
        *longer((True, 6, 0, 60), (True, 0, 9, 60), (False, 6, 9, 60), (True, 6, 9, 60)),
    ],
)
def test_softmaxes_that_are_followed(registered, wide, factors, steps):
    # Without most units a program of 60 steps has about six of them.
    absent = dict.fromkeys(("norm", "activation"), False)
    units = {"fused": True, "registered": registered, "softmax_lanes": wide}
    units |= {"row_factors": factors, "multiplier_width": 16} if factors else {}
    config = PRESETS["odd"].replace(cols=6, program_depth=8192, **units, **absent)
    run_case(config, "icarus", seed=5, steps=steps)


def test_softmaxes_of_more_lanes_that_read_no_accumulators():
    config = PRESETS["odd"].replace(cols=6, lanes=3, softmax_lanes=6, fused=False, norm=False)
    run_case(config.replace(program_depth=8192, activation=False), "icarus", seed=9, steps=16)


def test_polynomials():
    # Without most units every third DRAIN is one.
    absent = dict.fromkeys(("norm", "softmax", "fused"), False)
    config = PRESETS["odd"].replace(
        cols=4, wide_functions=True, operand_width=7, program_depth=8192, **absent
    )
    run_case(config, "icarus", seed=6, steps=48)


def test_smallest_configuration():
    run_case(SMALLEST, "icarus", seed=4, steps=16)


@pytest.mark.parametrize(("seed", "programs"), [(3, 1), *longer((3, 4), (4, 4))])
def test_random_configurations(seed, programs, request):
    config, steps = random_config(np.random.default_rng(seed)), 20 if is_longer(request) else 10
    run_case(config, "icarus", seed, programs=programs, steps=steps)
