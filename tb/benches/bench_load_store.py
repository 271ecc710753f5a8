"""Bench of the load and store engines: random commands copy rows between models of two memories.

The two memories are the external memory and the scratchpad.
"""

# Parameters:
# - engine: ``load`` or ``store``
# - config: the configuration's fields that differ from the preset ``small``
# - commands: the number of commands
# - stall: the probability in each cycle that a port pauses
# - latency: the largest latency (cycles) of an external memory with random timing
# - refuse (optional): the probability in each cycle that external memory does not accept the
#   request of a burst, by default ``stall``
# - timing (optional): fields of MemoryTiming, instead of a random timing
# - shape (optional): the number of rows, and of bytes in a row, of all commands
# - limit (optional): the largest number of cycles for all commands together

from collections import deque
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.arch.config import Config
from celosia.arch.isa import Engine, Opcode
from celosia.arch.latency import BURST_BOUNDARY
from celosia.arch.presets import PRESETS
from celosia.hdl.ports import burst_layout, command_layout, write_layout
from celosia.tb.benches.common import parameters, rng, start_clock
from celosia.tb.benches.row_commands import (
    DRAM_BYTES,
    MOST,
    expected_moves,
    fixed_shapes,
    random_command,
)
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.packing import pack, unpack

SETTLED = 6
"""Cycles without a word after which an engine can only be waiting."""
SPEED = 12, 16, 4
"""Rows, words of a row, and commands whose words must all move without a pause."""
HELD = 0.02, 60
"""Probability per cycle that the memory stops reporting bursts for a while, and its length
(cycles): long enough that all places for waiting bursts are taken."""
EMPTY = 0.2
"""Share of commands without rows, or with empty rows."""
FIRST = 2
"""Cycles from a command to its first burst if the engine is idle; one more with ``registered``."""


