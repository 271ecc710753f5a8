"""A memory in two parts is one memory: every word comes back, a cycle later with ``registered``."""

import numpy as np
import pytest

from celosia.hdl.memory.split_ram import WHOLE, SplitRam
from tests.support.simulation import run_bench

SEED = 3


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("depth", [1, 20, WHOLE, WHOLE + 1, WHOLE + 88])
def test_every_word_comes_back(depth: int, registered: bool) -> None:
    """Words of four parts, each written alone, read in any order while others are written."""
    ram = SplitRam(12, depth, part=3, stages=int(registered))
    print(f"seed {SEED}")
    rng = np.random.default_rng(SEED)
    late, kept = 1 + registered, [0] * depth

    async def testbench(ctx) -> None:
        async def write(addr: int, mask: int) -> None:
            value = int(rng.integers(1 << 12))
            ctx.set(ram.write_addr, addr)
            ctx.set(ram.write_data, value)
            ctx.set(ram.write_en, mask)
            bits = sum(7 << 3 * part for part in range(4) if mask >> part & 1)
            kept[addr] = kept[addr] & ~bits | value & bits

        for addr in range(depth):
            await write(addr, 15)
            await ctx.tick()
        wanted: list[int] = []
        ctx.set(ram.read_en, 1)
        for _ in range(4 * depth + 20):
            read, written = (int(place) for place in rng.integers(depth, size=2))
            ctx.set(ram.read_addr, read)
            wanted.append(kept[read])
            # What is read in the cycle of a write to it is undefined.
            await write(written, 0 if read == written else int(rng.integers(16)))
            await ctx.tick()
            if len(wanted) >= late:
                assert ctx.get(ram.read_data) == wanted[-late]

    run_bench(ram, testbench)
