"""Random bursts at the external memory port, seen from the accelerator."""

import numpy as np

from celosia.tb.devices.sdram import untouched


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
            spread = int(rng.choice([near, 1 << config.memory.addr_width]))
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
            burst_word = await receive(ctx, unit.read.data, rng, stall)
            for byte in range(size):
                place = addr + word * size + byte
                expected = memory.get(place, untouched(place))
                assert burst_word >> 8 * byte & 0xFF == expected, hex(place)

    return bench, memory


def crowded_benches(config, rng, addrs, bursts=60, lengths=(1, 2, 5), stall=0.0):
    """Return benches that read and write at once, each burst asked for behind the one before.

    ``addrs`` are the first bytes of bursts; reads are of those below the half of all, which keep
    their contents, writes of the others. With them come the bytes that were written.
    """
    size = config.mem_bytes
    places = sorted(int(addr) for addr in addrs)
    wholes = [len(places) // 2, len(places)]
    asked = {
        half: [
            (places[int(rng.integers(low, high))], int(rng.choice(lengths)) - 1)
            for _ in range(bursts)
        ]
        for half, low, high in (("read", 0, wholes[0]), ("write", wholes[0], wholes[1]))
    }
    words = [
        [(rng.bytes(size), int(rng.integers(1 << size))) for _ in range(last + 1)]
        for _, last in asked["write"]
    ]
    memory = {
        addr + word * size + byte: value[byte]
        for (addr, _), burst in zip(asked["write"], words, strict=True)
        for word, (value, mask) in enumerate(burst)
        for byte in range(size)
        if mask >> byte & 1
    }

    def ask(half):
        async def bench(ctx, unit):
            for addr, last in asked[half]:
                request = getattr(unit, half).request
                await send(ctx, request, {"addr": addr, "last": last}, rng, stall)

        return bench

    async def take(ctx, unit):
        for addr, last in asked["read"]:
            for place in range(addr, addr + (last + 1) * size, size):
                word = await receive(ctx, unit.read.data, rng, stall)
                wanted = bytes(untouched(place + byte) for byte in range(size))
                assert word == int.from_bytes(wanted, "little"), hex(place)

    async def give(ctx, unit):
        for burst in words:
            for value, mask in burst:
                payload = {"data": int.from_bytes(value, "little"), "mask": mask}
                await send(ctx, unit.write.data, payload, rng, stall)

    async def written(ctx, unit):
        for _ in words:
            while not (await ctx.tick().sample(unit.write.written))[2]:
                pass
        await ctx.tick().repeat(4)  # until the last data are at the pins

    return (ask("read"), ask("write"), take, give, written), memory


def reading_in_order(config, words, bursts):
    """Return benches that read bursts of so many words one behind the other, without stalls.

    With them comes the list of the cycles in which words were taken.
    """
    cycles_read = []

    async def ask(ctx, unit):
        rng = np.random.default_rng(0)
        for burst in range(bursts):
            request = {"addr": burst * words * config.mem_bytes, "last": words - 1}
            await send(ctx, unit.read.request, request, rng, 0)

    async def take(ctx, unit):
        ctx.set(unit.read.data.ready, 1)
        cycle = 0
        while len(cycles_read) < words * bursts:
            valid = (await ctx.tick().sample(unit.read.data.valid))[2]
            cycle += 1
            if valid:
                cycles_read.append(cycle)

    return (ask, take), cycles_read
