"""The flash's reader at the pins of a chip that watches its data sheet's times."""

import dataclasses
import re

import numpy as np
import pytest
from amaranth.sim import Simulator

from arch.flash import CHIPS, READS, WAKE
from hdl.flash.reader import FlashReader
from tests.support.flash import FlashModel

IS25LP128F, W25Q128JV = CHIPS["IS25LP128F"], CHIPS["W25Q128JV"]
PINS = ("sck", "cs_n", "dq_o", "dq_oe")


def read(chip, clock, lanes, requests, stall=0.0, wrong=None, **timing):
    """Return what a reader, with times of its own, brings of requests, the model, and cycles."""
    unit = FlashReader(chip, clock, lanes)
    unit.timing = dataclasses.replace(unit.timing, **timing)
    rng = np.random.default_rng(lanes)
    contents = rng.bytes(300)
    model = FlashModel(wrong or chip, clock, contents, quad=lanes == 4)
    found, cycles = [], []

    async def pins(ctx):
        while True:
            values = {name: ctx.get(getattr(unit.pins, name)) for name in PINS}
            ctx.set(unit.pins.dq_i, model.step(values))
            await ctx.tick()

    async def bench(ctx):
        for addr, count in requests:
            ctx.set(unit.i.payload, {"addr": addr, "last": count - 1})
            ctx.set(unit.i.valid, 1)
            while not (await ctx.tick().sample(unit.i.ready))[2]:
                pass
            ctx.set(unit.i.valid, 0)
            data, passed = b"", 0
            while len(data) < count:
                ready = rng.random() >= stall
                ctx.set(unit.o.ready, ready)
                _, _, valid, byte = await ctx.tick().sample(unit.o.valid, unit.o.payload)
                passed += 1
                data += bytes([byte]) * (valid and ready)
            ctx.set(unit.o.ready, 0)
            found.append(data)
            cycles.append(passed)
        await ctx.tick().repeat(60)

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(pins, background=True)
    simulator.add_testbench(bench)
    simulator.run()
    return found, contents, model, cycles


QUICK = dataclasses.replace(IS25LP128F, power_us=1.0)


@pytest.mark.parametrize(
    ("chip", "clock", "lanes", "stall"),
    [(QUICK, 88e6, 1, 0), (QUICK, 25e6, 4, 0.9), (W25Q128JV, 60e6, 4, 0), (QUICK, 133e6, 4, 0.5)],
)
def test_bytes_come_in_order_and_every_time_is_kept(chip, clock, lanes, stall):
    requests = [(0, 1), (0x10, 40), (280, 30), (3, 5)]
    found, contents, model, cycles = read(chip, clock, lanes, requests, stall)
    padded = contents + b"\xff" * 100
    assert found == [padded[addr : addr + count] for addr, count in requests]
    assert model.commands == [(WAKE, 0)] + [(READS[lanes], addr) for addr, _ in requests]
    if not stall:
        half, count = chip.at(clock).half, 40
        assert cycles[1] == 80 * half + (half > 1) + count * (16 * half // lanes + (half == 1))


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("tSHSL", {"deselect": 1}),
        ("a command before the chip is awake", {"wake": 1}),
        ("a command before the chip is awake", {"power": 1}),
        ("tCLH", {"half": 1}),
    ],
)
def test_a_time_that_is_too_short_is_found(rule, changes):
    chip = dataclasses.replace(QUICK, max_mhz=20, deselect=100)
    with pytest.raises(AssertionError, match=rf"^{rule}"):
        read(chip, 88e6, 1, [(0, 1), (1, 1)], **changes)


def test_data_that_come_back_late_are_not_taken_for_right():
    late = dataclasses.replace(QUICK, valid=60)
    found, contents, _, _ = read(QUICK, 88e6, 1, [(0, 20)], wrong=late)
    assert found != [contents[:20]]


def test_lanes_are_one_or_four():
    with pytest.raises(ValueError, match=r"^Lanes of a flash must be 1 or 4, not 2$"):
        FlashReader(W25Q128JV, 50e6, 2)


def test_a_clock_is_needed():
    message = "Clock of W25Q128JV must be above 0 MHz, not 0 MHz"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        W25Q128JV.at(0)
