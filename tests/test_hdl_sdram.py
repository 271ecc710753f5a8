"""The SDRAM controller at the pins of a chip that watches its data sheet's times."""

import dataclasses
import re

import numpy as np
import pytest
from amaranth.sim import Simulator

from celosia.arch.presets import PRESETS
from celosia.arch.sdram import CHIPS
from celosia.hdl.memory.sdram.controller import SdramController
from celosia.tb.devices.data_sheets import SDRAM, Time
from celosia.tb.devices.sdram import SdramModel
from tests.support.bursts import (
    crowded_benches,
    random_bench,
    reading_in_order,
    receive,
    send,
)
from tests.support.longer import longer

TINY = PRESETS["tiny"]
IS42S16160G_7, W9825G6KH_6, M12L64322A_5T = (
    CHIPS[name] for name in ("IS42S16160G-7", "W9825G6KH-6", "M12L64322A-5T")
)
PINS = ("cke", "cs_n", "ras_n", "cas_n", "we_n", "ba", "a", "dqm", "dq_o", "dq_oe")


def another(chip, **changes):
    """Return a chip and its data sheet, both with changes: a field, ours and the sheet's value."""
    ours = {name: value for name, (value, _) in changes.items()}
    theirs = {}
    for name, (_, value) in changes.items():
        theirs |= value if isinstance(value, dict) else {_SHEET.get(name, name): value}
    sheet = dataclasses.replace(SDRAM[chip.name], **theirs)
    return dataclasses.replace(chip, **ours), sheet


_SHEET = {"init_us": "power", "refresh_ms": "ref"}
SOON = {"init_us": (1.0, 1.0)}
"""Awake after a microsecond."""
FEW = {"row_bits": (11, {"rows": 2048}), "refreshes": (2048, 2048)}
"""So few rows that the bytes of a bench reach all of them."""
SMALL = another(
    IS42S16160G_7,
    **FEW,
    **SOON,
    col_bits=(5, {"columns": 32}),
    refresh_ms=(2.0, 2.0),
    rc=(75, Time(ns=75)),
    mrd_clocks=(8, {"mrd": Time(clocks=8)}),
)
"""Short rows, so that bursts cross them often."""


def simulate(config, device, clock, *benches, model=None, **timing):
    """Run benches on a controller, with times of its own, and a model of its chip; return that.

    ``device`` is the chip and its data sheet.
    """
    chip, sheet = device
    unit = SdramController(config.memory, chip, clock)
    unit.timing = dataclasses.replace(unit.timing, **timing)
    model = model or SdramModel(sheet, clock)
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
    (another(M12L64322A_5T, **SOON, col_bits=(4, {"columns": 16})), 90e6, 128),
    (
        another(
            W9825G6KH_6,
            **FEW,
            **SOON,
            col_bits=(6, {"columns": 64}),
            rp=(40, Time(ns=40)),
            rrd=(31, Time(ns=31)),
        ),
        60e6,
        32,
    ),
]


def random_bursts(device, clock, width, **timing):
    """Compare random bursts with bytes in an array; return the model and the bytes."""
    config = TINY.replace(mem_width=width, mem_addr_width=16)
    bench, memory = random_bench(config, np.random.default_rng(width))
    return simulate(config, device, clock, bench, **timing), memory


@pytest.mark.parametrize(("device", "clock", "width"), CASES)
def test_random_bursts_keep_every_time_of_the_chip(device, clock, width):
    model, memory = random_bursts(device, clock, width)
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
    slow = {**FEW, **SOON, "col_bits": (5, {"columns": 32}), "rcd": (25, Time(ns=25))}
    device = another(IS42S16160G_7, **slow) if rule == "tRCD" else SMALL
    with pytest.raises(AssertionError, match=rule):
        random_bursts(device, 143e6, 16, **timing)


