"""Random bursts at the external memory port, seen from the accelerator."""

import numpy as np

from tests.support.sdram import untouched


async def send(ctx, stream, payload, rng, stall):
    """Offer a payload until it is taken."""
    while rng.random() < stall:
        await ctx.tick()
    ctx.set(stream.payload, payload)
    ctx.set(stream.valid, 1)
    while not (await ctx.tick().sample(stream.ready))[2]:
        pass
    ctx.set(stream.valid, 0)


async def receive(ctx, stream, rng, stall):
    """Take a payload."""
    while rng.random() < stall:
        await ctx.tick()
    ctx.set(stream.ready, 1)
    while True:
        _, _, valid, payload = await ctx.tick().sample(stream.valid, stream.payload)
        if valid:
            ctx.set(stream.ready, 0)
            return payload


def random_bench(config, rng, bursts=40, lengths=(1, 2, 4, 21), near=1 << 9):
    """Return a bench that compares random bursts with bytes, and these, by their addresses.

    Half of them lie within the first ``near`` bytes; ``lengths`` are those of bursts (words).
    """
    size = config.mem_bytes
    memory = {}

    async def bench(ctx, unit):
        for _ in range(bursts):
            last = int(rng.choice(lengths)) - 1
            spread = int(rng.choice([near, 1 << config.mem_addr_width]))
            addr = int(rng.integers((spread // size) - last)) * size
            stall = float(rng.choice([0, 0.4, 0.95]))
            if rng.integers(2):
                await write(ctx, unit, addr, last, stall)
            else:
                await read(ctx, unit, addr, last, stall)
        await ctx.tick().repeat(4)  # until the last data are at the pins

    async def write(ctx, unit, addr, last, stall):
        await send(ctx, unit.write.request, {"addr": addr, "last": last}, rng, stall)
        for word in range(last + 1):
            value, mask = int.from_bytes(rng.bytes(size), "little"), int(rng.integers(1 << size))
            await send(ctx, unit.write.data, {"data": value, "mask": mask}, rng, stall)
            for byte in range(size):
                if mask >> byte & 1:
                    memory[addr + word * size + byte] = value >> 8 * byte & 0xFF
        while not (await ctx.tick().sample(unit.write.written))[2]:
            pass

    async def read(ctx, unit, addr, last, stall):
        await send(ctx, unit.read.request, {"addr": addr, "last": last}, rng, stall)
        for word in range(last + 1):
            found = await receive(ctx, unit.read.data, rng, stall)
            for byte in range(size):
                place = addr + word * size + byte
                expected = memory.get(place, untouched(place))
                assert found >> 8 * byte & 0xFF == expected, hex(place)

    return bench, memory


def reading_in_order(config, words, bursts):
    """Return benches that read bursts of so many words one behind the other, without stalls.

    With them comes the list of the cycles in which words were taken.
    """
    taken = []

    async def ask(ctx, unit):
        rng = np.random.default_rng(0)
        for burst in range(bursts):
            request = {"addr": burst * words * config.mem_bytes, "last": words - 1}
            await send(ctx, unit.read.request, request, rng, 0)

    async def take(ctx, unit):
        ctx.set(unit.read.data.ready, 1)
        cycle = 0
        while len(taken) < words * bursts:
            valid = (await ctx.tick().sample(unit.read.data.valid))[2]
            cycle += 1
            if valid:
                taken.append(cycle)

    return (ask, take), taken
