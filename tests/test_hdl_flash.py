"""The flash's reader at the pins of a chip that watches its data sheet's times."""

import dataclasses
import re

import numpy as np
import pytest
from amaranth.sim import Simulator

from celosia.arch.flash import BOARD_NS, CHIPS, READS, RESET, WAKE
from celosia.hdl.flash.reader import FlashReader
from celosia.tb.devices.data_sheets import FLASH
from celosia.tb.devices.flash import FlashModel, FlashModes

IS25LP128F, W25Q128JV = CHIPS["IS25LP128F"], CHIPS["W25Q128JV"]
PINS = ("sck", "cs_n", "dq_o", "dq_oe")


def read(chip, clock, lanes, requests, stall=0.0, *, modes=None, sheet=None, wrong=0, **timing):
    """Return what a reader, with times of its own, brings of requests, the model, and cycles.

    ``sheet`` are figures other than the data sheet's.
    """
    unit = FlashReader(chip, clock, lanes)
    unit.timing = dataclasses.replace(unit.timing, **timing)
    rng = np.random.default_rng(lanes)
    contents = rng.bytes(300)
    soon = {"vsl": 1.0, "rst": 2.0, "res1": 1.0} if chip.power_us == 1.0 else {}
    figures = dataclasses.replace(FLASH[chip.name], **soon | (sheet or {}))
    options = {"quad": lanes == 4, "way": BOARD_NS, "modes": modes, "wrong": wrong}
    model = FlashModel(figures, clock, contents, **options)
    answers, cycles = [], []

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
            answers.append(data)
            cycles.append(passed)
        await ctx.tick().repeat(60)

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(pins, background=True)
    simulator.add_testbench(bench)
    simulator.run()
    return answers, contents, model, cycles


def quick(chip):
    """Return a chip that starts in no time, as its data sheet does in ``read``."""
    return dataclasses.replace(chip, power_us=1.0, reset_us=2.0, wake_us=1.0)


QUICK = quick(IS25LP128F)


@pytest.mark.parametrize(
    ("chip", "clock", "lanes", "stall"),
    [
        (QUICK, 88e6, 1, 0),
        (QUICK, 25e6, 4, 0.9),
        (quick(W25Q128JV), 60e6, 4, 0),
        (QUICK, 133e6, 4, 0.5),
    ],
)
def test_bytes_come_in_order_and_every_time_is_kept(chip, clock, lanes, stall):
    requests = [(0, 1), (0x10, 40), (280, 30), (3, 5)]
    answers, contents, model, cycles = read(chip, clock, lanes, requests, stall)
    padded = contents + b"\xff" * 100
    assert answers == [padded[addr : addr + count] for addr, count in requests]
    assert model.commands[-len(requests) :] == [(READS[lanes], addr) for addr, _ in requests]
    codes = [code for code, _ in model.commands[: -len(requests)]]
    starts = [WAKE, *RESET, *([chip.exit_4byte] if chip.exit_4byte else [])]
    assert [code for code in codes if code != 0xFF] == starts
    if not stall:
        half, count = chip.at(clock).half, 40
        assert cycles[1] == 80 * half + (half > 1) + count * (16 * half // lanes + (half == 1))


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("tSHSL", {"deselect": 1}),
        ("a command before the chip is awake", {"wake": 10}),
        ("a command before the chip is awake", {"power": 1}),
        ("tCLH", {"half": 1}),
    ],
)
def test_a_time_that_is_too_short_is_found(rule, changes):
    chip = dataclasses.replace(QUICK, max_mhz=20, deselect=100)
    with pytest.raises(AssertionError, match=rf"^{rule}"):
        read(chip, 88e6, 1, [(0, 1), (1, 1)], sheet={"frequency": 20, "shsl": 100}, **changes)


def test_data_that_come_back_late_are_not_taken_for_right():
    answers, contents, _, _ = read(QUICK, 88e6, 1, [(0, 20)], sheet={"clqv": 60})
    assert answers != [contents[:20]]


def test_a_byte_that_comes_with_a_wrong_bit_is_not_corrected():
    answers, contents, _, _ = read(QUICK, 88e6, 1, [(0, 20)], wrong=8)
    assert answers == [bytes(byte ^ 8 for byte in contents[:20])]


W25Q256JV, P25Q32U = CHIPS["W25Q256JV"], CHIPS["P25Q32U"]
LEFT = {
    "power-on": (W25Q128JV, {}),
    "addresses of four bytes": (W25Q256JV, {"four_bytes": True}),
    "four bytes at power-on": (W25Q256JV, {"four_bytes": True, "four_at_power_on": True}),
    "four bytes at power-on, ISSI": (QUICK, {"four_bytes": True, "four_at_power_on": True}),
    "upper half": (W25Q256JV, {"upper": 1}),
    "reads on two lines": (W25Q128JV, {"continuous": 2}),
    "reads on two lines, four bytes": (W25Q256JV, {"continuous": 2, "four_bytes": True}),
    "reads on four lines": (QUICK, {"continuous": 4}),
    "reads on four lines, four bytes": (W25Q256JV, {"continuous": 4, "four_bytes": True}),
    "power-down": (P25Q32U, {"asleep": True}),
    "power-down, four bytes": (W25Q256JV, {"asleep": True, "four_bytes": True}),
    "other dummy clocks": (QUICK, {"dummy": 6}),
}
FOUR = {
    "commands on four lines": (QUICK, {"commands": 4}),
    "commands on four lines, power-down": (P25Q32U, {"commands": 4, "asleep": True}),
    "commands and reads on four lines": (QUICK, {"commands": 4, "continuous": 4, "dummy": 6}),
}


@pytest.mark.parametrize(
    ("name", "lanes"),
    [*((name, lanes) for name in LEFT for lanes in (1, 4)), *((name, 4) for name in FOUR)],
)
def test_whatever_mode_the_flash_was_left_in_is_ended(name, lanes):
    chip, modes = (LEFT | FOUR)[name]
    requests, left = [(0x10, 24), (3, 5)], FlashModes(**modes)
    answers, contents, model, _ = read(quick(chip), 50e6, lanes, requests, modes=left)
    assert answers == [contents[0x10:0x28], contents[3:8]]
    assert model.modes == FlashModes(four_at_power_on=modes.get("four_at_power_on", False))


def test_lanes_are_one_or_four():
    with pytest.raises(ValueError, match=r"^Lanes of a flash must be 1 or 4, not 2$"):
        FlashReader(W25Q128JV, 50e6, 2)


def test_a_clock_is_needed():
    message = "Clock of W25Q128JV must be above 0 MHz, not 0 MHz"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        W25Q128JV.at(0)
