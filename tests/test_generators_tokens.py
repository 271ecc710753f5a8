"""Tokens of random accesses: cells that are taken in units give those of single cells."""

import numpy as np
import pytest

from celosia.arch.isa import Engine
from celosia.arch.presets import PRESETS
from celosia.generators.program import tokens
from celosia.generators.program.tokens import Access, order
from celosia.sim.regions import Region

CONFIG = PRESETS["small"]


def region(rng: np.random.Generator, unit: int) -> Region:
    """Return a few runs that begin at multiples of a unit and end anywhere."""
    m, stride = int(rng.integers(1, 4)), unit * int(rng.integers(1, 4))
    count = int(rng.integers(1, stride + 1))
    return Region("sp", unit * int(rng.integers(0, 12)), stride, m, count)


@pytest.mark.parametrize("unit", [1, 8, 24])
def test_units_of_cells_give_the_same_tokens(unit, monkeypatch) -> None:
    rng = np.random.default_rng(unit)
    accesses = [
        Access(Engine(rng.integers(0, 4)), [region(rng, unit)], [region(rng, unit)])
        for _ in range(200)
    ]
    dram = Region("dram", 64 * CONFIG.mem_bytes, 0, 1, CONFIG.mem_bytes)
    accesses[-1].reads = [*accesses[-1].reads, dram]
    found = tokens._units(accesses)
    assert found == {"sp": unit, "dram": 64 * CONFIG.mem_bytes}
    made = order(accesses, CONFIG)
    monkeypatch.setattr(tokens, "_units", lambda accesses: {})
    assert made == order(accesses, CONFIG)
