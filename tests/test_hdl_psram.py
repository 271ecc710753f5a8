"""The PSRAM controller at the pins of a chip that watches its data sheet's times."""

import dataclasses
import re

import numpy as np
import pytest
from amaranth.sim import Simulator

from celosia.arch.presets import PRESETS
from celosia.arch.psram import CHIPS, side_by_side
from celosia.hdl.memory.psram.controller import PsramController
from celosia.tb.devices.data_sheets import PSRAM
from celosia.tb.devices.psram import PsramModel
from tests.support.bursts import random_bench, reading_in_order, receive, send

TINY = PRESETS["tiny"]
PINS = ("ck", "ck_n", "cs_n", "reset_n", "dq_o", "dq_oe", "rwds_o", "rwds_oe")
ONE = dataclasses.replace(CHIPS["W955D8MBYA"], vcs_us=1.0)
SHEET = dataclasses.replace(PSRAM["W955D8MBYA"], vcs=1.0)
SMALL = dataclasses.replace(ONE, row_bits=9, col_bits=4)
"""Short rows, so that bursts cross them often."""


def simulate(config, chip, clock, *benches, broken=(), sheet=None, wrong=0, **timing):
    """Run benches on a controller, with times of its own, and a model of its chip; return that.

    The model has the chip's rows and the data sheet's figures else, but for those of ``sheet``;
    ``broken`` are pins that read as 0, ``wrong`` are bits that the chip turns.
    """
    unit = PsramController(config.memory, chip, clock)
    unit.timing = dataclasses.replace(unit.timing, **timing)
    shape = {"rows": 1 << chip.row_bits, "columns": 1 << chip.col_bits}
    figures = dataclasses.replace(SHEET, **shape | (sheet or {}))
    model = PsramModel(figures, clock, dies=chip.dies, wrong=wrong)
    failed = []

    async def pins(ctx):
        while True:
            for part in (0.25, 0.5):
                await ctx.delay(part * 1e-6)
                levels = model.step({name: ctx.get(getattr(unit.pins, name)) for name in PINS})
                for name, value in zip(("dq_i", "rwds_i"), levels, strict=True):
                    ctx.set(getattr(unit.pins, name), 0 if name in broken else value)
            failed.append(ctx.get(unit.failed))
            await ctx.delay(0.25e-6)

    simulator = Simulator(unit)
    simulator.add_clock(1e-6, phase=0)
    simulator.add_testbench(pins, background=True)
    for bench in benches:

        async def testbench(ctx, bench=bench):
            await bench(ctx, unit)

        simulator.add_testbench(testbench)
    simulator.run()
    assert any(failed) == bool(broken)
    return model


def random_bursts(chip, clock, width, **timing):
    """Compare random bursts with bytes in an array; return the model and the bytes."""
    addr_width = min(16, chip.size.bit_length() - 1)
    config = TINY.replace(mem_width=width, mem_addr_width=addr_width)
    rng = np.random.default_rng(width)
    bench, memory = random_bench(config, rng, bursts=25, lengths=(1, 2, 4, 21, 71), near=1 << 11)
    return simulate(config, chip, clock, bench, **timing), memory


CASES = [
    (SMALL, 40e6, 16),
    (dataclasses.replace(SMALL, dies=2), 40e6, 32),
    (dataclasses.replace(SMALL, dies=4), 8e6, 64),
    (ONE, 27e6, 128),
    (side_by_side("W955D8MBYA", 2), 48e6, 32),
]


@pytest.mark.parametrize(("chip", "clock", "width"), CASES)
def test_random_bursts_keep_every_time_of_the_chip(chip, clock, width):
    model, memory = random_bursts(dataclasses.replace(chip, vcs_us=1.0), clock, width)
    assert all(model.memory[place] == value for place, value in memory.items())
    assert model.counts["reads"] > 10
    assert model.counts["writes"] > 10
    collided = model.counts["collisions"] / (model.counts["reads"] + model.counts["writes"] + 1)
    assert collided == 1 if chip.fixed else 0.1 < collided < 0.4