def random_timing(random: np.random.Generator, latency: int) -> MemoryTiming:
    """Return a random timing of an external memory, with at most ``latency`` cycles of latency.

    The memory can transfer a word in each cycle, or only in every second or third cycle. Half of
    the random timings have refreshes.
    """
    period = int(random.integers(20, 200)) * int(random.integers(2))
    return MemoryTiming(
        latency=int(random.integers(latency + 1)),
        interval=int(random.choice([1, 1, 2, 3])),
        refresh_period=period,
        refresh_cycles=int(random.integers(1, period // 2)) if period else 0,
    )


class Machine:
    """Test environment of a load or store engine: external memory, scratchpad, command queue."""

    def __init__(self, dut: Any, config: Config, settings: dict[str, Any], random: Any):
        self.dut, self.config, self.random = dut, config, random
        self.stall = settings["stall"]
        self.refuse = settings.get("refuse", self.stall)
        fixed = settings.get("timing")
        self.timing = MemoryTiming(**fixed) if fixed else random_timing(random, settings["latency"])
        self.dram = bytearray(random.bytes(DRAM_BYTES))
        self.sp = bytearray(random.bytes(config.scratchpad.bytes))
        self.cycle = 0
        self.next_word = 0  # cycle from which the memory moves a word again
        self.words = 0
        self.commands: deque[int] = deque()
        self.moving: list[bool] = []  # whether each command has words
        self.begun = 0  # commands
        self.first = -1  # cycle in which the burst of a command that need not wait is asked for
        self.held = 0  # cycle from which bursts are reported as written again
        self.quiet = 0  # cycles since a word moved, or a burst was told as written
        self.done: list[int] = []
        self.offered: set[str] = set()
        self.waiting: dict[str, int] = {}

    def pause(self, probability: float | None = None) -> bool:
        """Return at random whether a port pauses in this cycle.

        A pause has the probability ``probability``, by default the bench's parameter ``stall``.
        """
        probability = self.stall if probability is None else probability
        return bool(probability and self.random.random() < probability)

    def get(self, name: str) -> int:
        """Return the value of the engine's port ``name``."""
        return int(getattr(self.dut, name).value)

    def set(self, name: str, value: int) -> None:
        """Drive the engine's port ``name`` with a value."""
        getattr(self.dut, name).value = value

    def fires(self, name: str) -> bool:
        """Return whether the stream ``name`` transfers a payload in this cycle.

        Call this once in each cycle: it asserts that a payload stays the same until it is accepted.
        """
        payload = self.get(name + "__payload") if self.get(name + "__valid") else None
        moves = payload is not None and bool(self.get(name + "__ready"))
        if name in self.waiting:
            assert payload == self.waiting.pop(name), f"{name} changed while it waited"
        if moves:
            self.offered.discard(name)
        elif payload is not None:
            self.waiting[name] = payload
        return moves

    def offer(self, name: str, payload: int | None) -> None:
        """Drive the stream ``name``: offer a payload, or nothing if ``payload`` is None.

        A new payload may be delayed at random; a payload that was offered but not accepted stays.
        """
        if payload is None:
            self.set(name + "__valid", 0)
        elif name in self.offered or not self.pause():
            self.offered.add(name)
            self.set(name + "__valid", 1)
            self.set(name + "__payload", payload)
        else:
            self.set(name + "__valid", 0)

    def open(self) -> bool:
        """Return whether the modelled external memory can transfer a word in this cycle."""
        return self.next_word <= self.cycle and not self.timing.refreshing(self.cycle)

    def move(self) -> None:
        """Record that the modelled external memory transfers a word in this cycle."""
        self.words += 1
        self.quiet = 0
        self.next_word = self.cycle + self.timing.interval

    def take_request(self) -> list[int]:
        """Return the byte addresses of the memory words that the engine requests in this cycle.

        The list is empty if the engine requests no burst. An assertion fails if the burst is not
        aligned to a word, is not within memory, or crosses a multiple of ``BURST_BOUNDARY`` bytes.
        """
        if not self.fires("memory__request"):
            return []
        burst = unpack(burst_layout(self.config.memory), self.get("memory__request__payload"))
        size = (burst["last"] + 1) * self.config.mem_bytes
        assert burst["addr"] % self.config.mem_bytes == 0
        assert burst["addr"] // BURST_BOUNDARY == (burst["addr"] + size - 1) // BURST_BOUNDARY
        assert burst["addr"] + size <= DRAM_BYTES
        return list(range(burst["addr"], burst["addr"] + size, self.config.mem_bytes))

    async def step(self, drive: Any, react: Any) -> None:
        """Run one clock cycle: offer a command, simulate both memories, check the status outputs.

        The functions ``drive`` and ``react`` come from :func:`load_side` or :func:`store_side`.
        ``drive()`` sets the engine's data inputs before the falling edge, and ``react()`` checks
        the engine's outputs after the falling edge.
        """
        self.offer("i", self.commands[0] if self.commands else None)
        self.set("memory__request__ready", not self.pause(self.refuse))
        drive()
        await FallingEdge(self.dut.clk)
        assert self.get("status__busy") == (self.begun > len(self.done))
        assert self.get("status__busy") or not self.get("status__stall")
        if self.cycle == self.first:
            assert self.get("memory__request__valid"), "a row's first burst is late"
        if self.fires("i"):
            self.commands.popleft()
            if self.begun == len(self.done) and self.moving[self.begun]:
                self.first = self.cycle + FIRST + self.config.control.registered
            self.begun += 1
        react()
        self.quiet += 1
        if self.get("status__done"):
            self.done.append(self.get("status__push"))
        self.cycle += 1
        await RisingEdge(self.dut.clk)


def load_side(
    machine: Machine, expected: deque[tuple[int, bytes]], ends: list[int]
) -> tuple[Any, Any]:
    """Return two functions, (drive, react), that model the two memories at a load engine.

    :meth:`Machine.step` calls the functions in each cycle. ``expected`` is a queue of the
    scratchpad writes that the engine must make: (address, bytes). ``ends[i]`` is the number of
    writes that must be made before command i ends.
    """
    coming: deque[tuple[int, int]] = deque()
    written = 0
    layout = write_layout(machine.config.access)
    addr_width, count_width = layout["addr"].width, layout["count"].width

    def drive() -> None:
        ready = "memory__data" in machine.offered or (
            bool(coming) and coming[0][0] <= machine.cycle and machine.open()
        )
        addr = coming[0][1] if ready else 0
        word = bytes(machine.dram[addr : addr + machine.config.mem_bytes])
        machine.offer("memory__data", int.from_bytes(word, "little") if ready else None)
        machine.set("write__request__ready", not machine.pause())

    def react() -> None:
        nonlocal written
        if machine.fires("memory__data"):
            coming.popleft()
            machine.move()
        if machine.fires("write__request"):
            write = machine.get("write__request__payload")
            addr, write = write % (1 << addr_width), write >> addr_width
            count, line = write % (1 << count_width), write >> count_width
            place, content = expected.popleft()
            assert (addr, count) == (place, len(content))
            assert line.to_bytes(64, "little")[:count] == content
            machine.sp[addr : addr + count] = content
            written += 1
        waits = machine.get("write__request__valid") and not machine.get("write__request__ready")
        if waits:
            assert machine.get("status__stall"), "a write waits, which is not reported"
        elif machine.get("memory__data__valid"):
            assert not machine.get("status__stall"), "a stall is reported, but nothing waits"
        elif coming and machine.quiet > SETTLED:
            assert machine.get("status__stall"), "data is waited for, which is not reported"
        if machine.get("status__done"):
            assert written >= ends[len(machine.done)]
        due = machine.cycle + machine.timing.latency
        asked = machine.take_request()
        if asked and not coming:
            machine.quiet = 0  # the engine was idle, and begins to wait
        coming.extend((due, a) for a in asked)

    return drive, react


def store_side(
    machine: Machine, expected: deque[tuple[int, bytes]], ends: list[int]
) -> tuple[Any, Any]:
    """Return two functions, (drive, react), that model the two memories at a store engine.

    :meth:`Machine.step` calls the functions in each cycle. ``expected`` is a queue of the writes to
    external memory that the engine must make: (address, bytes). ``ends[i]`` is the number of writes
    that must be made before command i ends.
    """
    answers: deque[int | None] = deque([None] * machine.config.sram_latency)
    addresses: deque[tuple[int, bool]] = deque()
    finished: deque[tuple[int, int]] = deque()  # cycle of each burst's report, words up to it
    written = 0

    def drive() -> None:
        nonlocal written
        machine.set("read__request__ready", not machine.pause())
        machine.set("memory__data__ready", machine.open() and not machine.pause())
        addr = answers.popleft()
        machine.set("read__valid", addr is not None)
        end = (addr or 0) + machine.config.line_bytes
        line = bytes(machine.sp[addr or 0 : end]).ljust(machine.config.line_bytes, b"\xee")
        machine.set("read__data", int.from_bytes(line, "little"))
        if machine.stall and machine.random.random() < HELD[0]:
            machine.held = machine.cycle + HELD[1]
        due = bool(finished) and max(finished[0][0], machine.held) <= machine.cycle
        reported = due and not machine.pause()
        machine.set("memory__written", reported)
        if reported:
            written = finished.popleft()[1]
            machine.quiet = 0

    def react() -> None:
        ports = ("read__request", "memory__data", "memory__request")
        waits = any(
            machine.get(f"{port}__valid") and not machine.get(f"{port}__ready") for port in ports
        )
        # The engine may wait for bursts that are requested and not yet reported.
        asked = machine.words + len(addresses)
        if waits or (machine.quiet > SETTLED and written < machine.words == asked):
            assert machine.get("status__stall"), "something waits, which is not reported"
        elif written == asked or machine.words < asked:
            assert not machine.get("status__stall"), "a stall is reported, but nothing waits"
        requested = machine.fires("read__request")
        answers.append(machine.get("read__request__payload") if requested else None)
        if machine.fires("memory__data"):
            payload = machine.get("memory__data__payload")
            addr, last = addresses.popleft()
            place, content = expected.popleft()
            assert (addr, payload >> machine.config.memory.width) == (
                place,
                (1 << len(content)) - 1,
            )
            assert payload.to_bytes(64, "little")[: len(content)] == content
            machine.dram[addr : addr + len(content)] = content
            machine.move()
            if last:
                delay = int(machine.random.integers(machine.timing.latency + 1))
                finished.append((machine.cycle + 1 + delay, machine.words))
        if machine.get("status__done"):
            assert written >= ends[len(machine.done)]
        burst = machine.take_request()
        addresses.extend((a, a == burst[-1]) for a in burst)

    return drive, react


@cocotb.test()
async def rows_arrive(dut: Any) -> None:
    """Each command writes its rows to the destination memory and changes no other byte.

    A load writes to the scratchpad, a store to external memory. Commands end in order.
    """
    await _run(dut, parameters())


if "shape" not in parameters():

    @cocotb.test()
    async def a_word_moves_in_each_cycle(dut: Any) -> None:
        """Without pauses a word moves in each cycle: earlier rows hide the memory's latency."""
        width = PRESETS["small"].replace(**parameters()["config"]).mem_bytes
        m, row, commands = SPEED
        timed = {"stall": 0.0, "commands": commands, "shape": (m, row * width)}
        timed |= {"timing": {"latency": 40}, "limit": commands * m * row + 60}
        await _run(dut, parameters() | timed)


async def _run(dut: Any, settings: dict[str, Any]) -> None:
    random = rng()
    config = PRESETS["small"].replace(**settings["config"])
    load = settings["engine"] == "load"
    opcode = Opcode.LOAD if load else Opcode.STORE
    machine = Machine(dut, config, settings, random)
    dut._log.info(f"{machine.timing}")
    fixed = fixed_shapes(config)
    fixed = fixed if settings["commands"] > len(fixed) else fixed[-len(MOST) :]
    shapes = [*[None] * (settings["commands"] - len(fixed)), *fixed]
    commands = [random_command(config, random, opcode, shape) for shape in shapes]
    for command in commands[: -len(fixed)]:
        if random.random() < EMPTY:
            command[str(random.choice(["m", "row_bytes"]))] = 0
    if "shape" in settings:
        for number, command in enumerate(commands):
            m, row_bytes = settings["shape"]
            step = -(-row_bytes // config.mem_bytes) * config.mem_bytes
            command |= {"m": m, "row_bytes": row_bytes, "sp_stride": row_bytes}
            command |= {"dram_addr": number * m * step, "dram_stride": step, "sp_addr": number % 3}
    # Reads and writes use different addresses, so that each word is known.
    source = bytes(machine.dram if load else machine.sp)
    moves, ends = expected_moves(commands, config, source, load=load)
    dram, sp = bytearray(machine.dram), bytearray(machine.sp)
    for place, content in moves:
        (sp if load else dram)[place : place + len(content)] = content
    layout = command_layout(Engine.LOAD if load else Engine.STORE)
    machine.commands.extend(pack(layout, command) for command in commands)
    machine.moving = [bool(command["m"] and command["row_bytes"]) for command in commands]
    drive, react = (load_side if load else store_side)(machine, moves, ends)
    words = ends[-1]
    await start_clock(dut, rng())
    while len(machine.done) < len(commands):
        await machine.step(drive, react)
        assert machine.cycle < 100 * words + 4000, "the engine hangs"
    cycles = machine.cycle
    for _ in range(8):
        await machine.step(drive, react)
    assert machine.get("status__busy") == 0
    assert machine.done == [command["push"] for command in commands]
    assert machine.words == words
    assert not moves
    assert machine.sp == sp
    assert machine.dram == dram
    dut._log.info(f"{words} words in {cycles} cycles")
    if "limit" in settings:
        assert cycles <= settings["limit"], f"{cycles} cycles, at most {settings['limit']} expected"
