"""Bench of the whole accelerator: random programs against the golden machine.

Parameters: ``config``, every field of the configuration; ``programs`` and ``steps``, how many
random programs run one after the other and how many instructions each has; ``stall`` and
``latency`` of external memory; ``bus``, the model (of ``tb.external``) of a memory behind a bus
instead. With ``trace`` in the configuration every vector instruction is compared, without it only
what is stored.
"""

from collections.abc import Sequence
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge

from arch.config import Config
from arch.isa import Engine, Opcode
from arch.registers import COUNTERS, IDENTITY, REGISTER_MAP
from hdl.ports import write_layout
from sim.flow import Step
from sim.interpreter import Interpreter
from sim.regions import Region, ceil_div
from sim.report import signature
from tb.bench import parameters, rng, start_clock, unpack
from tb.external import MODELS, SIZE, ExternalMemory
from tb.programs import random_program

LIMIT = 200_000
"""Cycles after which a run is taken to hang."""


class Host:
    """The accelerator's host, which clocks it, and its external memory and trace port."""

    def __init__(self, dut: Any, config: Config, memory: Any):
        self._dut, self._memory = dut, memory
        self.signatures: list[int] = []
        self.cycles = self.started = 0
        self._sum = self._read_data = 0
        self._config, self._layout = config, write_layout(config)

    async def cycle(self) -> None:
        """Pass one clock cycle."""
        self._memory.drive()
        await FallingEdge(self._dut.clk)
        self._memory.sample()
        if self._config.trace:
            self._trace()
        self._read_data = int(self._dut.host__read_data.value)
        self.cycles += 1
        await RisingEdge(self._dut.clk)

    def _trace(self) -> None:
        for name in ("o", "s"):
            if int(getattr(self._dut, f"trace__{name}_valid").value):
                bits = int(getattr(self._dut, f"trace__{name}_write").value)
                write = unpack(self._layout, bits)
                addrs = write["addr"] + np.arange(write["count"])
                data = np.array(write["data"][: write["count"]], np.uint8)
                self._sum += signature(addrs, data)
        if int(self._dut.trace__retire.value):
            self.signatures.append(self._sum % (1 << 64))
            self._sum = 0

    async def write(self, name: str, value: int) -> None:
        """Write a register."""
        self._dut.host__addr.value = REGISTER_MAP[name].addr
        self._dut.host__write_data.value = value % (1 << 32)
        self._dut.host__write_en.value = 1
        await self.cycle()
        self._dut.host__write_en.value = 0

    async def read(self, name: str) -> int:
        """Read a register."""
        self._dut.host__addr.value = REGISTER_MAP[name].addr
        await self.cycle()
        await self.cycle()
        return self._read_data

    async def run(self, words: Sequence[int], pc: int = 0) -> int:
        """Write a program to word ``pc`` and on, run it and return STATUS when it has stopped."""
        await self.write("PROGRAM_ADDR", pc)
        for word in words:
            await self.write("PROGRAM_DATA", word)
        await self.write("PC", pc)
        while await self.read("STATUS") & 1:  # not yet recovered from a reset
            pass
        await self.write("CONTROL", 1)
        self.started = self.cycles
        while (status := await self.read("STATUS")) & 1:
            assert self.cycles < self.started + LIMIT, f"Run has not ended after {LIMIT} cycles"
        return status

    async def counters(self) -> dict[str, int]:
        """Read all counters."""
        return {
            name: await self.read(f"{name}_LOW") | await self.read(f"{name}_HIGH") << 32
            for name in COUNTERS
        }


class Counts:
    """Counts of the array that the golden machine's steps imply."""

    def __init__(self) -> None:
        self.gated = self.vectors = 0

    def add(self, step: Step, machine: Interpreter) -> None:
        """Count the vectors of a MATMUL, and the zeros of A in them."""
        if step.opcode != Opcode.MATMUL:
            return
        rows, m, k = machine.config.rows, step["m"], step["k"]
        kt, nt = ceil_div(k, rows), ceil_div(step["n"], machine.config.cols)
        cells = Region("sp", step["a_addr"], step["a_stride"], m, k).cells()
        # The array sees the low bits of each byte.
        differs = (machine.sp[cells].astype(np.int64) - step["a_zero"]) % (
            1 << machine.config.operand_width
        )
        self.gated += nt * int((differs == 0).sum())
        self.vectors += kt * nt * m


async def _start(dut: Any) -> tuple[Config, Interpreter, Any, Host]:
    given = parameters()
    config = Config(**given["config"])
    # Icarus loses what a package puts on an input before the simulation has begun.
    await start_clock(dut)
    if "bus" in given:
        size = min(1 << config.mem_addr_width, SIZE)
        memory = MODELS[given["bus"]](dut, config, rng(), given["stall"], size)
    else:
        memory = ExternalMemory(dut, config, rng(), given["stall"], given["latency"])
    return config, Interpreter(config), memory, Host(dut, config, memory)


@cocotb.test()
async def random_programs_are_exact(dut: Any) -> None:
    """Each vector instruction's writes, external memory and counters are the golden machine's."""
    given, random = parameters(), rng()
    config, golden, memory, host = await _start(dut)
    assert await host.read("ID") == IDENTITY
    for _ in range(given["programs"]):
        program = random_program(config, random, given["steps"])
        pc = int(random.integers(config.program_depth - len(program.words) + 1))
        counts = Counts()
        for machine in (golden.dram, memory.bytes):
            machine[: len(program.image)] = np.frombuffer(program.image, np.uint8)
        golden.load_program(program.words)
        golden.on_step = counts.add
        report = golden.start()
        loaded, stored = memory.loaded, memory.stored
        assert await host.run(program.words, pc) == 0
        elapsed = host.cycles - host.started
        if config.trace:
            assert host.signatures == report.signatures
        host.signatures.clear()
        np.testing.assert_array_equal(memory.bytes, golden.dram[: memory.bytes.size])
        if config.argmax:
            for name in ("ARGMAX", "ARGMAX_VALUE"):
                assert await host.read(name) == golden.read_register(name)
        counters = await host.counters()
        # The host polls, and waits for the counters, which are written one after the other.
        assert elapsed - 2 * len(COUNTERS) <= counters["CYCLES"] <= elapsed
        assert counters["MACS"] == report.counters["macs"]
        assert counters["GATED"] == counts.gated * config.operand_gating
        assert counters["LOADED"] == memory.loaded - loaded
        assert counters["STORED"] == memory.stored - stored
        assert counters["ARRAY_PRODUCT"] <= counters["SPAN_MATRIX"] <= counters["CYCLES"]
        for engine in Engine:
            busy, stall, wait = (
                counters[f"{kind}_{engine.name}"] for kind in ("BUSY", "STALL", "WAIT")
            )
            idle = counters[f"IDLE_{engine.name}"]
            assert stall <= busy
            assert busy + wait + idle == counters["CYCLES"]
        array = {name: count for name, count in counters.items() if name.startswith("ARRAY_")}
        assert sum(array.values()) == counters["CYCLES"]
        idle = sum(array[f"ARRAY_{name}"] for name in ("QUEUE", "FETCH", "OVER"))
        assert idle == counters["IDLE_MATRIX"]
        assert array["ARRAY_FETCH"] > 0
        assert array["ARRAY_PRODUCT"] == counts.vectors
        assert array["ARRAY_MEMORY"] <= counters["STALL_MATRIX"]
        waits = sum(array[f"ARRAY_WAIT_{name}"] for name in ("LOAD", "VECTOR", "STORE"))
        assert waits >= counters["WAIT_MATRIX"]
