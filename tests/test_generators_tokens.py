"""Tokens of random accesses: cells that are taken in units give those of single cells."""

import numpy as np
import pytest

from celosia.arch.errors import ProgramError
from celosia.arch.instruction import Instruction
from celosia.arch.isa import Engine, Opcode
from celosia.arch.presets import PRESETS
from celosia.generators.program import tokens
from celosia.generators.program.tokens import Access, insert_tokens, order
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


def test_a_program_of_another_machine_gets_no_tokens() -> None:
    sizes = {"m": 2, "n": 8, "i_stride": 16, "o_stride": 8}
    product = Instruction(Opcode.MATMUL, {"m": 2, "k": 8, "n": 8, "acc_addr": 0})
    program = [product, Instruction(Opcode.NORM, sizes, frozenset({"drain"}))]
    first, second = insert_tokens(program, CONFIG.replace(fused=True))
    assert (first.push, second.pop) == ({Engine.VECTOR}, {Engine.MATRIX})
    message = "^NORM at word .* needs the unit norm, which the configuration leaves out$"
    with pytest.raises(ProgramError, match=message):
        insert_tokens(program, CONFIG.replace(fused=False, norm=False))
