"""Bench of ``celosia.hdl.functions.rotary.RotaryUnit``, with random commands.

Parameters: ``lanes`` and ``operand_width`` of the unit; ``commands``, the number of commands;
``beats``, the largest number of beats of a command; ``stall``, the probability in each cycle that
the input ``en`` is 0.
"""

from collections import deque
from typing import Any

import cocotb
import numpy as np
from amaranth.hdl import signed
from amaranth.lib import data
from cocotb.triggers import FallingEdge, RisingEdge
from numpy.typing import NDArray

from celosia.hdl.functions.rotary import RotaryUnit
from celosia.sim.rotary import ROTARY_FRACTION, rotate, times
from celosia.tb.benches.common import parameters, rng, start_clock
from celosia.tb.machine.packing import pack, unpack

EXTREMES = (-32768, -32767, -1, 0, 1, 32767)


def random_elements(random: np.random.Generator, count: int, width: int) -> NDArray[np.int64]:
    """Return an array [count] of random signed elements of ``width`` bits.

    Elements of all bit lengths occur, and many elements have extreme values.
    """
    half = 1 << (width - 1)
    values = random.integers(-half, half, count) >> random.integers(0, width, count)
    extreme = np.clip(random.choice(EXTREMES, count), -half, half - 1)
    return np.where(random.random(count) < 0.3, extreme, values)


def to_ties(random: np.random.Generator, y: NDArray[np.int64], pairs: NDArray[np.int64]) -> None:
    """Change random lane pairs of ``y`` and ``pairs`` in place, to test the rounding of rotations.

    ``y`` [lanes] has the elements to rotate. ``pairs`` [lanes] has a cosine in each even lane and a
    sine in each odd lane. One rotated element of each changed pair is half-way between two integers
    before rounding, or less than that by one unit in the last place.
    """
    for first in range(0, len(y), 2):
        if random.random() < 0.5:
            continue
        lane = int(random.integers(2))
        y[first + lane] = 1
        # Lane 0 is y0 cosine - y1 sine, lane 1 y0 sine + y1 cosine.
        product = int(y[first + 1 - lane] * pairs[first])
        tie = (1 << (ROTARY_FRACTION - 1)) - int(random.integers(2))
        sine = product - tie if lane else tie - product
        pairs[first + 1] = (sine + (1 << 15)) % (1 << 16) - (1 << 15)


@cocotb.test()
async def results_are_exact(dut: Any) -> None:
    """Every result equals the golden model's result, and appears at the right time.

    A result must appear ``latency`` cycles after its inputs, not counting cycles in which ``en``
    is 0.
    """
    settings, random = parameters(), rng()
    lanes, operand_width = settings["lanes"], settings["operand_width"]
    wide_layout = data.ArrayLayout(signed(16), lanes)
    narrow_layout = data.ArrayLayout(signed(8), lanes)
    await start_clock(dut, rng())
    for _ in range(settings["commands"]):
        multiply, wide = bool(random.integers(2)), bool(random.integers(2))
        zero = int(random.choice([-128, 0, 127, random.integers(-128, 128)]))
        width = 16 if wide else operand_width
        low, high = -(1 << (width - 1)), (1 << (width - 1)) - 1
        dut.times.value, dut.wide.value, dut.r_zero.value = multiply, wide, zero & 0xFF
        # A command's beats push out the rest of the previous command.
        due: deque[list[int] | None] = deque([None] * RotaryUnit.latency)
        for _ in range(int(random.integers(1, settings["beats"] + 1)) + RotaryUnit.latency):
            y, pairs = random_elements(random, lanes, 16), random_elements(random, lanes, 16)
            r = random_elements(random, lanes, 8)
            if not multiply and wide and random.random() < 0.5:
                to_ties(random, y, pairs)
            dut.y.value = pack(wide_layout, y.tolist())
            dut.pairs.value = pack(wide_layout, pairs.tolist())
            dut.r.value = pack(narrow_layout, r.tolist())
            while random.random() < settings["stall"]:
                dut.en.value = 0
                await RisingEdge(dut.clk)
            dut.en.value = 1
            await FallingEdge(dut.clk)
            wanted = due.popleft()
            if wanted is not None:
                assert unpack(wide_layout, int(dut.o.value)) == wanted
            if multiply:
                due.append(times(y, r - zero, low, high, wide=wide).tolist())
            else:
                due.append(rotate(y, pairs, low, high, wide=wide).tolist())
            await RisingEdge(dut.clk)
