"""Bench of the bridges from a memory port to a bus: random bursts to a memory on the bus.

Reads must return the right words, and writes must change the right bytes.
"""

# Parameters:
# - config: all fields of the configuration
# - model: the memory's name in MODELS
# - bursts: the numbers of read bursts and of write bursts
# - stall: the probability in each cycle that a channel pauses, on either side of the bridge
# - reader_stall, writer_stall (optional): the probabilities in each cycle that the bench accepts no
#   word read, and that it offers no word to write; by default ``stall``
# - words (optional): the number of words in each burst, by default random
# - limit (optional): the largest number of cycles for all bursts of a test together
# - broken (optional): the share of the memory, at the highest addresses, that answers with errors
# - errors (optional): ``broken`` of one more test

from itertools import pairwise
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.arch.config import Config
from celosia.arch.latency import BURST_BOUNDARY, burst_words
from celosia.hdl.ports import MemoryWritePort, burst_layout
from celosia.tb.benches.common import StreamDriver, StreamMonitor, parameters, rng, start_clock
from celosia.tb.benches.slow_memory import MODELS
from celosia.tb.machine.packing import pack

SIZE = 1 << 16
"""External memory (bytes): one half is read, the other written."""
CUTS = (1, 2, 3, 5, 9, 17, 31, 32, 33, 64, 65)
"""Words of one burst each; a bridge may split it into shorter ones, of 32 words on Wishbone."""

SLOW = 0.75
"""Probability that a slow reader pauses."""
WORDS = 32
"""Words of bursts that a Wishbone bridge never splits."""

Burst = tuple[int, int]
"""Byte address, and number of words."""


