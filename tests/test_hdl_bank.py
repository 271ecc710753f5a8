"""The bank, against arrays."""

import re

import numpy as np
import pytest

from celosia.hdl.memory.bank import Bank
from tests.support.simulation import run_bench


def run(component, bench):
    """Run a bench on a component."""
    run_bench(component, bench)


@pytest.mark.parametrize("level", ["none", "correct"])
@pytest.mark.parametrize(
    ("line_bytes", "size", "align"),
    [
        (1, 2, 1),
        (1, 32, 1),
        (2, 4, 1),
        (4, 64, 1),
        (16, 64, 1),
        (2, 4, 2),
        (8, 32, 2),
        (16, 64, 4),
        (16, 32, 8),
        (16, 64, 16),
    ],
)
def test_bank_reads_what_was_written(line_bytes, size, align, level):
    rng = np.random.default_rng(line_bytes + size + align)
    bank = Bank(line_bytes, size, level, align)
    content = np.zeros(2 * size, np.uint8)  # twice the same, as accesses wrap around

    async def bench(ctx):
        due = [None, None]
        for _ in range(200):
            reads, writes = rng.random(2) < 0.8
            read_addr, write_addr = (
                int(addr) * align for addr in rng.integers(size // align, size=2)
            )
            line = rng.integers(256, size=line_bytes, dtype=np.uint8)
            count = int(rng.integers(line_bytes + 1))
            ctx.set(bank.read_en, bool(reads))
            ctx.set(bank.read_addr, read_addr)
            ctx.set(bank.write_addr, write_addr)
            lanes = (np.arange(line_bytes) - write_addr) % line_bytes
            ctx.set(
                bank.write_mask, sum(int(b) << i for i, b in enumerate(writes & (lanes < count)))
            )
            ctx.set(bank.write_data, line[lanes].tolist())
            due.append(content[read_addr : read_addr + line_bytes].astype(int) if reads else None)
            if reads and writes:  # what is read and written at once is unknown
                due[-1][(read_addr + np.arange(line_bytes) - write_addr) % size < count] = -1
            await ctx.tick()
            expected = due[-2]
            if expected is not None:
                got = [ctx.get(byte) for byte in bank.read_data]
                known = expected >= 0
                assert np.array(got)[known].tolist() == expected[known].tolist()
            if writes:
                places = (write_addr + np.arange(count)) % size
                content[places] = content[places + size] = line[:count]

    run(bank, bench)


@pytest.mark.parametrize(
    ("line_bytes", "size", "align", "message"),
    [
        (3, 64, 1, "Bank line_bytes must be a power of two of at least 1, not 3"),
        (0, 64, 1, "Bank line_bytes must be a power of two of at least 1, not 0"),
        (8, 8, 1, "Bank size must be a power of two of at least 16, not 8"),
        (8, 48, 1, "Bank size must be a power of two of at least 16, not 48"),
        (8, 64, 0, "Bank align must be a power of two of at least 1, not 0"),
        (8, 64, 3, "Bank align must be a power of two of at least 1, not 3"),
        (8, 64, 16, "Bank line_bytes must be a power of two of at least 16, not 8"),
    ],
)
def test_bank_refuses_sizes(line_bytes, size, align, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Bank(line_bytes, size, align=align)
