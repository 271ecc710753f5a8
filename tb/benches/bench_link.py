"""Bench of the host link: it gets random requests, and its answers must be the golden model's.

Some of the requests are damaged.
"""

# Parameters:
# - config: all fields of the configuration
# - identity: the fields of Identity, which the link answers to the request HELLO
# - timeout: the number of cycles without a byte after which the link drops a request
# - requests: the number of random requests
# - stall: the probability in each cycle that a channel of external memory pauses
# - latency: the largest latency of external memory (cycles)
# - long (optional): the lengths of further reads of memory (bytes)

import itertools
from collections.abc import Iterator
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.arch.config import Config
from celosia.arch.link import READS, REQUEST_SYNC, Command, Identity, Status, request
from celosia.arch.registers import REGISTER_MAP
from celosia.sim.link import LinkModel, answers
from celosia.tb.benches.common import parameters, rng, start_clock
from celosia.tb.benches.slow_memory import ExternalMemory

STATUS = REGISTER_MAP["STATUS"].addr


class Registers:
    """A model of the register bus, with a value for each address from 0 to 255.

    A register keeps the value that was last written to it. STATUS is the exception: a write does
    not change its value.

    ``writes`` is a list of all writes so far, to STATUS too: pairs (address, value).
    """

    def __init__(self) -> None:
        self.values = {addr: addr * 0x01030507 % (1 << 32) for addr in range(256)}
        self.values[STATUS] = 0
        self.writes: list[tuple[int, int]] = []

    def read(self, addr: int) -> int:
        """Return the value of the register at an address."""
        return self.values[addr]

    def write(self, addr: int, value: int) -> None:
        """Record a write to the register at an address; set the register, unless it is STATUS."""
        self.writes.append((addr, value))
        if addr != STATUS:
            self.values[addr] = value


class Line:
    """Test environment of the host link: its byte streams, register bus and external memory.

    ``sent`` are the bytes that the link has sent. A byte that the link offers is accepted in each
    cycle with the probability ``accepts``.
    """

    def __init__(self, dut: Any, memory: ExternalMemory, accepts: float = 0.3):
        self._dut, self._memory, self._accepts = dut, memory, accepts
        self.registers = Registers()
        self.sent = b""
        self._addr = 0
        self._random = rng()

    async def cycle(self, byte: int | None = None, broken: bool = False) -> None:
        """Run one clock cycle in which the link receives ``byte``; if ``byte`` is None, no byte.

        If ``broken`` is true, the receiver reports that the byte's stop bit was wrong.
        """
        dut = self._dut
        dut.i__valid.value = int(byte is not None)
        dut.i__payload.value = (byte or 0) | broken << 8
        accepted = self._random.random() < self._accepts
        dut.o__ready.value = int(accepted)
        dut.host__read_data.value = self.registers.read(self._addr)
        self._memory.drive()
        await FallingEdge(dut.clk)
        self._memory.sample()
        assert not self._memory.owes or int(dut.owns.value), "memory is left too early"
        assert not (self._busy() and int(dut.owns.value)), "memory is the run's"
        if accepted and int(dut.o__valid.value):
            self.sent += bytes([int(dut.o__payload.value)])
            assert int(dut.status.value) == self.registers.values[STATUS]
        self._addr = int(dut.host__addr.value)
        if int(dut.host__write_en.value):
            self.registers.write(self._addr, int(dut.host__write_data.value))
        await RisingEdge(dut.clk)

    def _busy(self) -> bool:
        return bool(self.registers.values[STATUS] & 1)

    async def quiet(self, cycles: int) -> None:
        """Run ``cycles`` clock cycles in which the link receives no byte."""
        for _ in range(cycles):
            await self.cycle()

    async def answered(self, length: int, limit: int, rest: int) -> None:
        """Run the clock until the link has sent ``length`` bytes, then for ``rest`` more cycles.

        The method waits at most ``limit`` cycles for the ``length`` bytes.
        """
        for _ in range(limit):
            if len(self.sent) >= length:
                break
            await self.cycle()
        await self.quiet(rest)


def places(command: int, config: Config, identity: Identity) -> int:
    """Return the number of addresses that a command of the host link can use.

    A command addresses registers, words of program memory, words of the HELLO answer, or bytes of
    external memory.
    """
    return {
        Command.HELLO: 5,
        Command.READ_REGISTERS: 256,
        Command.WRITE_REGISTERS: 256,
        Command.LOAD_PROGRAM: config.control.program_depth,
        Command.START: config.control.program_depth,
    }.get(command, identity.memory)