SLOW = another(
    W9825G6KH_6,
    **FEW,
    **SOON,
    col_bits=(4, {"columns": 16}),
    rrd_clocks=(9, {"rrd": Time(clocks=9)}),
)
"""Banks are opened so seldom that a row is waited for."""
ONE_BANK = [row << 11 | col for row in range(64) for col in (0, 512)]
"""Bytes of a bank of ``IS42S16160G_7``, in two places of each of 64 rows."""


@pytest.mark.parametrize(
    ("device", "clock", "width", "addrs", "lengths"),
    [
        (another(IS42S16160G_7, **SOON), 100e6, 16, ONE_BANK, (1, 2, 5)),
        (another(IS42S16160G_7, **SOON), 143e6, 32, range(0, 1 << 14, 252), (1, 3)),
        (SLOW, 100e6, 16, range(0, 1 << 12, 32), (1, 2, 3)),
    ],
    ids=["one bank", "turns", "rare rows"],
)
def test_bursts_that_wait_for_each_other_keep_every_time(device, clock, width, addrs, lengths):
    config = TINY.replace(mem_width=width, mem_addr_width=17)
    rng = np.random.default_rng(width)
    benches, memory = crowded_benches(config, rng, addrs, 60, lengths)
    model = simulate(config, device, clock, *benches)
    assert {place: model.memory[place] for place in memory} == memory


def test_a_refresh_that_is_urgent_waits_for_columns_that_move():
    device = another(IS42S16160G_7, **SOON, refresh_ms=(12.0, 12.0))
    config = TINY.replace(mem_width=64, mem_addr_width=16)
    model = SdramModel(device[1], 143e6)
    refreshes = []

    async def bench(ctx, unit):
        # A row of 128 words, whose columns stop, but not so long that a refresh is urgent.
        rng, rests = np.random.default_rng(3), 5 * unit.timing.refresh // 2
        await send(ctx, unit.read.request, {"addr": 0, "last": 127}, rng, 0)
        for place in range(128):
            if place == 3:
                await ctx.tick().repeat(rests)
            await receive(ctx, unit.read.data, rng, 0)
            refreshes.append(model.counts[1])
        await ctx.tick().repeat(unit.timing.refresh // 2)
        refreshes.append(model.counts[1])

    simulate(config, device, 143e6, bench, model=model)
    assert refreshes[:121] == [refreshes[0]] * 121
    assert refreshes[-1] >= refreshes[0] + 4


@pytest.mark.parametrize("broken", [{"late": 1}, {"wrong": 0x40}])
def test_a_chip_that_answers_late_or_wrong_is_found_out(broken):
    config = TINY.replace(mem_width=16, mem_addr_width=16)
    bench, _ = random_bench(config, np.random.default_rng(5), bursts=6)
    with pytest.raises(AssertionError, match="0x"):
        simulate(config, SMALL, 100e6, bench, model=SdramModel(SMALL[1], 100e6, **broken))


def test_a_chip_with_more_refreshes_than_rows_gets_them():
    device = another(M12L64322A_5T, **SOON)
    assert device[0].refreshes == 4096
    config = TINY.replace(mem_width=32, mem_addr_width=20)

    async def bench(ctx, _unit):
        await ctx.tick().repeat(6_000)

    model = simulate(config, device, 50e6, bench)
    assert 8 + 120 // 15.625 - 1 <= model.counts[1] <= 8 + 120 // 15.625 + 1


@pytest.mark.parametrize(("bursts", "cycles"), [(4, 4_154), *longer((12, 12_516))])
def test_reading_in_order_is_a_column_a_cycle_but_for_refreshes_and_rows(bursts, cycles):
    device = another(IS42S16160G_7, **SOON)
    config = TINY.replace(mem_width=64, mem_addr_width=24)
    words = 256
    benches, cycles_read = reading_in_order(config, words, bursts)
    simulate(config, device, 100e6, *benches)
    columns = words * bursts * 4
    assert cycles_read[-1] - cycles_read[0] == cycles
    assert columns / (cycles_read[-1] - cycles_read[0]) > 0.97


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
        SdramController(config.memory, IS42S16160G_7, clock)
