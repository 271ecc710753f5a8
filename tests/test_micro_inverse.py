"""Reciprocals and reciprocal square roots in microcode, against the golden models."""

from collections.abc import Callable

import numpy as np
import pytest

from celosia.arch.micro.memory import LINK
from celosia.arch.micro.microcode import assemble
from celosia.arch.presets import PRESETS
from celosia.sim.micro_core import MicroCore
from celosia.sim.micro_decode import signed
from celosia.sim.micro_machine import MicroMachine
from celosia.sim.reciprocal import reciprocal, rsqrt

CONFIG = PRESETS["micro"]
FACTOR, REST, RIGHT, VALUE, X = (
    assemble(CONFIG).registers[name] for name in ("FACTOR", "REST", "RIGHT", "VALUE", "X")
)


def operands(seed: int) -> list[int]:
    """Return integers of every magnitude, powers of two and their neighbours among them."""
    rng = np.random.default_rng(seed)
    random = rng.integers(0, 1 << 63, 600) >> rng.integers(0, 63, 600)
    near = [(1 << exponent) + step for exponent in range(63) for step in (-1, 0, 1)]
    return [value for value in (*map(int, random), *near, (1 << 64) - 1) if value > 0]


def halve(core: MicroCore) -> None:
    """Put the exponent's parity above the fraction, as NORM does."""
    odd = core.registers[RIGHT] & 1
    core.registers[VALUE] = core.registers[VALUE] >> 1 | odd << 31
    core.registers[RIGHT] >>= 1


@pytest.mark.parametrize(
    ("table", "golden", "prepare"),
    [("reciprocal", reciprocal, lambda core: None), ("rsqrt", rsqrt, halve)],
)
def test_inverses(table: str, golden: Callable, prepare: Callable[[MicroCore], None]) -> None:
    machine = MicroMachine(CONFIG)
    core, labels = machine.core, machine.labels
    values = operands(seed := 5)
    for value, *expected in zip(values, *golden(np.array(values, np.uint64)), strict=True):
        core.registers[VALUE], core.registers[REST] = value >> 32, value % (1 << 32)
        core.call(labels["normalize"], LINK)
        prepare(core)
        core.registers[FACTOR] = labels[table]
        core.call(labels["polynomial"], LINK)
        got = [core.registers[X], signed(core.registers[RIGHT])]
        assert got == expected, f"{table} of {value}, seed {seed}"