def random_request(random: np.random.Generator, config: Config, identity: Identity) -> bytes:
    """Return the bytes of a random request to the host link; most requests are valid.

    An invalid request has an unknown command, an address range that is not in the memory or the
    register map, or a length that the command does not allow.
    """
    command = int(random.choice([*Command, *Command, 0, 8, 255]))
    most = places(command, config, identity)
    if command in (Command.READ_MEMORY, Command.WRITE_MEMORY):
        amount = int(random.choice([0, 1, *random.integers(0, 40, 4), identity.payload]))
        length = amount
    else:
        amount = int(random.integers(0, min(9, most)))
        length = 4 * amount
    if command == Command.START:
        amount, length = 1, 0
    # Up to the end, one past it, or anywhere.
    addr = int(random.choice([0, 1, *-random.integers(0, most - amount + 1, 4)]))
    addr += most - amount
    if random.random() < 0.1:
        addr += int(random.choice([4, identity.memory, 1 << 31]))
    if random.random() < 0.1:
        length += int(random.integers(1, 4))
    payload = b"" if command in READS else random.bytes(length)
    return request(command, int(random.integers(256)), length, addr % (1 << 32), payload)


def damaged(random: np.random.Generator, frame: bytes) -> tuple[bytes, int | None]:
    """Return a damaged copy of the request ``frame``, and the index of a byte or None.

    At random, the end is cut off, one byte is changed, or random bytes are inserted; the index is
    then None. Otherwise the copy equals ``frame``, and the caller must send the byte at the index
    with a wrong stop bit.
    """
    kind = random.integers(4)
    place = int(random.integers(1, len(frame)))
    if kind == 0:
        return frame[:place], None
    if kind == 1:
        bits = int(random.integers(1, 256))
        return frame[:place] + bytes([frame[place] ^ bits]) + frame[place + 1 :], None
    if kind == 2:
        return frame, place
    return frame[:place] + random.bytes(int(random.integers(1, 4))) + frame[place:], None


def directed_requests(config: Config, identity: Identity) -> Iterator[tuple[bytes, int]]:
    """Yield requests for special cases, each as a pair (frame, value of STATUS during the request).

    Addresses and lengths are at and past their limits; commands are unknown, or arrive during a
    run. Some STARTs follow a START with the same tag (a byte that identifies a request), others
    with a tag that differs in one bit.
    """
    for bit in range(32):
        yield request(Command.READ_REGISTERS, bit, 0, 1 << bit), 0
    for command in Command:
        in_bytes = command in (Command.READ_MEMORY, Command.WRITE_MEMORY)
        length = 0 if command == Command.START else 1 if in_bytes else 4
        payload = b"abcd"[:length]
        carried = b"" if command in READS else payload
        last = places(command, config, identity) - 1
        yield request(command, 97, length, last, carried), 0
        yield request(command, 98, length, last + 1, carried), 0
        yield request(command, 99, length, 1, carried), 1
        for bit in range(3, 8):
            yield request(command | 1 << bit, bit, length, 1, payload), 0
    # The first and the last START are repeated; the others differ in one bit of the tag.
    for tag in (0, *((1 << bit) - 1 for bit in range(9)), 255):
        yield request(Command.START, tag, 0, 2), 0
    for length in (identity.payload + 1, 2 * identity.payload):
        yield request(Command.WRITE_MEMORY, 1, length, 0, bytes(length)), 0


class Session:
    """A test session that sends requests to the host link and compares answers with a golden model.

    ``settings`` are the bench's parameters. ``statuses`` is the set of statuses of all answers.
    """

    def __init__(self, dut: Any, settings: dict[str, Any], random: np.random.Generator):
        self._dut, self._settings, self._random = dut, settings, random
        self.config = Config.of(**settings["config"])
        self.identity = Identity(**settings["identity"])
        stall, latency = settings["stall"], settings["latency"]
        self._memory = ExternalMemory(dut, self.config, random, stall, latency)
        self._line = Line(dut, self._memory)
        self._expected = Registers()
        self._golden = LinkModel(
            self.identity,
            self.config.control.program_depth,
            self._expected.read,
            self._expected.write,
        )
        # Twice the time in which memory takes each byte of a payload.
        self._limit = self.identity.payload * round(2 * latency + 20 / (1 - stall))
        self.statuses: set[int] = set()

    async def ask(self, frame: bytes, status: int, broken: int | None = None) -> None:
        """Send the request ``frame`` to the link, and compare the link with the golden model.

        The answer, the register writes and the memory must be equal to the golden model's.
        ``status`` is the value of the register STATUS. If ``broken`` is a number, the byte
        ``frame[broken]`` is sent with a wrong stop bit.
        """
        line, golden, timeout = self._line, self._golden, self._settings["timeout"]
        line.registers.values[STATUS] = self._expected.values[STATUS] = status
        wanted = b""
        for place, byte in enumerate(frame):
            wanted += golden.receive(byte, place == broken)
            await line.cycle(byte, place == broken)
            if wanted:
                break  # bytes after an answered request would arrive during its execution
            await line.quiet(int(self._random.integers(1, 4)))
        if not wanted:
            corrupt = answers(golden.quiet())
            await line.quiet(timeout)
            await line.answered(7 * len(corrupt), self._limit, 30)
            replies = answers(line.sent)
            assert [status for status, _, _ in replies] == [status for status, _, _ in corrupt]
        else:
            rest = int(self._random.choice([8, timeout + 1]))
            await line.answered(len(wanted), self._limit, rest)
            assert line.sent == wanted, f"{frame.hex()} was answered {line.sent.hex()}"
            golden.quiet()
            replies = answers(wanted)
        self.statuses |= {status for status, _, _ in replies}
        line.sent = b""
        self._memory.stray = True
        await line.quiet(2)
        self._memory.stray = False
        assert line.registers.writes == self._expected.writes
        assert int(self._dut.status.value) == status
        memory, size = self._memory.bytes, self.identity.memory
        assert memory[:size].tobytes() == bytes(golden.memory)
        assert not memory[size:].any()


