"""Bench of ``ElementwiseUnit``: random commands, random stalls on every stream.

Parameters: ``lanes``; ``commands``, how many; ``beats``, of each command at most; ``stall``, the
probability of a stall on each stream in each cycle.
"""

from typing import Any

import cocotb
import numpy as np

from hdl.functions.elementwise import input_layout, output_layout
from sim.elementwise import add_sum, mul_product
from tb.bench import StreamDriver, StreamMonitor, pack, parameters, rng, start_clock, unpack


def random_command(generator: np.random.Generator) -> dict[str, int]:
    """Return the value of every port beside the streams."""
    command = {"multiply": int(generator.integers(2))}
    for name in ("i", "r"):
        command[f"{name}_zero"] = int(generator.choice([-128, 0, 127, generator.integers(-99, 99)]))
        command[f"{name}_multiplier"] = int(
            generator.choice([1 << 30, (1 << 31) - 1, generator.integers(1 << 30, 1 << 31)])
        )
        command[f"{name}_shift"] = -int(generator.choice([0, 1, generator.integers(32)]))
    return command


def expected_values(command: dict[str, int], i: Any, r: Any) -> Any:
    """Return the golden model's values of a command, in the shape of ``i`` and ``r``."""
    i, r = i - command["i_zero"], r - command["r_zero"]
    if command["multiply"]:
        return mul_product(i, r)
    factors = [(command[f"{name}_multiplier"], command[f"{name}_shift"]) for name in ("i", "r")]
    return add_sum(i, r, factors[0], factors[1])


@cocotb.test()
async def values_are_exact(dut: Any) -> None:
    """Every value equals the golden model's; mask and last come with their beat."""
    given = parameters()
    generator = rng()
    lanes = given["lanes"]
    await start_clock(dut)
    driver = StreamDriver(dut, "i", generator, stall=given["stall"])
    monitor = StreamMonitor(dut, "o", generator, stall=given["stall"])
    for _ in range(given["commands"]):
        command = random_command(generator)
        for name, value in command.items():
            port = getattr(dut, name)
            port.value = value & ((1 << len(port)) - 1)
        beats = int(generator.integers(1, given["beats"] + 1))
        i, r = generator.integers(-128, 128, (2, beats, lanes))
        mask = generator.integers(0, 1 << min(lanes, 62), beats)
        last = generator.integers(0, 2, beats)
        values = expected_values(command, i, r)
        payloads = [
            {"i": i[k].tolist(), "r": r[k].tolist(), "mask": int(mask[k]), "last": int(last[k])}
            for k in range(beats)
        ]
        cocotb.start_soon(driver.send([pack(input_layout(lanes), beat) for beat in payloads]))
        results = [unpack(output_layout(lanes), bits) for bits in await monitor.receive(beats)]
        assert results == [
            {"value": values[k].tolist(), "mask": int(mask[k]), "last": int(last[k])}
            for k in range(beats)
        ]