def random_burst(config: Config, random: np.random.Generator, low: int, words: int) -> Burst:
    """Return a random burst in half of the memory: a pair of byte address and number of words.

    ``low`` is the half's first address. If ``words`` is 0, the number of words is random. A burst
    never crosses a multiple of ``BURST_BOUNDARY`` bytes, but often begins or ends there.
    """
    width = config.mem_bytes
    longest = burst_words(config.memory)
    count = min(longest, int(words)) or int(random.choice([longest, random.integers(longest) + 1]))
    page = low + int(random.integers(SIZE // 2 // BURST_BOUNDARY)) * BURST_BOUNDARY
    room = BURST_BOUNDARY - count * width
    offset = int(random.choice([0, room, int(random.integers(room + 1))])) // width * width
    return page + offset, count


class Surroundings:
    """Test environment of a bus bridge: driver of its memory port, and a memory on the bus."""

    def __init__(self, dut: Any, config: Config, settings: dict[str, Any], random: Any):
        self.dut, self.config, self.random = dut, config, random
        self.stall = settings["stall"]
        self.reader_stall = settings.get("reader_stall", self.stall)
        self.writer_stall = settings.get("writer_stall", self.stall)
        broken = settings.get("broken")
        self.broken = SIZE if broken is None else int(SIZE * (1 - broken))
        model = MODELS[settings["model"]]
        self.memory = model(
            dut, config, random, self.stall, SIZE, None if broken is None else self.broken
        )
        self.memory.bytes[:] = random.integers(0, 256, SIZE, np.uint8)
        self.written = self.failed = self.cycles = 0

    async def run(self) -> None:
        """Simulate the bus memory in every cycle until the test ends, and count events.

        The attributes ``cycles``, ``written`` and ``failed`` count the cycles, the bursts that the
        bridge reports as written, and the bus errors that it reports.
        """
        while True:
            self.memory.drive()
            await FallingEdge(self.dut.clk)
            self.memory.sample()
            self.written += int(self.dut.write__written.value)
            self.failed += int(self.dut.failed.value)
            self.cycles += 1
            await RisingEdge(self.dut.clk)

    async def read(self, bursts: list[Burst], wanted: list[int] | None = None) -> list[int]:
        """Read the given bursts through the bridge; return the words read, as integers.

        ``bursts`` are pairs (byte address, number of words). If the expected words ``wanted`` are
        given, an assertion fails at the first wrong word.
        """
        layout = burst_layout(self.config.memory)
        requests = [pack(layout, {"addr": addr, "last": words - 1}) for addr, words in bursts]
        cocotb.start_soon(self._driver("read__request").send(requests))
        monitor = StreamMonitor(self.dut, "read__data", self.random, self.reader_stall)

        def check(index: int, word: int) -> None:
            assert wanted is None or word == wanted[index], f"word {index} of {bursts}"

        return await monitor.receive(sum(words for _, words in bursts), check)

    async def write(self, bursts: list[Burst], words: list[tuple[int, int]]) -> None:
        """Write the given bursts, and wait until the bridge has reported all of them as written.

        ``bursts`` lists the bursts as pairs: byte address, and number of words. ``words`` lists a
        pair (data, byte mask) for each word, in the order of the bursts. A byte is written if its
        bit in the mask is 1.
        """
        layout = burst_layout(self.config.memory)
        before = self.written
        requests = [pack(layout, {"addr": addr, "last": count - 1}) for addr, count in bursts]
        shape = (
            MemoryWritePort(self.config.memory).members["data"].signature.members["payload"].shape
        )
        cocotb.start_soon(self._driver("write__request").send(requests))
        payloads = [pack(shape, {"data": data, "mask": mask}) for data, mask in words]
        driver = StreamDriver(self.dut, "write__data", self.random, self.writer_stall)
        await driver.send(payloads)
        while self.written < before + len(bursts):
            await RisingEdge(self.dut.clk)

    def _driver(self, name: str) -> StreamDriver:
        return StreamDriver(self.dut, name, self.random, self.stall)


def content(memory: np.ndarray, config: Config, bursts: list[Burst]) -> list[int]:
    """Return the words in a bus memory at the addresses of ``bursts``, in the bursts' order."""
    width = config.mem_bytes
    return [
        int.from_bytes(memory[place : place + width].tobytes(), "little")
        for addr, words in bursts
        for place in range(addr, addr + words * width, width)
    ]


def check_errors(
    around: Surroundings, reads: list[Burst], writes: list[Burst], answers: list[int]
) -> None:
    """Assert that the bridge has reported all bus errors, and read all other words correctly.

    The bus memory answers accesses at or above the address ``around.broken`` with errors. Some
    words of ``reads`` and all of ``writes`` must be at such addresses. ``answers`` are the words
    that the bridge has returned for ``reads``.
    """
    config = around.config
    places = [addr + word * config.mem_bytes for addr, words in reads for word in range(words)]
    wanted = content(around.memory.bytes, config, reads)
    for addr, word, right in zip(places, answers, wanted, strict=True):
        assert addr >= around.broken or word == right
    reads_failed = sum(addr >= around.broken for addr in places)
    assert all(addr >= around.broken for addr, _ in writes)
    # AXI4 answers a write burst as a whole, and a cycle may have an error in each direction.
    axi = hasattr(around.dut, "m_axi_bresp")
    writes_failed = len(writes) if axi else around.memory.stored
    both = reads_failed + writes_failed
    assert (reads_failed if axi else both) <= around.failed <= both
    assert reads_failed > 0 < writes_failed
    assert int(around.dut.error.value) == 1


@cocotb.test()
async def bursts_arrive(dut: Any) -> None:
    """Simultaneous bursts read and write the memory; later reads return the written words."""
    await _run(dut, parameters())


if "broken" not in parameters():

    @cocotb.test()
    async def bursts_arrive_in_the_other_half(dut: Any) -> None:
        """Bursts are exact, too, if writes go to the lower half and reads to the upper half.

        The consumer of read data is slower than the bus, so that the queue of read data fills.
        """
        slow = {} if "limit" in parameters() else {"reader_stall": SLOW}
        await _run(dut, slow | parameters(), swapped=True)


if not {"broken", "limit"} & parameters().keys():

    @cocotb.test()
    async def requests_come_beside_last_words(dut: Any) -> None:
        """Without pauses, the bridge accepts a request as it takes the last word of another."""
        await _run(dut, parameters() | {"stall": 0.0, "reader_stall": 0.0, "words": 1})

    @cocotb.test()
    async def words_come_more_slowly_than_the_bus_takes_them(dut: Any) -> None:
        """Bursts of 5 words are exact, too, if the bench offers words more slowly than the bus."""
        await _run(dut, parameters() | {"stall": 0.0, "writer_stall": SLOW, "words": 5})


if parameters()["model"] == "wishbone" and not {"broken", "limit"} & parameters().keys():

    @cocotb.test()
    async def directions_take_turns(dut: Any) -> None:
        """Without pauses a burst of n words takes n + 1 cycles; reads and writes alternate."""
        settings = parameters() | {"stall": 0.0, "reader_stall": 0.0, "words": WORDS}
        await _run(dut, settings | {"limit": 2 * settings["bursts"] * (WORDS + 1) + 3 * WORDS})


if "errors" in parameters():

    @cocotb.test()
    async def errors_are_reported(dut: Any) -> None:
        """The bridge reports bus errors of the memory; words without errors are right."""
        await _run(dut, parameters() | {"broken": parameters()["errors"]})


async def _run(dut: Any, settings: dict[str, Any], *, swapped: bool = False) -> None:
    random = rng()
    config = Config.of(**settings["config"])
    # Icarus loses values that a package drives before the simulation has begun.
    await start_clock(dut)
    around = Surroundings(dut, config, settings, random)
    memory, width, count = around.memory.bytes, config.mem_bytes, settings["bursts"]
    cocotb.start_soon(around.run())
    fixed = settings.get("words", 0)
    low, high = (SIZE // 2, 0) if swapped else (0, SIZE // 2)
    cuts = CUTS if count > len(CUTS) and not fixed else ()
    sizes = [*cuts, *[fixed] * (count - len(cuts))]
    reads = [random_burst(config, random, low, words) for words in random.permutation(sizes)]
    writes = [random_burst(config, random, high, words) for words in random.permutation(sizes)]
    wanted = memory.copy()
    words = []
    for addr, length in writes:
        for place in range(addr, addr + length * width, width):
            data = random.bytes(width)
            mask = random.integers(0, 2, width) if random.random() < 0.5 else np.ones(width)
            for index in np.nonzero(mask)[0]:
                wanted[place + index] = data[index]
            bits = sum(1 << int(index) for index in np.nonzero(mask)[0])
            words.append((int.from_bytes(data, "little"), bits))
    start = around.cycles
    writing = cocotb.start_soon(around.write(writes, words))
    # Reads and writes use different addresses, so that each word is known.
    known = content(memory, config, reads) if "broken" not in settings else None
    words_read = await around.read(reads, known)
    await writing
    cycles = around.cycles - start
    dut._log.info(f"{len(words_read)} words read and {len(words)} written in {cycles} cycles")
    if "limit" in settings:
        assert cycles <= settings["limit"], f"{cycles} cycles, at most {settings['limit']} expected"
        if settings["model"] == "wishbone":
            # Both directions compete for the bus until one of them is nearly done.
            turns = around.memory.turns[: len(around.memory.turns) * 3 // 4]
            assert all(turn != after for turn, after in pairwise(turns)), "unfair"
    if "broken" in settings:
        check_errors(around, reads, writes, words_read)
        return
    await RisingEdge(dut.clk)
    np.testing.assert_array_equal(memory, wanted)
    await around.read(writes, content(wanted, config, writes))
    assert around.written == len(writes)
    assert around.failed == int(dut.error.value) == 0
    assert around.memory.loaded == sum(words for _, words in reads + writes)
    assert around.memory.stored == len(words)
