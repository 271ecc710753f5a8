"""The accelerator's host in cocotb benches, and a monitor of the accelerator's trace port."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge

from celosia.arch.config import Config
from celosia.arch.isa import IMMEDIATE_WIDTH, Engine
from celosia.arch.registers import (
    ARRAY_CAUSES,
    CONTROL_FORGET,
    CONTROL_START,
    REGISTER_MAP,
    STATUS_BUSY,
)
from celosia.hdl.control.span import PAUSE_WIDTH
from celosia.hdl.ports import ENGINE_EVENT, WORD, write_layout
from celosia.sim.flow import Step
from celosia.sim.report import signature
from celosia.tb.machine.packing import unpack

LIMIT = 200_000
"""Cycles after which a run counts as hung."""

_CAUSES = list(ARRAY_CAUSES)
_MATRIX_IDLE = {"QUEUE", "FETCH", "OVER"}


class Events:
    """Numbers of cycles and commands of each engine, counted at the accelerator's trace port.

    The counts begin at the last :meth:`clear`.

    - ``busy``: cycles in which an engine has a command.
    - ``waits``: idle cycles in which the engine's next command waits for other engines.
    - ``done``: completed commands.
    """

    def __init__(self, dut: Any):
        self._word_valid, self._word = dut.events__word_valid, dut.events__word
        self._engines, self._array = dut.events__engines, dut.events__array
        self._width = ENGINE_EVENT.size
        self._under_way = [0] * len(Engine)
        self._before = (0, False)
        self._known: dict[int, list[dict[str, int]]] = {}
        self.clear()

    def clear(self) -> None:
        """Set all counts to 0, and drop the recorded instruction ``words``."""
        self.words: list[dict[str, Any]] = []
        """Words sent to queues: ``engine`` (the receiver), ``word``, ``first``, ``last``."""
        self.busy, self.waits, self.done = ([0] * len(Engine) for _ in range(3))
        self.span = self._pause = 0
        self._begun = self._queued = False
        self.array = [0] * len(_CAUSES)
        self._under_way = [0] * len(Engine)

    def sample(self) -> None:
        """Count the events that the trace port shows in this cycle; call it at the falling edge."""
        self._sample_array(int(self._array.value))
        if int(self._word_valid.value):
            self.words.append(unpack(WORD, int(self._word.value)))
            self._queued = False
        bits = int(self._engines.value)
        if bits not in self._known:
            fields = [bits >> self._width * engine for engine in range(len(Engine))]
            self._known[bits] = [unpack(ENGINE_EVENT, field) for field in fields]
        matrix = (0, False)
        for engine, event in enumerate(self._known[bits]):
            # Engines that accept a command at once have it from the next cycle on.
            at_once = engine in (Engine.LOAD, Engine.STORE)
            busy = bool((event["offered"] and not at_once) or self._under_way[engine])
            self.busy[engine] += busy
            self.waits[engine] += not busy and event["lacking"] != 0
            if engine == Engine.MATRIX:
                matrix = (event["lacking"], busy)
                self._follow(bool(event["taken"] or self._under_way[engine]))
            assert event["offered"] >= event["taken"]
            self._under_way[engine] += event["taken"] - event["done"]
            self.done[engine] += event["done"]
            assert self._under_way[engine] >= 0
        self._before = matrix

    def _follow(self, active: bool) -> None:
        """Count from the array's first busy cycle to its last, as ``Span`` does."""
        if active:
            self.span += 1 + min(self._pause, (1 << PAUSE_WIDTH) - 1)
            self._begun, self._pause = True, 0
        elif self._begun:
            self._pause += 1

    def skip(self, cycles: int) -> None:
        """Count ``cycles`` cycles in which all engines are idle.

        Do not call :meth:`sample` in these cycles. For the array, they count as idle with the cause
        FETCH (the sequencer fetches instructions).
        """
        self._pause += cycles
        self._before = (0, False)
        self.array[_CAUSES.index("FETCH")] += cycles

    def _sample_array(self, bits: int) -> None:
        if not bits:
            return
        cause = bits.bit_length() - 1
        assert bits == 1 << cause, "one cause for a cycle"
        self.array[cause] += 1
        name, (lacking, busy) = _CAUSES[cause], self._before
        # An instruction that waits for room keeps waiting until it is accepted.
        assert name not in ("FETCH", "OVER") or not self._queued
        self._queued = name == "QUEUE"
        if name in _MATRIX_IDLE:
            assert not lacking
            assert not busy
        elif name.startswith("WAIT_"):
            first = next(e for e in Engine if e != Engine.MATRIX and lacking >> e & 1)
            assert name == f"WAIT_{first.name}"


