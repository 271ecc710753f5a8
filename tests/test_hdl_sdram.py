"""The SDRAM controller at the pins of a chip that watches its data sheet's times."""

import dataclasses
import re

import numpy as np
import pytest
from amaranth.sim import Simulator

from arch.presets import PRESETS
from arch.sdram import CHIPS
from hdl.memory.sdram.controller import SdramController
from tests.support.bursts import random_bench, reading_in_order, receive, send
from tests.support.sdram import SdramModel

TINY = PRESETS["tiny"]
IS42S16160G_7, W9825G6KH_6, M12L64322A_5T = CHIPS.values()
PINS = ("cke", "cs_n", "ras_n", "cas_n", "we_n", "ba", "a", "dqm", "dq_o", "dq_oe")
SMALL = dataclasses.replace(
    IS42S16160G_7, row_bits=11, col_bits=5, init_us=1.0, refresh_ms=2.0, rc=75, mrd=8
)
"""Short rows, so that bursts cross them often."""


def simulate(config, chip, clock, *benches, **timing):
    """Run benches on a controller, with times of its own, and a model of its chip; return that."""
    unit = SdramController(config, chip, clock)
    unit.timing = dataclasses.replace(unit.timing, **timing)
    model = SdramModel(chip, clock)
    rng = np.random.default_rng(1)

    async def pins(ctx):
        while True:
            values = {name: ctx.get(getattr(unit.pins, name)) for name in PINS}
            answer = model.step(values)
            noise = int(rng.integers(1 << 32)) & (1 << chip.data_width) - 1
            ctx.set(unit.pins.dq_i, noise if answer is None else answer)
            await ctx.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(pins, background=True)
    for bench in benches:

        async def testbench(ctx, bench=bench):
            await bench(ctx, unit)

        simulator.add_testbench(testbench)
    simulator.run()
    return model


CASES = [
    (SMALL, 100e6, 64),
    (SMALL, 143e6, 16),
    (dataclasses.replace(M12L64322A_5T, row_bits=11, col_bits=4, init_us=1.0), 90e6, 128),
    (
        dataclasses.replace(W9825G6KH_6, row_bits=11, col_bits=6, init_us=1.0, rp=40, rrd=31),
        60e6,
        32,
    ),
]


def random_bursts(chip, clock, width, **timing):
    """Compare random bursts with bytes in an array; return the model and the bytes."""
    config = TINY.replace(mem_width=width, mem_addr_width=16)
    bench, memory = random_bench(config, np.random.default_rng(width))
    return simulate(config, chip, clock, bench, **timing), memory


@pytest.mark.parametrize(("chip", "clock", "width"), CASES)
def test_random_bursts_keep_every_time_of_the_chip(chip, clock, width):
    model, memory = random_bursts(chip, clock, width)
    assert all(model.memory[place] == value for place, value in memory.items())
    assert model.counts[1] > 8, "there were refreshes between the bursts"


def test_a_burst_that_stops_is_refreshed_within():
    config = TINY.replace(mem_width=32, mem_addr_width=16)
    rng = np.random.default_rng(7)
    words = [int.from_bytes(rng.bytes(4), "little") for _ in range(64)]

    async def bench(ctx, unit):
        pause = 12 * unit.timing.refresh
        await send(ctx, unit.write.request, {"addr": 64, "last": len(words) - 1}, rng, 0)
        for place, word in enumerate(words):
            if place in (1, 30):
                await ctx.tick().repeat(pause)
            await send(ctx, unit.write.data, {"data": word, "mask": 15}, rng, 0)
        await send(ctx, unit.read.request, {"addr": 64, "last": len(words) - 1}, rng, 0)
        for place, word in enumerate(words):
            if place in (0, 7):
                await ctx.tick().repeat(pause)
            assert await receive(ctx, unit.read.data, rng, 0) == word, place

    assert simulate(config, SMALL, 100e6, bench).counts[1] > 40


@pytest.mark.parametrize(
    ("timing", "rule"),
    [
        ({"rcd": 3}, "tRCD"),
        ({"rp": 2}, "tRP"),
        ({"ras": 3, "rc": 5}, "tRAS:"),
        ({"rc": 9}, "tRC:"),
        ({"rfc": 8}, "tRFC"),
        ({"wr": 1}, "tWR"),
        ({"mrd": 1}, "tMRD"),
        ({"init": 100}, "awake"),
        ({"cas": 2}, "CAS latency"),
        ({"refresh": 20000}, "refreshes are late"),
    ],
)
def test_a_controller_that_hurries_is_found_out(timing, rule):
    # A row is accessed three cycles behind the command that opens it, or later.
    chip = dataclasses.replace(SMALL, rcd=25) if rule == "tRCD" else SMALL
    with pytest.raises(AssertionError, match=rule):
        random_bursts(chip, 143e6, 16, **timing)


def test_reading_in_order_is_a_column_a_cycle_but_for_refreshes_and_rows():
    chip = dataclasses.replace(IS42S16160G_7, init_us=1.0)
    config = TINY.replace(mem_width=64, mem_addr_width=24)
    words, bursts = 256, 12
    benches, taken = reading_in_order(config, words, bursts)
    simulate(config, chip, 100e6, *benches)
    columns = words * bursts * 4
    assert taken[-1] - taken[0] == 12_516
    assert columns / (taken[-1] - taken[0]) > 0.97


@pytest.mark.parametrize(
    ("config", "clock", "message"),
    [
        (
            TINY.replace(mem_width=8, mem_addr_width=20),
            100e6,
            "mem_width must be at least 16, the width of IS42S16160G-7, not 8",
        ),
        (
            TINY.replace(mem_width=16, mem_addr_width=26),
            100e6,
            "mem_addr_width must be at most 25, as IS42S16160G-7 has 33554432 bytes, not 26",
        ),
        (
            TINY.replace(mem_width=16, mem_addr_width=20),
            150e6,
            "Clock of IS42S16160G-7 must be above 0 and at most 143 MHz, not 150 MHz",
        ),
        (
            TINY.replace(mem_width=16, mem_addr_width=20),
            1e6,
            "Clock of IS42S16160G-7 must leave time between refreshes, which 1 MHz does not",
        ),
    ],
)
def test_refusals(config, clock, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        SdramController(config, IS42S16160G_7, clock)
