"""The load and store engines, under both simulators, their speed."""

import pytest

from celosia.arch.presets import PRESETS
from celosia.hdl.engines import load_engine, store_engine
from celosia.tb.benches.simulate import simulate
from tests.support.longer import is_longer, longer

ENGINES = {"load": load_engine, "store": store_engine}
BYTES = {"rows": 1, "cols": 1, "lanes": 1, "mem_width": 8, "scratchpad_banks": 1}
WIDE = {"mem_width": 128, "scratchpad_banks": 4, "mem_addr_width": 16}
ODD = {"rows": 5, "cols": 3, "lanes": 2, "fused": False, "mem_width": 32}


def run_case(engine, simulator, seed, config, **parameters):
    """Simulate an engine between memories."""
    simulate(
        ENGINES[engine](PRESETS["small"].replace(**config)),
        bench="celosia.tb.benches.bench_load_store",
        simulator=simulator,
        seed=seed,
        parameters={"engine": engine, "config": config, "stall": 0.0} | parameters,
    )


CASES = [
    ("icarus", 1, 0.3, {"scratchpad_bytes": 16384}),
    ("icarus", 2, 0.2, BYTES | {"scratchpad_bytes": 1024}),
    ("icarus", 3, 0.0, WIDE | {"scratchpad_bytes": 65536}),
    ("verilator", 4, 0.5, ODD | {"scratchpad_bytes": 8192}),
    ("icarus", 5, 0.2, ODD | {"scratchpad_bytes": 8192, "registered": True}),
    ("verilator", 6, 0.4, {"scratchpad_bytes": 16384, "registered": True}),
    ("icarus", 8, 0.3, WIDE | {"scratchpad_bytes": 65536, "registered": True}),
]
"""Simulator, seed, share of stalls, configuration."""
SHORT = {"load": (CASES[2], CASES[4]), "store": (CASES[1], CASES[5])}
"""Cases of each engine in the short tests: every width of a port and every simulator occurs."""


@pytest.mark.parametrize(
    ("engine", "case"),
    [
        *((engine, case) for engine, cases in SHORT.items() for case in cases),
        *longer(
            *((engine, case) for engine in SHORT for case in CASES if case not in SHORT[engine])
        ),
    ],
)
def test_rows_arrive(engine, case, request):
    simulator, seed, stall, config = case
    commands = 16 if is_longer(request) else 10
    run_case(engine, simulator, seed, config, commands=commands, stall=stall, latency=20)


@pytest.mark.parametrize("registered", [False, True])
def test_no_word_is_offered_before_its_burst_was_taken(registered):
    config = ODD | {"scratchpad_bytes": 8192, "registered": registered}
    timing = {"latency": 4}
    parameters = {"commands": 2, "shape": (12, 11), "refuse": 0.9, "timing": timing}
    run_case("store", "icarus", 7, config, **parameters)


@pytest.mark.parametrize(
    ("engine", "shape", "registered"),
    [
        ("load", (20, 40), False),
        ("load", (6, 256), True),
        ("load", (1, 5000), False),
        ("store", (6, 256), False),
        ("store", (20, 40), True),
        *longer(
            ("load", (6, 256), False),
            ("load", (20, 40), True),
            ("store", (20, 40), False),
            ("store", (6, 256), True),
            ("store", (1, 5000), False),
        ),
    ],
)
def test_one_word_a_cycle_at_forty_cycles_of_latency(engine, shape, registered):
    m, row_bytes = shape
    words = 4 * m * -(-row_bytes // 16)
    config = WIDE | {"scratchpad_bytes": 65536, "registered": registered}
    timing = {"latency": 40}
    run_case(engine, "icarus", 5, config, commands=4, shape=shape, limit=words + 60, timing=timing)


@pytest.mark.parametrize("engine", ENGINES)
def test_refresh_costs_its_cycles_and_no_more(engine):
    words = 4 * -(-5000 // 16)
    periods = words // 90 + 1
    config = WIDE | {"scratchpad_bytes": 65536}
    timing = {"latency": 40, "refresh_period": 100, "refresh_cycles": 10}
    limit = words + 60 + 10 * periods
    run_case(engine, "icarus", 5, config, commands=4, shape=(1, 5000), limit=limit, timing=timing)