class Host:
    """The accelerator's host in a bench: runs clock cycles, accesses registers, records the trace.

    If ``quiet`` is true, :meth:`cycle` asserts that the interrupt line ``irq`` is 0. If ``follows``
    is true, the host records the events at the trace port.
    """

    def __init__(self, dut: Any, config: Config, memory: Any):
        self._dut, self._memory = dut, memory
        self.signatures: list[int] = []
        self.cycles = self.started = self.told = self.raised = 0
        """``told`` is ``irq`` at the latest read, ``raised`` at the end of the latest run."""
        self.writes = 0
        self.quiet = self.follows = True
        self._sum = 0
        self._forgets = 0
        self._config, self._layout = config, write_layout(config.access)
        self.events = Events(dut) if config.control.trace else None
        self._clk, self._data = dut.clk, dut.host__read_data
        # With a bus the line ends at the bridge.
        self._irq, self._forget = dut.irq, getattr(dut, "mem_forget", None)
        if config.control.trace:
            self._retire = dut.trace__retire
            self._traced = [
                (getattr(dut, f"trace__{name}_valid"), getattr(dut, f"trace__{name}_write"))
                for name in ("o", "s")
            ]

    async def cycle(self) -> None:
        """Run one clock cycle, from one rising edge to the next."""
        self._memory.drive()
        await FallingEdge(self._clk)
        self._memory.sample()
        if self.events is not None:
            self._trace(self.events)
        assert self._forget is None or int(self._forget.value) == self._forgets
        assert not self.quiet or not int(self._irq.value)
        self.cycles += 1
        await RisingEdge(self._clk)

    def _trace(self, events: Events) -> None:
        if not self.follows:
            return
        events.sample()
        for valid, payload in self._traced:
            if int(valid.value):
                write = unpack(self._layout, int(payload.value))
                addrs = write["addr"] + np.arange(write["count"])
                data = np.array(write["data"][: write["count"]], np.uint8)
                self._sum += signature(addrs, data)
                self.writes += 1
        if int(self._retire.value):
            self.signatures.append(self._sum % (1 << 64))
            self._sum = 0

    def clear(self) -> None:
        """Drop all recorded trace events, and all recorded writes of the vector engine."""
        self.signatures.clear()
        self._sum = self.writes = 0
        if self.events is not None:
            self.events.clear()

    @property
    def irq(self) -> int:
        """Level of the interrupt line ``irq``."""
        return int(self._irq.value)

    async def skip(self, cycles: int) -> None:
        """Run ``cycles`` clock cycles without simulating external memory or the trace monitor.

        All engines and external memory must be idle in these cycles.
        """
        await ClockCycles(self._clk, cycles)
        self.cycles += cycles
        if self.events is not None:
            self.events.skip(cycles)

    async def write(self, name: str, value: int) -> None:
        """Write a value to the register ``name`` of the host port."""
        dut = self._dut
        dut.host__addr.value = REGISTER_MAP[name].addr
        dut.host__write_data.value = value % (1 << 32)
        dut.host__write_en.value = 1
        self._forgets = int(name == "CONTROL" and bool(value & CONTROL_FORGET))
        await self.cycle()
        dut.host__write_en.value = 0
        self._forgets = 0

    async def read(self, name: str) -> int:
        """Return the value of the register ``name`` of the host port."""
        return (await self.sweep([REGISTER_MAP[name].addr]))[0]

    async def sweep(self, addrs: Sequence[int]) -> list[int]:
        """Read the host port's registers at ``addrs``, one per cycle, and return their values."""
        values = []
        for place, addr in enumerate([*addrs, 0]):
            self._dut.host__addr.value = addr
            self._memory.drive()
            await FallingEdge(self._clk)
            self._memory.sample()
            if self.events is not None:
                self._trace(self.events)
            if place:
                values.append(int(self._data.value))
                self.told = int(self._irq.value)
            self.cycles += 1
            await RisingEdge(self._clk)
        return values

    async def load(self, words: Sequence[int], pc: int = 0) -> None:
        """Write a program to program memory from word ``pc`` on, and set PC for the next run."""
        await self.write("PROGRAM_ADDR", pc)
        for word in words:
            await self.write("PROGRAM_DATA", word)
        await self.write("PC", pc)

    async def start(self) -> None:
        """Wait until STATUS is not busy, and start a run.

        STATUS reports busy during a run, and while the machine recovers after a reset or a stopped
        run.
        """
        while await self.read("STATUS") & STATUS_BUSY:
            pass
        await self.write("CONTROL", CONTROL_START)
        self.started = self.cycles

    async def run(self, words: Sequence[int], pc: int = 0) -> int:
        """Run a program, and return the value of STATUS at the end of the run.

        The program's ``words`` are first written to program memory, from word ``pc`` on.
        """
        await self.load(words, pc)
        await self.start()
        return await self.ends()

    async def ends(self, limit: int = LIMIT) -> int:
        """Wait until the accelerator is not busy, and return its STATUS.

        An assertion fails if the accelerator is still busy after ``limit`` cycles.
        """
        begin = self.cycles
        while (status := await self.read("STATUS")) & STATUS_BUSY:
            assert self.cycles < begin + limit, f"Run has not ended after {limit} cycles"
        self.raised = self.told
        return status


def words_of(steps: Sequence[Step], words: Sequence[int]) -> list[dict[str, Any]]:
    """Return all words that the sequencer must send to the engines' queues in a run.

    ``words`` is the program; ``steps`` are the instructions that the golden machine has executed.
    The result is a list of dictionaries in the form of :class:`Events`: ``engine``, ``word``,
    ``first`` and ``last``.
    """
    sent_words = []
    for step in steps:
        operands = [value % (1 << IMMEDIATE_WIDTH) for value in step.operands.values()]
        sent = [words[step.address], *operands]
        for place, word in enumerate(sent):
            last = place == len(sent) - 1
            sent_words.append(
                {"engine": step.engine, "first": int(not place), "last": int(last), "word": word}
            )
    return sent_words
