"""Bench of ``Requantizer``: random operands and parameters, random pauses.

Parameters: ``count``, results that are compared; ``stall``, the probability that ``en`` is 0 in a
cycle.
"""

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge
from numpy.typing import NDArray

from hdl.arithmetic.requantize import Requantizer, bounds_layout, bounds_of
from sim.requantize import requantize
from tb.bench import parameters, rng, start_clock

NAMES = ("x", "bias", "multiplier", "shift", "zero", "low", "high")
BOUNDS = NAMES[4:]
_EDGES = (0, 1, -1, 2, -2, 3, -3, (1 << 30), -(1 << 30), (1 << 31) - 1, -(1 << 31))


def random_operands(generator: np.random.Generator, count: int) -> dict[str, NDArray[np.int64]]:
    """Return ``count`` values of every input: all lengths, edges, ties, 8 and 16-bit bounds."""

    def words() -> NDArray[np.int64]:
        random = generator.integers(-(1 << 31), 1 << 31, count) >> generator.integers(0, 32, count)
        return np.where(generator.random(count) < 0.2, generator.choice(_EDGES, count), random)

    wide = generator.random(count) < 0.5
    low = np.where(wide, -(1 << 15), generator.choice([-128, -8, 0, 77], count))
    high = np.where(wide, (1 << 15) - 1, generator.choice([77, 127], count))
    operands = {
        "x": words(),
        "bias": words(),
        "multiplier": words(),
        "shift": generator.integers(-31, 31, count),
        "zero": generator.integers(-128, 128, count),
        "low": low,
        "high": high,
    }
    # As a compiler chooses them: a normalized multiplier, a result of about 16 bits.
    usual = generator.random(count) < 0.5
    operands["multiplier"][usual] = generator.integers(1 << 30, 1 << 31, usual.sum())
    lengths = np.ceil(np.log2(np.abs(operands["x"][usual]) + 1)).astype(np.int64)
    operands["shift"][usual] = np.clip(14 - lengths, -31, 0)
    operands["bias"][usual] >>= 10
    # Small numbers, halved and shifted by little, are often ties.
    ties = generator.random(count) < 0.3
    operands["x"][ties] >>= 20
    operands["bias"][ties] = 0
    operands["multiplier"][ties] = 1 << 30
    operands["shift"][ties] %= 16
    operands["shift"][ties] *= -1
    return operands


@cocotb.test()
async def results_are_exact(dut: Any) -> None:
    """Every result equals the golden model's, ``latency`` enabled cycles later."""
    given = parameters()
    generator = rng()
    count, stall = given["count"], given["stall"]
    operands = random_operands(generator, count)
    expected = requantize(**operands).tolist()
    await start_clock(dut)
    results: list[int] = []
    enabled = 0
    while len(results) < count:
        en = generator.random() >= stall
        dut.en.value = int(en)
        for name in NAMES[:4]:
            # What comes while the unit stands still, or after the end, is not looked at.
            value = int(operands[name][enabled]) if en and enabled < count else 0
            port = getattr(dut, name)
            port.value = value & ((1 << len(port)) - 1)
        behind = enabled - Requantizer.bounds_delay
        if en and 0 <= behind < count:
            bounds = bounds_of(*(int(operands[name][behind]) for name in BOUNDS))
            dut.bounds.value = bounds_layout().const(bounds).as_bits()
        else:
            dut.bounds.value = 0
        await FallingEdge(dut.clk)
        if en:
            if enabled >= Requantizer.latency:
                results.append(dut.y.value.to_signed())
            enabled += 1
        await RisingEdge(dut.clk)
    assert results == expected
