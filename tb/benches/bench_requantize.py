"""Bench of ``celosia.hdl.arithmetic.requantize.Requantizer``, with random operands.

Parameters: ``count``, the number of results that are compared; ``stall``, the probability in each
cycle that ``en`` is 0, which stops the unit.
"""

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge
from numpy.typing import NDArray

from celosia.hdl.arithmetic.requantize import Requantizer, bounds_layout, bounds_of
from celosia.sim.requantize import requantize
from celosia.tb.benches.common import parameters, rng, start_clock

NAMES = ("x", "bias", "multiplier", "shift", "zero", "low", "high")
BOUNDS = NAMES[4:]
_EDGES = (0, 1, -1, 2, -2, 3, -3, (1 << 30), -(1 << 30), (1 << 31) - 1, -(1 << 31))


def random_operands(generator: np.random.Generator, count: int) -> dict[str, NDArray[np.int64]]:
    """Return random operands of the requantizer: a dictionary from input name to values [count].

    ``NAMES`` lists the inputs. Values of all bit lengths and extreme values occur. Many results
    before rounding are midway between two integers or next to this point.
    """

    def words() -> NDArray[np.int64]:
        random = generator.integers(-(1 << 31), 1 << 31, count) >> generator.integers(0, 32, count)
        return np.where(generator.random(count) < 0.2, generator.choice(_EDGES, count), random)

    wide = generator.random(count) < 0.5
    low = np.where(wide, -(1 << 15), generator.choice([-128, -8, 0, 77], count))
    high = np.where(wide, (1 << 15) - 1, generator.choice([77, 127], count))
    bounds = np.sort(generator.integers(-(1 << 15), 1 << 15, (2, count)), axis=0)
    bounds >>= generator.integers(0, 16, count)
    near = generator.random(count) < 0.3
    low, high = np.where(near, bounds, [low, high])
    operands = {
        "x": words(),
        "bias": words(),
        "multiplier": words(),
        "shift": generator.integers(-31, 31, count),
        "zero": generator.integers(-128, 128, count),
        "low": low,
        "high": high,
    }
    # Typical of a compiler: a normalized multiplier, and a result of about 16 bits.
    usual = generator.random(count) < 0.5
    operands["multiplier"][usual] = generator.integers(1 << 30, 1 << 31, usual.sum())
    lengths = np.ceil(np.log2(np.abs(operands["x"][usual]) + 1)).astype(np.int64)
    operands["shift"][usual] = np.clip(14 - lengths, -31, 0)
    operands["bias"][usual] >>= 10
    for place in np.flatnonzero(generator.random(count) < 0.25):
        _make_marginal(operands, place, generator)
    # Halved, these are ties of every length, or next to one.
    for place in np.flatnonzero(generator.random(count) < 0.25):
        amount = int(generator.integers(32))
        odd = 2 * int(generator.integers(1 << min(14, max(0, 30 - amount)))) + 1
        beside = int(generator.choice([0, 0, 1, 2])) << int(generator.integers(amount + 1))
        tie = int(generator.choice([-1, 1, -1])) * (odd << amount) + beside
        operands["x"][place] = np.clip(tie, -(1 << 31), (1 << 31) - 1)
        operands["bias"][place], operands["multiplier"][place] = 0, 1 << 30
        operands["shift"][place] = -amount
    free = iter(generator.permutation(count).tolist())
    for amount in [*range(1, 32)] * 2:
        # Negative ties, and sums that differ from one in any single lost bit.
        for beside in [0, *(1 << bit for bit in range(amount - 1))]:
            odd = 2 * int(generator.integers(1 << (31 - amount))) + 1
            values = {"x": (odd << (amount - 1)) - beside, "bias": 0, "shift": -amount}
            values |= {"multiplier": -(1 << 31), "zero": 0, "low": -(1 << 15), "high": 32767}
            place = next(free, 0)
            for name, value in values.items():
                operands[name][place] = value
    # A bound at the result, or near it.
    result = requantize(**{**operands, "low": -(1 << 15), "high": (1 << 15) - 1})
    at = np.clip(result + generator.integers(-3, 4, count), -(1 << 15), (1 << 15) - 1)
    for name, other, further in (("low", "high", np.maximum), ("high", "low", np.minimum)):
        near = generator.random(count) < 0.1
        operands[name] = np.where(near, at, operands[name])
        operands[other] = np.where(near, further(operands[other], at), operands[other])
    return operands


def _make_marginal(
    operands: dict[str, NDArray[np.int64]], place: int, generator: np.random.Generator
) -> None:
    """Make a product that is just rounded up, or just not, so that each of its bits matters."""
    left = int(generator.integers(15)) * int(generator.integers(2))
    factor = int(generator.integers(1 << 15)) * 2 + 1
    factor = factor >> int(generator.integers(15)) | 1
    modulus = 1 << (31 - left)
    wanted = modulus // 2 - int(generator.integers(3))
    inverse = pow(factor, -1, modulus) * wanted % modulus
    inverse -= modulus * int(generator.integers(2))
    names = generator.permutation(["x", "multiplier"])
    for name, value in zip(names, (factor * int(generator.choice([-1, 1])), inverse), strict=True):
        operands[name][place] = value
    operands["bias"][place] = generator.choice([0, 0, 1, -1])
    operands["x"][place] -= operands["bias"][place]
    operands["shift"][place] = left
    operands["zero"][place] = 0
    operands["low"][place], operands["high"][place] = -(1 << 15), (1 << 15) - 1


@cocotb.test()
async def results_are_exact(dut: Any) -> None:
    """Every result equals the golden model's result, and appears at the right time.

    A result must appear ``latency`` cycles after its operands, not counting cycles in which ``en``
    is 0.
    """
    settings = parameters()
    generator = rng()
    count, stall = settings["count"], settings["stall"]
    operands = random_operands(generator, count)
    expected = requantize(**operands).tolist()
    await start_clock(dut)
    unit = Requantizer()
    done = enabled = 0
    while done < count:
        en = generator.random() >= stall
        dut.en.value = int(en)
        for name in NAMES[:4]:
            # Inputs while the unit is stalled, or after the end, are ignored.
            value = int(operands[name][enabled]) if en and enabled < count else 0
            port = getattr(dut, name)
            port.value = value & ((1 << len(port)) - 1)
        behind = enabled - unit.bounds_delay
        if en and 0 <= behind < count:
            bounds = bounds_of(*(int(operands[name][behind]) for name in BOUNDS))
            dut.bounds.value = bounds_layout().const(bounds).as_bits()
        else:
            dut.bounds.value = 0
        await FallingEdge(dut.clk)
        if en:
            if enabled >= unit.latency:
                assert dut.y.value.to_signed() == expected[done], {
                    name: int(values[done]) for name, values in operands.items()
                }
                done += 1
            enabled += 1
        await RisingEdge(dut.clk)
