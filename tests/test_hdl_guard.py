"""The guard's account of external memory: outstanding transfers, and waits."""

import pytest

from celosia.arch.presets import PRESETS
from celosia.hdl.memory.guard import MemoryGuard
from tests.support.simulation import run_bench


def run(bench) -> None:
    guard = MemoryGuard(PRESETS["tiny"].memory, bank_bytes=PRESETS["tiny"].bank_bytes)

    async def begun(ctx):
        await ctx.tick()  # its streams are open from the second cycle on
        await bench(ctx, guard)

    run_bench(guard, begun)


@pytest.mark.parametrize("data", [False, True])
def test_a_request_waits_only_where_no_word_comes(data: bool) -> None:
    async def bench(ctx, guard):
        ctx.set(guard.core_read.request.valid, 1)
        ctx.set(guard.core_read.request.p.last, 15)
        ctx.set(guard.core_read.data.ready, 1)
        ctx.set(guard.read.request.ready, 1)
        assert ctx.get(guard.waits) == 0
        await ctx.tick()
        ctx.set(guard.read.request.ready, 0)
        ctx.set(guard.read.data.valid, data)
        for _ in range(15):
            assert ctx.get(guard.waits) == (not data)
            await ctx.tick()

    run(bench)


@pytest.mark.parametrize(
    ("offered", "accepted", "waits"),
    [(0, 0, 0), (0, 1, 0), (1, 1, 0), (1, 0, 1)],
)
def test_a_written_word_waits_only_where_memory_takes_none(offered, accepted, waits) -> None:
    """The next request waits all the time; with no word to give it is the core that is late."""

    async def bench(ctx, guard):
        ctx.set(guard.core_write.request.valid, 1)
        ctx.set(guard.core_write.request.p.last, 15)
        ctx.set(guard.write.request.ready, 1)
        await ctx.tick()
        ctx.set(guard.write.request.ready, 0)
        ctx.set(guard.core_write.data.valid, offered)
        ctx.set(guard.write.data.ready, accepted)
        for _ in range(15):
            assert ctx.get(guard.waits) == waits << 1
            await ctx.tick()
        if offered and accepted:
            # Of the last burst nothing is left but its report.
            await ctx.tick()
            assert ctx.get(guard.waits) == 1 << 1
            ctx.set(guard.write.written, 1)
            assert ctx.get(guard.waits) == 0

    run(bench)
