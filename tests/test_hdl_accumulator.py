"""The accumulator memory against a dictionary of rows."""

import numpy as np
import pytest
from amaranth.hdl import Signal

from celosia.arch.config import Config
from celosia.arch.presets import PRESETS
from celosia.arch.protection import check_bits, code_columns
from celosia.hdl.engines import accumulator_memory
from celosia.hdl.memory import stored_bank
from celosia.hdl.memory.accumulator import ACC_SETTLE
from tests.support.flipped_ram import FlippedRam
from tests.support.longer import longer
from tests.support.simulation import run_bench


@pytest.fixture(
    params=[
        {},
        {"registered": True},
        {"sleep": True},
        {"registered": True, "sleep": True},
        {"protect": "correct"},
        {"registered": True, "protect": "correct"},
        {"registered": True, "sleep": True, "protect": "correct"},
    ],
    ids=lambda fields: " and ".join(fields),
)
def small(request: pytest.FixtureRequest) -> Config:
    """Return a small configuration."""
    return PRESETS["odd"].replace(lanes=1, max_k=1, **request.param)


def run_case(
    config: Config,
    adds: list[int | None],
    drains: list[int | None],
    seed: int,
    flips: int = 0,
) -> int:
    """Accumulate and drain a row each per cycle, or none, and compare every drained row.

    A drain is presented until it is taken; between two uses of a row, other than two additions,
    the test keeps ``ACC_SETTLE`` cycles, or ``acc_settle`` behind an addition.
    With ``flips`` 1 or 2 so many bits of each sum come wrong from the memory: one is corrected, two
    are told, and then no row is compared. Returns the cycles in which a drain waited.
    """
    rng = np.random.default_rng(seed)
    dut = accumulator_memory(config)
    checks = check_bits(code_columns(config.accumulators.width, "correct"))
    half = 1 << (config.accumulators.width - 1)
    acc = np.zeros((config.accumulators.depth, config.array.cols), dtype=np.int64)  # [rows, cols]
    expected: list[np.ndarray] = []
    received: list[np.ndarray] = []
    waited = told = 0

    async def bench(ctx):
        nonlocal waited, told
        pending = list(drains)
        due: list[int] = []
        last_add: dict[int, int] = {}
        last_drain: dict[int, int] = {}
        pipeline = list(adds) + [None] * (len(drains) + 8)
        cycle = 0
        while pipeline or due:
            row = pipeline.pop(0) if pipeline else None
            if row is not None and cycle - last_drain.get(row, -ACC_SETTLE) < ACC_SETTLE:
                row = None
            drain = pending[0] if pending else None
            added, drained = (
                last_add.get(drain, -ACC_SETTLE - 2),
                last_drain.get(drain, -ACC_SETTLE),
            )
            early = cycle - added < config.acc_settle or cycle - drained < ACC_SETTLE
            if drain is not None and early:
                drain = None
            if drain is not None and drain == row:
                row = None
            values = rng.integers(-half, half, config.array.cols)
            if flips:
                size = config.accumulators.width + checks
                wrong = [rng.permutation(size)[:flips] + n * size for n in range(config.array.cols)]
                ctx.set(FlippedRam.flip, sum(1 << int(bit) for bit in np.concatenate(wrong)))
                told |= ctx.get(dut.errors)
            ctx.set(dut.accumulate.valid, row is not None)
            ctx.set(dut.accumulate.addr, row or 0)
            ctx.set(dut.accumulate.data, values.tolist())
            ctx.set(dut.drain.request.valid, drain is not None)
            ctx.set(dut.drain.request.payload, drain or 0)
            ready = ctx.get(dut.drain.request.ready)
            assert ctx.get(dut.drain.valid) == (cycle in due)
            if cycle in due:
                due.remove(cycle)
                received.append(np.array([ctx.get(value) for value in dut.drain.data]))
            if drain is not None and ready:
                expected.append(acc[drain].copy())
                acc[drain] = 0
                last_drain[drain] = cycle
                due.append(cycle + config.acc_latency)
                pending.pop(0)
            elif drain is not None:
                assert row is not None
                assert row % 2 == drain % 2
                waited += 1
            elif pending and pending[0] is None:
                pending.pop(0)
            if row is not None:
                acc[row] = (acc[row] + values + half) % (2 * half) - half
                last_add[row] = cycle
            await ctx.tick()
            cycle += 1
        assert not pending

    run_bench(dut, bench)
    assert len(received) == len([row for row in drains if row is not None])
    if flips < 2:
        np.testing.assert_array_equal(np.array(received), np.array(expected))
    assert told == flips
    return waited


@pytest.mark.parametrize(
    ("depth", "cols", "acc_width"), [(2, 1, 24), (7, 4, 17), *longer((5, 3, 20), (16, 2, 32))]
)
def test_random_rows(small: Config, depth: int, cols: int, acc_width: int) -> None:
    config = small.replace(acc_depth=depth, cols=cols, acc_width=acc_width)
    rng = np.random.default_rng(depth)
    adds = [int(row) if row < depth else None for row in rng.integers(0, depth + 1, 400)]
    drains = [int(row) if row < depth else None for row in rng.integers(0, 2 * depth, 60)]
    waited = run_case(config, adds, [*drains, *range(depth)], depth)
    assert (waited > 0) == (depth > 2)


@pytest.mark.parametrize(
    "pattern",
    [
        *([3], [2, 3], [0, 2, 4], [1, 1, 2], [0, 1, 2, 3]),
        *longer([2, 4], [0, 1, 2], [0, 1, 2, 3, 4]),
    ],
)
def test_every_distance_between_two_uses_of_a_row(small: Config, pattern: list[int]) -> None:
    run_case(small.replace(acc_depth=6), (pattern * 20)[:40], [None] * 50 + list(range(6)), 1)


def test_a_row_is_zero_after_it_was_drained(small: Config) -> None:
    run_case(small.replace(acc_depth=4), [1, 1, 1], [None] * 8 + [1] * 2 + [None] * 4 + [1], 2)


def test_a_drain_runs_at_full_rate_beside_an_accumulation(small: Config) -> None:
    assert run_case(small.replace(acc_depth=64), list(range(32)), list(range(33, 64)), 3) <= 1


@pytest.mark.parametrize("flips", [1, 2])
@pytest.mark.parametrize("sleep", [False, True])
def test_a_wrong_bit_of_each_sum_is_corrected_and_two_are_told(
    monkeypatch: pytest.MonkeyPatch, flips: int, sleep: bool
) -> None:
    monkeypatch.setattr(FlippedRam, "flip", Signal(256))
    monkeypatch.setattr(stored_bank, "Ram", FlippedRam)
    config = PRESETS["odd"].replace(
        lanes=1, max_k=1, acc_depth=6, cols=3, registered=True, sleep=sleep, protect="correct"
    )
    rng = np.random.default_rng(flips)
    adds = [int(row) if row < 6 else None for row in rng.integers(0, 7, 200)]
    run_case(config, adds, [None] * 30 + [0, 3, None, 2, 5] + list(range(6)), 4, flips)
