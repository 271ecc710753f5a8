"""Sleep: registers that a product does not use stand still, and it takes no cycle."""

import json

import numpy as np
import pytest
from amaranth.hdl import Module, Signal

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.hdl.stream.pipeline import delay, ring
from tests.support.longer import longer
from tests.support.simulation import run_bench


@pytest.mark.parametrize("cycles", [1, 2, 3, 8])
def test_a_ring_is_a_delay(cycles: int) -> None:
    m = Module()
    value, en = Signal(7), Signal()
    wanted, ringed = delay(m, value, cycles, en=en), ring(m, value, cycles, en=en)
    rng = np.random.default_rng(cycles)

    async def bench(ctx) -> None:
        for _ in range(60):
            ctx.set(value, int(rng.integers(128)))
            ctx.set(en, int(rng.random() < 0.7))
            await ctx.tick()
            assert ctx.get(ringed) == ctx.get(wanted)

    run_bench(m, bench)


@pytest.mark.parametrize("changes", [{"array": "tree"}, {"pass_width": 4, "zero_points": False}])
def test_other_arrays_cannot_sleep(changes: dict) -> None:
    fields = {"operand_gating": False, "lanes": 8, **changes}
    with pytest.raises(
        InputError, match=r"^Field gating 'idle' needs array 'systolic' and pass_width 8"
    ):
        Config.of(sleep=True, **fields)


@pytest.mark.slow
@pytest.mark.parametrize("size", ["64x5x1", *longer("64x64x1")])
def test_a_third_of_the_toggles_of_ragged_products_are_gone(celosia, size: str) -> None:
    # The machine without is that of the tests of faults.
    changes = ("--config", "tiny", "--set", "watchdog=1024", "--json")
    code, output, errors = celosia("bench", "gemm", "--toggles", size, *changes)
    assert code == 0, errors
    result = json.loads(output)
    assert result["mismatches"] == 0
    assert result["cycles_awake"] == result["cycles_asleep"]
    rows = {row["unit"]: row for row in result["units"]}
    assert rows["engines"]["awake"] > 10_000
    assert rows["engines"]["fewer"] >= 0.35, rows["engines"]
    assert rows["load"]["fewer"] == 0


def test_a_microcoded_machine_is_refused(celosia) -> None:
    code, output, errors = celosia("bench", "gemm", "--toggles", "--config", "micro", "1x1x1")
    assert (code, output) == (2, "")
    assert "Sleep is for engines, which micro, microcoded, lacks" in errors