@cocotb.test()
async def requests_are_answered(dut: Any) -> None:
    """The link answers each request, intact or damaged, as the golden model does.

    The register writes and the contents of memory also equal those of the golden model.
    """
    settings, random = parameters(), rng()
    await start_clock(dut)
    session = Session(dut, settings, random)
    config, identity = session.config, session.identity
    for frame, status in directed_requests(config, identity):
        await session.ask(frame, status)
    previous = b""
    for _ in range(settings["requests"]):
        frame, broken = random_request(random, config, identity), None
        draw = random.random()
        if draw < 0.25:
            frame, broken = damaged(random, frame)
        elif draw < 0.4 and previous:
            frame = previous  # a host that saw no answer sends its request again
        elif draw < 0.5:
            noise = random.bytes(int(random.integers(1, 5))).replace(bytes([REQUEST_SYNC]), b"")
            frame = noise + frame
        else:
            previous = frame
        await session.ask(frame, int(random.choice([0, 0, 0, 1, 2, 12])), broken)
    assert session.statuses == set(Status), f"of all statuses only {session.statuses} were seen"


@cocotb.test()
async def a_start_is_not_repeated(dut: Any) -> None:
    """A START that is repeated with the same tag starts no second run.

    This holds even if the link receives a corrupt request between the two STARTs. If the link
    receives another valid request between the two STARTs, the second START starts a run, too.
    """
    settings = parameters()
    config = Config.of(**settings["config"])
    await start_clock(dut)
    line = Line(dut, ExternalMemory(dut, config, rng(), 0.0, 0))
    start = request(Command.START, 7, 0, 3)
    read = request(Command.READ_REGISTERS, 8, 4, 0)
    broken = start[:-1] + bytes([start[-1] ^ 1])
    runs = []
    for frame in (start, start, broken, start, read, start, request(Command.START, 9, 0, 3)):
        line.sent = b""
        for byte in frame:
            await line.cycle(byte)
            await line.quiet(2)
        await line.quiet(settings["timeout"])
        await line.answered(7, 1000, 30)
        (reply,) = answers(line.sent)
        assert reply[0] == (Status.CORRUPT if frame == broken else Status.OK)
        runs.append(len(line.registers.writes))
    assert runs == [2, 2, 2, 2, 2, 4, 6]
    assert line.registers.writes[:2] == [
        (REGISTER_MAP["PC"].addr, 3),
        (REGISTER_MAP["CONTROL"].addr, 1),
    ]


@cocotb.test()
async def a_pause_of_the_timeout_ends_a_request(dut: Any) -> None:
    """A request whose bytes pause for ``timeout`` cycles is corrupt; a shorter pause is allowed."""
    settings = parameters()
    config, timeout = Config.of(**settings["config"]), settings["timeout"]
    await start_clock(dut)
    line = Line(dut, ExternalMemory(dut, config, rng(), 0.0, 0))
    frame = request(Command.WRITE_REGISTERS, 7, 4, 3, b"abcd")
    for place, pause in itertools.product((1, 10, len(frame) - 1), (timeout - 1, timeout)):
        line.sent = b""
        for index, byte in enumerate(frame):
            await line.quiet(pause if index == place else 1)
            await line.cycle(byte)
        await line.quiet(timeout)
        await line.answered(7, 1000, 30)
        (reply,) = answers(line.sent)
        assert reply[0] == (Status.CORRUPT if pause == timeout else Status.OK), (place, pause)


@cocotb.test()
async def a_long_answer_is_complete(dut: Any) -> None:
    """Answers to long reads have all their bytes.

    The test reads all registers, and then external memory once for each length (bytes) in the
    bench's parameter ``long``.
    """
    settings, random = parameters(), rng()
    await start_clock(dut)
    memory = ExternalMemory(dut, Config.of(**settings["config"]), random, 0.0, 0)
    memory.bytes[:] = random.integers(0, 256, memory.bytes.size)
    line = Line(dut, memory, 1.0)
    registers = line.registers.values
    payload = b"".join(value.to_bytes(4, "little") for value in registers.values())
    cases = [(Command.READ_REGISTERS, payload)]
    cases += [
        (Command.READ_MEMORY, memory.bytes[:length].tobytes())
        for length in settings.get("long", ())
    ]
    for command, wanted in cases:
        line.sent = b""
        for byte in request(command, 7, len(wanted), 0):
            await line.cycle(byte)
            await line.quiet(1)
        await line.answered(7 + len(wanted), 12 * len(wanted), 30)
        assert answers(line.sent) == [(Status.OK, 7, wanted)]