@pytest.mark.parametrize(
    ("chip", "timing", "rule"),
    [
        (SMALL, {"high": 1}, "tRWR"),
        (SMALL, {"reset": 5}, "tRP"),
        (SMALL, {"init": 20}, "awake"),
        (SMALL, {"columns": 64}, "leaves its row"),
        (ONE, {"columns": 64, "sheet": {"csm": 2}}, "tCSM"),
    ],
)
def test_a_controller_that_hurries_is_found_out(chip, timing, rule):
    with pytest.raises(AssertionError, match=rule):
        random_bursts(chip, 40e6, 16, **timing)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"latency": {"0b0001": [6, 166], "0b1110": [4, 83]}}, "RWDS|CS# rises|differ"),
        ({"latency": {"0b0001": [6, 166]}}, "a latency that the chip has not"),
        ({"css": 30}, "tCSS"),
        ({"csh": 40}, "tCSH"),
        ({"cshi": 90}, "tCSHI"),
        ({"setup": 13}, "tIS"),
        ({"hold": 13}, "tIH"),
        ({"ckd": 26}, "tCKD"),
        ({"acc": 160}, "tACC"),
        ({"latency": {"0b0001": [6, 166], "0b1110": [3, 19]}}, "tCK"),
        ({"columns": 8}, "leaves its row|reserved"),
    ],
)
def test_the_model_watches_a_time_of_its_own(change, rule):
    with pytest.raises(AssertionError, match=rule):
        random_bursts(SMALL, 40e6, 16, sheet=change)


def test_a_byte_with_a_wrong_bit_is_found_out():
    with pytest.raises(AssertionError, match="0x"):
        random_bursts(SMALL, 40e6, 16, wrong=2)


def test_data_without_a_strobe_are_told():
    config = TINY.replace(mem_width=16, mem_addr_width=16)

    async def bench(ctx, unit):
        rng = np.random.default_rng(0)
        await send(ctx, unit.read.request, {"addr": 8, "last": 0}, rng, 0)
        await receive(ctx, unit.read.data, rng, 0)
        await ctx.tick().repeat(2)

    simulate(config, ONE, 40e6, bench)
    simulate(config, ONE, 40e6, bench, broken=("rwds_i",))
    fixed = dataclasses.replace(ONE, dies=2)
    simulate(config.replace(mem_width=32), fixed, 40e6, bench)
    with pytest.raises(AssertionError, match=r"CS# rises|differ|RWDS"):
        simulate(config.replace(mem_width=32), fixed, 40e6, bench, broken=("rwds_i",))


@pytest.mark.parametrize(("dies", "width", "cycles"), [(1, 16, 2_277), (2, 32, 2_331)])
def test_reading_in_order_is_bytes_of_all_dies_a_cycle_but_for_commands(dies, width, cycles):
    chip = dataclasses.replace(ONE, dies=dies)
    config = TINY.replace(mem_width=width, mem_addr_width=16)
    words, bursts = 256, 4
    benches, cycles_read = reading_in_order(config, words, bursts)
    simulate(config, chip, 40e6, *benches)
    assert cycles_read[-1] - cycles_read[0] == cycles


@pytest.mark.parametrize(
    ("chip", "config", "clock", "message"),
    [
        (
            ONE,
            {"mem_width": 8},
            40e6,
            "mem_width must be at least 16, a column of 1 W955D8MBYA, not 8",
        ),
        (
            ONE,
            {"mem_width": 128},
            6.5e6,
            "mem_width must be at most 64, which W955D8MBYA moves under one command at 6.5 MHz, "
            "not 128",
        ),
        (
            ONE,
            {"mem_width": 16, "mem_addr_width": 24},
            40e6,
            "mem_addr_width must be at most 22, as W955D8MBYA has 4194304 bytes, not 24",
        ),
        (
            ONE,
            {"mem_width": 16},
            50e6,
            "Clock of a machine with W955D8MBYA must be above 0 and at most 48.78 MHz, not 50 MHz",
        ),
        (
            ONE,
            {"mem_width": 16},
            4e6,
            "Clock of a machine with W955D8MBYA must move a column in 4 microseconds, which 4 MHz "
            "does not",
        ),
    ],
)
def test_refusals(chip, config, clock, message):
    config = TINY.replace(**{"mem_addr_width": 20} | config)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        PsramController(config.memory, chip, clock)


def test_columns_of_three_dies_are_refused():
    with pytest.raises(ValueError, match=r"^Field dies of W955D8MBYA must be a power of two, not"):
        side_by_side("W955D8MBYA", 3)
