"""Runs of the accelerator in cocotb benches, each compared with the golden machine."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from celosia.arch.config import Config
from celosia.arch.isa import REGISTERS, Engine, Opcode
from celosia.arch.registers import (
    ARRAY_CAUSES,
    COUNTERS,
    IDENTITY,
    INTERRUPT_DONE,
    REGISTER_MAP,
)
from celosia.generators.program.timing import passes_per_row
from celosia.hdl.control.host_port import counter_names
from celosia.sim.flow import Step
from celosia.sim.interpreter import Interpreter
from celosia.sim.matmul import parts_of_wide
from celosia.sim.regions import Region, ceil_div
from celosia.tb.benches.accelerator_host import Host, words_of
from celosia.tb.machine.short_programs import ShortProgram, short_program

ADDRS = 256
"""Number of addresses of the host port."""

SHORT = 20_000
"""Cycles after which a short program counts as hung."""


class Counts:
    """Expected values of the accelerator's counters, computed from a run of the golden machine.

    ``steps`` lists the instructions that the golden machine has executed. ``vectors`` is the number
    of vectors that enter the array, and ``gated`` is the number of zero elements in these vectors.
    """

    def __init__(self) -> None:
        self.gated = self.vectors = 0
        self.steps: list[Step] = []

    def add(self, step: Step, machine: Interpreter) -> None:
        """Append an executed instruction to ``steps``, and count the vectors of a MATMUL.

        For a MATMUL, ``vectors`` is increased by the number of operand A's vectors that enter the
        array, and ``gated`` by the number of zero elements in these vectors. The scratchpad of the
        golden machine ``machine`` must contain operand A.
        """
        self.steps.append(step)
        if step.opcode != Opcode.MATMUL:
            return
        rows, m, k = machine.config.array.rows, step["m"], step["k"]
        kt, nt = ceil_div(k, rows), ceil_div(step["n"], machine.config.array.cols)
        wide, count = "a_wide" in step.flags, passes_per_row(step, machine.config)
        cells = Region("sp", step["a_addr"], step["a_stride"], m, k << wide).cells()
        stored = machine.sp[cells]
        if wide:
            # High bytes precede low bytes, and are alone with "b_low"; only low bytes count.
            low = parts_of_wide(stored.view("<i2").astype(np.int64))[1]
            zeros = (low == 0) & (count == 2)
        else:
            # The array sees the low bits of each byte.
            differs = stored.astype(np.int64) - step["a_zero"]
            zeros = differs % (1 << machine.config.array.operand_width) == 0
        self.gated += nt * int(zeros.sum())
        self.vectors += kt * nt * m * count


class Runs:
    """Runs of the accelerator through its host port, each checked against the golden machine.

    ``enable`` is the value of the register INTERRUPT_ENABLE. ``totals`` has the sum of each counter
    over all runs. If the configuration has no counters, ``totals`` is empty.
    """

    def __init__(
        self, dut: Any, config: Config, memory: Any, host: Host, random: np.random.Generator
    ):
        self.dut, self.config, self.memory, self.host = dut, config, memory, host
        self.random = random
        self.enable = 0
        self.totals = Counter[str]()
        self.shortest = SHORT
        """Cycles of the fastest run of :meth:`short`; before the first, a run's limit."""

    def place(self, words: Sequence[int]) -> int:
        """Return a random address in program memory at which the program ``words`` fits."""
        return int(self.random.integers(self.config.control.program_depth - len(words) + 1))

    async def set_enable(self) -> None:
        """Set INTERRUPT_ENABLE to a random value."""
        self.enable = int(self.random.integers(4))
        await self.host.write("INTERRUPT_ENABLE", self.enable | int(self.random.integers(2)) << 9)

    async def interrupted(self, wanted: int) -> None:
        """Check the register INTERRUPT and the line ``irq``; then clear INTERRUPT.

        Only the bit ``wanted`` (INTERRUPT_DONE or INTERRUPT_ERROR) must be set in INTERRUPT. If
        INTERRUPT_ENABLE has this bit, ``irq`` must be 1 until the bit is cleared; otherwise it must
        be 0.
        """
        host = self.host
        host.quiet = False
        assert host.raised == int(self.enable & wanted != 0)
        assert await host.read("INTERRUPT") == wanted
        for bit in (3 - wanted, wanted):
            assert host.irq == int(self.enable & wanted != 0)
            await host.write("INTERRUPT", bit)
            await host.cycle()
        assert host.irq == 0
        assert await host.read("INTERRUPT") == 0
        host.quiet = True

    async def give(self, golden: Interpreter, program: ShortProgram) -> int:
        """Load a short program and its data into the accelerator and the golden machine ``golden``.

        Return the program's address in the accelerator's program memory, which is random. The data
        are at address 0 of external memory. All other bytes have one random value.
        """
        host, pc = self.host, self.place(program.words)
        golden.dram[:] = self.random.integers(0, 256)
        golden.write_memory(0, program.image)
        self.memory.bytes[:] = golden.dram[: self.memory.bytes.size]
        golden.load_program(program.words)
        for number in range(1, REGISTERS):
            golden.set_register(number, program.registers[number])
            await host.write(f"R{number}", program.registers[number])
        await host.load(program.words, pc)
        return pc

    async def short(self, golden: Interpreter | None = None) -> dict[str, int]:
        """Run a random short program, and compare the accelerator with the golden machine.

        Return the accelerator's counters by name. ``golden`` is the golden machine, by default a
        new one. If the configuration has counters, the counts of parameters read and of the
        engines' stalls are checked, too.
        """
        golden = golden or Interpreter(self.config)
        program = short_program(self.config, self.random)
        pc = await self.give(golden, program)
        counts = await self.run(golden, pc, SHORT)
        self.shortest = min(self.shortest, counts["CYCLES"])
        if self.config.control.counters:
            lines = sum(step["n"] for step in self.steps if step.opcode == Opcode.PARAMS)
            assert counts["VECTOR_READ"] == lines * self.config.param_lines
            # Few events delay these.
            for name in ("MATRIX", "VECTOR"):
                assert counts[f"STALL_{name}"] < counts[f"BUSY_{name}"]
            # Few cycles with a word are also counted as stalls.
            assert counts["STALL_LOAD"] + counts["LOADED"] * 3 // 4 <= counts["BUSY_LOAD"]
        return counts

    async def run(self, golden: Interpreter, pc: int, limit: int) -> dict[str, int]:
        """Run the loaded program on the accelerator and the golden machine, and compare results.

        Return the counters by name. The results are external memory, registers, interrupts,
        counters and trace events. ``pc`` is the address of the program's first word. The run must
        end within ``limit`` cycles.
        """
        host, memory, counts = self.host, self.memory, Counts()
        golden.on_step = counts.add
        report = golden.start()
        self.steps = counts.steps
        loaded, stored = memory.loaded, memory.stored
        await self.set_enable()
        host.clear()
        host.follows = True
        await host.start()
        # The end may raise the line in any cycle.
        host.quiet = not self.enable & INTERRUPT_DONE
        assert await host.ends(limit) == 0
        elapsed = host.cycles - host.started
        if self.config.control.trace:
            assert host.signatures == report.signatures
        np.testing.assert_array_equal(memory.bytes, golden.dram[: memory.bytes.size])
        counters = await self.registers(golden, pc)
        await self.interrupted(INTERRUPT_DONE)
        # The last counter is updated after all others, and the host reads STATUS in every other
        # cycle.
        over = elapsed - counters["CYCLES"] - max(3, len(counter_names(self.config)))
        assert over in (8, 9), over
        if self.config.control.counters:
            wanted = {
                "MACS": report.counters["macs"],
                "GATED": counts.gated * self.config.array.operand_gating,
                "LOADED": memory.loaded - loaded,
                "STORED": memory.stored - stored,
                "ARRAY_PRODUCT": counts.vectors,
            }
            assert {name: counters[name] for name in wanted} == wanted
            self._adds_up(counters)
            self.totals.update(counters)
            if host.events is not None:
                self._as_traced(counters, words_of(counts.steps, golden.words))
        return counters

    async def registers(self, golden: Interpreter, pc: int) -> dict[str, int]:
        """Read all registers after a run without errors, and return the counters by name.

        ID, PC, INTERRUPT, INTERRUPT_ENABLE and the ARGMAX registers must have the expected values.
        All other addresses of the host port except counters must read 0. ``pc`` is the address of
        the program's first word.
        """
        values = await self.host.sweep(range(ADDRS))
        wanted = {"ID": IDENTITY, "PC": pc, "INTERRUPT": INTERRUPT_DONE}
        wanted |= {"INTERRUPT_ENABLE": self.enable}
        if self.config.vector.argmax:
            wanted |= {name: golden.read_register(name) for name in ("ARGMAX", "ARGMAX_VALUE")}
        present = counter_names(self.config)
        places = {REGISTER_MAP[f"{n}_{h}"].addr for n in present for h in ("LOW", "HIGH")}
        others = {REGISTER_MAP[name].addr: value for name, value in wanted.items()}
        for addr, value in enumerate(values):
            if addr not in places:
                assert value == others.get(addr, 0), f"register {addr}"
        return {
            name: values[REGISTER_MAP[f"{name}_LOW"].addr]
            | values[REGISTER_MAP[f"{name}_HIGH"].addr] << 32
            for name in COUNTERS
        }

    def _adds_up(self, counters: Mapping[str, int]) -> None:
        """Check the relations between counters."""
        for engine in Engine:
            busy, stall, wait, idle = (
                counters[f"{kind}_{engine.name}"] for kind in ("BUSY", "STALL", "WAIT", "IDLE")
            )
            assert stall <= busy
            assert busy + wait + idle == counters["CYCLES"]
        array = {name: counters[f"ARRAY_{name}"] for name in ARRAY_CAUSES}
        assert sum(array.values()) == counters["CYCLES"]
        idle = sum(array[name] for name in ("QUEUE", "FETCH", "OVER"))
        assert idle == counters["IDLE_MATRIX"]
        assert array["FETCH"] > 0
        assert array["PRODUCT"] <= counters["SPAN_MATRIX"] <= counters["CYCLES"]
        assert array["MEMORY"] <= counters["STALL_MATRIX"]
        waits = sum(array[f"WAIT_{name}"] for name in ("LOAD", "VECTOR", "STORE"))
        assert waits >= counters["WAIT_MATRIX"]

    def _as_traced(self, counters: Mapping[str, int], words: list[dict[str, Any]]) -> None:
        """Compare the counters and the run's words with the trace ports."""
        events = self.host.events
        assert events is not None
        assert events.words == words
        for engine in Engine:
            steps = sum(step.engine == engine for step in self.steps)
            assert events.done[engine] == steps
            name = engine.name
            assert counters[f"BUSY_{name}"] == events.busy[engine], name
            assert counters[f"WAIT_{name}"] == events.waits[engine], name
        for name, count in zip(ARRAY_CAUSES, events.array, strict=True):
            assert counters[f"ARRAY_{name}"] == count, name
        # The first tile follows its command by the same time as the last sum its completion.
        assert counters["SPAN_MATRIX"] == events.span
        assert counters["VECTOR_WRITTEN"] == self.host.writes
