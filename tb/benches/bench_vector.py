"""Bench of the vector engine, with NumPy arrays as models of scratchpad and accumulators.

Parameters: ``config``, all fields of the configuration; ``programs`` and ``steps``, the numbers of
random programs and of their instructions; ``stall``, the probability in each cycle that a memory
waits.
"""

import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.errors import ProgramError
from celosia.arch.functions import TABLE_ENTRIES
from celosia.arch.isa import DEFINITIONS, Engine, Opcode
from celosia.arch.latency import (
    drain_latency,
    epilogue_latency,
    intake_latency,
    reader_latency,
    words_wait,
)
from celosia.hdl.functions.addnorm import AddNormUnit
from celosia.hdl.functions.argmax import ArgmaxUnit, largest_layout
from celosia.hdl.functions.rotary import RotaryUnit
from celosia.hdl.functions.softmax import SoftmaxUnit
from celosia.hdl.ports import DrainPort, command_layout, write_layout
from celosia.hdl.vector.epilogue import Epilogue
from celosia.sim.admission import check_step
from celosia.sim.flow import Step
from celosia.sim.interpreter import Interpreter
from celosia.sim.regions import ceil_div
from celosia.sim.report import signature
from celosia.tb.benches.common import parameters, rng, start_clock
from celosia.tb.machine.packing import pack, unpack
from celosia.tb.verify.random_programs import RandomProgram, random_program

COMMAND = command_layout(Engine.VECTOR)
SLOW = 0.3, 0.95
"""Probability that a port is slow during a run, and that a slow port accepts nothing in a cycle."""
AWAITED = 30
"""Most cycles after a NORM or SOFTMAX in which its rows' factors are kept: the next commands
wait."""
TRIES = 8
"""Commands drawn for each opcode; the cycles of the admissible ones are counted."""


class Surroundings:
    """Test environment of the vector engine: models of the scratchpad and the accumulators.

    The environment checks the engine's requests and status. ``sp`` and ``acc`` are the contents of
    the scratchpad and the accumulators.
    """

    def __init__(self, dut: Any, config: Config, random: np.random.Generator, stall: float):
        self.dut, self.config, self.random, self.stall = dut, config, random, stall
        self.sp = random.integers(0, 256, config.scratchpad.bytes).astype(np.uint8)
        self.acc = np.zeros((config.accumulators.depth, config.array.cols), np.int64)
        self.signatures: list[int] = []
        self.cycles = 0
        self.pushed = 0
        self.accepted = False
        self.early = 0  # commands that were taken before they were done
        self._slow = ""  # a port
        self._behind = False
        self._written = 0
        self._readers = ["v", "r", "drain"]
        self._writers = ["o", "s"] if config.vector.norm else ["o"]
        self._ports = [*self._readers, *self._writers]
        self._due: dict[str, deque[int | None]] = {
            name: deque([None] * (config.acc_latency if name == "drain" else config.sram_latency))
            for name in self._readers
        }
        self._offered: dict[str, int] = {}
        self._driven: dict[str, int] = {"i__valid": 0}
        self._handles: dict[str, Any] = {}
        self._write_layout = write_layout(config.access)
        self._row_layout = DrainPort(config.accumulators, config.array.cols).members["data"].shape

    def drive(self, name: str, value: int) -> None:
        """Drive the engine's input ``name`` with ``value``, unless it has this value already."""
        if self._driven.get(name) != value:
            self._driven[name] = value
            self._handle(name).value = value

    def get(self, name: str) -> int:
        """Return the value of the engine's output ``name``."""
        return int(self._handle(name).value)

    def _handle(self, name: str) -> Any:
        if name not in self._handles:
            self._handles[name] = getattr(self.dut, name)
        return self._handles[name]

    async def cycle(self) -> bool:
        """Run one clock cycle; return whether a command was completed in it.

        The method answers reads, accepts requests, and checks the engine's status outputs.
        """
        for name in self._readers:
            self._answer(name, self._due[name].popleft())
        stalls = {name: SLOW[1] if name == self._slow else self.stall for name in self._ports}
        ready = {name: int(self.random.random() >= stall) for name, stall in stalls.items()}
        for name, value in ready.items():
            self.drive(f"{name}__request__ready", value)
        await FallingEdge(self.dut.clk)
        valid = {name: self.get(f"{name}__request__valid") for name in self._ports}
        done = self._check_status(any(valid[name] and not ready[name] for name in ready))
        requests = {name: self._take(name, valid[name], ready[name]) for name in ready}
        for name in self._readers:
            self._due[name].append(self._read(name, requests[name]))
        for name in self._writers:
            self._write(name, requests[name])
        if self.config.control.trace:
            self._trace(requests, done)
        if done:
            self.pushed = self.get("status__push")
            self.signatures.append(self._written)
            self._written = 0
        self.cycles += 1
        await RisingEdge(self.dut.clk)
        return done

    def _answer(self, name: str, bits: int | None) -> None:
        data = f"{name}__data"
        if bits is not None:
            self.drive(data, bits)
        elif self._driven.get(f"{name}__valid"):
            # What is not valid may be anything.
            width = len(self._handle(data))
            self.drive(data, int.from_bytes(self.random.bytes(width // 8 + 1), "little") >> 8)
        self.drive(f"{name}__valid", int(bits is not None))

    def _take(self, name: str, valid: int, ready: int) -> int | None:
        """Return the accepted request; a waiting request must neither vanish nor change."""
        payload = self.get(f"{name}__request__payload") if valid else None
        if name in self._offered:
            assert payload == self._offered.pop(name), f"{name} changed its request"
        if payload is not None and not ready:
            self._offered[name] = payload
        return payload if ready else None

    def _read(self, name: str, addr: int | None) -> int | None:
        if addr is None:
            return None
        if name == "drain":
            row = self.acc[addr].tolist()
            self.acc[addr] = 0
            return pack(self._row_layout, row)
        config = self.config
        addr -= addr % config.scratchpad.align
        end = min(addr + config.line_bytes, (addr // config.bank_bytes + 1) * config.bank_bytes)
        undefined = self.random.bytes(config.line_bytes - (end - addr))
        return int.from_bytes(self.sp[addr:end].tobytes() + undefined, "little")

    def _write(self, name: str, bits: int | None) -> None:
        if bits is None:
            return
        write = unpack(self._write_layout, bits)
        addr, count = write["addr"], write["count"]
        assert 1 <= count <= self.config.line_bytes
        data = np.array(write["data"][:count], np.uint8)
        self.sp[addr : addr + count] = data
        self._written += signature(np.arange(addr, addr + count), data)

    def _check_status(self, waits: bool) -> bool:
        """Check the engine's status outputs; return whether a command is done."""
        done, valid = self.get("status__done"), self._driven["i__valid"]
        self.accepted = bool(self.get("i__ready"))
        assert self.get("status__busy") == (valid or self._behind)
        assert self.get("status__stall") == waits
        assert valid or not self.accepted
        if self._behind:
            # One that was taken early ends before the next is taken.
            assert not self.accepted
            self._behind = not done
        else:
            assert self.accepted or not done
            self._behind = self.accepted and not done
            self.early += self._behind
        return bool(done)

    def _trace(self, requests: dict[str, int | None], done: bool) -> None:
        for name in ("o", "s"):
            written = requests.get(name)
            assert self.get(f"trace__{name}_valid") == (written is not None)
            if written is not None:
                assert self.get(f"trace__{name}_write") == written
        assert self.get("trace__retire") == done

    async def run(self, *steps: Step) -> int:
        """Run a chain of commands on the vector engine, and return the number of cycles.

        The count of cycles begins with the offer of the first command, and ends with the last
        command. All commands but the last must have the flag ``followed``, so that the next one may
        overlap. Each next command is offered at a random time.
        """
        first, pushes = self.cycles, list[int]()
        slow = self.stall and self.random.random() < SLOW[0]
        # The end of a command waits for sums that are written back late.
        sums = any("write_sum" in step.flags for step in steps)
        ports = ["s"] if sums else self._ports
        self._slow = str(self.random.choice(ports)) if slow else ""
        waiting, done = deque(steps), 0
        while done < len(steps):
            if (
                not self._driven["i__valid"]
                and waiting
                and (not pushes or self.random.random() < 0.7)
            ):
                pushes.append(self._offer(waiting.popleft()))
            if await self.cycle():
                assert self.pushed == pushes[done]
                done += 1
            if self.accepted:
                self.drive("i__valid", 0)
            assert self.cycles < first + 100_000, f"{steps} do not end"
        return self.cycles - first

    def _offer(self, step: Step) -> int:
        """Offer a command and return the engines to which it gives tokens."""
        random, definition = self.random, DEFINITIONS[step.opcode]
        # Operands that an instruction does not have may be anything.
        command = {name: int(random.integers(-(1 << 27), 1 << 27)) for name, _ in COMMAND}
        flags = sum(1 << definition.flag_bit(flag) for flag in step.flags)
        push = int(random.integers(1 << len(Engine)))
        command |= {"opcode": step.opcode, "push": push, "flags": flags, **step.operands}
        self.drive("i__payload", pack(COMMAND, command))
        self.drive("i__valid", 1)
        return push


async def _surroundings(dut: Any, stall: float) -> Surroundings:
    config = Config.of(**parameters()["config"])
    # Answers come before the reset, but no command.
    await start_clock(dut, rng(), still=["i__valid", "i__payload"])
    return Surroundings(dut, config, rng(), stall)


@dataclass(frozen=True)
class _Expected:
    step: Step
    sp: NDArray[np.uint8]
    acc: NDArray[np.int64]
    largest: dict[str, int]


def _expect(golden: Interpreter, program: RandomProgram) -> tuple[list[_Expected], list[int]]:
    """Run a program on the golden machine; return the state after each step, and signatures."""
    golden.write_memory(0, program.image)
    golden.load_program(program.words)
    expected: list[_Expected] = []
    golden.on_step = lambda step, machine: expected.append(
        _Expected(
            step,
            machine.sp.copy(),
            machine.acc.copy(),
            {"value": machine.argmax_value, "column": machine.argmax},
        )
    )
    return expected, golden.start().signatures


@cocotb.test()
async def every_instruction_is_exact(dut: Any) -> None:
    """After every command, scratchpad and accumulators are the same as in the golden machine."""
    settings = parameters()
    room = await _surroundings(dut, settings["stall"])
    config, random = room.config, room.random
    golden = Interpreter(config)
    golden.sp[:] = room.sp
    followed = 0
    for _ in range(settings["programs"]):
        expected, signatures = _expect(golden, random_program(config, random, settings["steps"]))
        chain: list[Step] = []
        for after in expected:
            if after.step.engine != Engine.VECTOR:
                # What the other engines do is done at once.
                room.sp[:], room.acc[:] = after.sp, after.acc
                continue
            chain.append(after.step)
            if "followed" in after.step.flags:
                followed += 1
                continue
            for _ in range(int(random.integers(3))):
                await room.cycle()
            await room.run(*chain)
            chain.clear()
            message = f"{after.step} {sorted(after.step.flags)} {dict(after.step.operands)}"
            np.testing.assert_array_equal(room.sp, after.sp, message)
            np.testing.assert_array_equal(room.acc, after.acc, message)
            if "argmax" in after.step.flags:
                for _ in range(ArgmaxUnit(config.vector.lanes).latency):
                    await room.cycle()
                assert unpack(largest_layout(), room.get("largest")) == after.largest, message
        assert [value % (1 << 64) for value in room.signatures] == signatures
        room.signatures.clear()
    assert bool(room.early) == bool(followed)


def _random_steps(config: Config, random: np.random.Generator) -> Iterator[Step]:
    """Yield admissible commands of every opcode, with small shapes and all addresses 0."""
    for opcode, definition in DEFINITIONS.items():
        for _ in range(TRIES if definition.engine == Engine.VECTOR else 0):
            shape = {"m": int(random.integers(1, 5)), "n": int(random.integers(1, 30))}
            flags = frozenset(flag for flag in definition.flags if random.random() < 0.5)
            flags -= {"followed", "by_tile", "spaced"}
            if "polynomial" in flags and random.random() < 0.7:
                flags &= {"per_tensor", "relu", "polynomial"}
            if "rotate" in definition.flags and random.random() < 0.5:
                flags &= {"wide_out", "per_tensor"}
                flags |= {str(random.choice(["rotate", "times"]))}
                shape |= {"n": 2 * shape["n"], "table": 2 * int(random.integers(1, 20))}
            operands = {name: shape.get(name, 0) for name in definition.operands}
            step = Step(0, opcode, Engine.VECTOR, operands, flags, frozenset(), frozenset())
            with contextlib.suppress(ProgramError):
                check_step(step, config)
                yield step


def _stated(config: Config, step: Step) -> int:
    """Return the cycles that the vector engine's docstring states."""
    opcode, lanes = step.opcode, config.vector.lanes
    if opcode == Opcode.SOFTMAX:
        lanes = config.beat_lanes
    m, n = step.operands.get("m", 1), step.operands.get("n", 1)
    begins = reader_latency(config.stages) + config.control.registered
    overhead = begins + epilogue_latency(config)
    beats = ceil_div(n, lanes)
    if step.flags & {"rotate", "times"}:
        overhead += RotaryUnit.latency
    if "polynomial" in step.flags:
        overhead += Epilogue.polynomial_latency
    if opcode == Opcode.MAP:
        overhead += words_wait(config, reader_latency(config.stages))
    if opcode == Opcode.DRAIN:
        tiles, rest = divmod(n, config.array.cols)
        overhead += drain_latency(config) + config.control.registered - begins
        overhead += words_wait(config, drain_latency(config))
        return m * (tiles * config.lane_groups + ceil_div(rest, lanes)) + overhead
    if opcode == Opcode.SOFTMAX:
        unit = SoftmaxUnit(lanes, config.vector.longest_row, factors=config.row_factors)
        overhead += unit.latency + 2 * config.control.registered + unit.rows(beats)
    if opcode == Opcode.NORM:
        overhead += 1 + 2 * config.control.registered
        if not config.row_factors:
            overhead += (
                AddNormUnit(lanes=lanes, max_row=config.vector.longest_row).latency + beats - 2
            )
    if "drain" in step.flags:
        overhead += (
            drain_latency(config) + config.control.registered + intake_latency(config) - begins
        )
    fills = {
        Opcode.PARAMS: n * config.param_lines,
        Opcode.TABLE: TABLE_ENTRIES,
    }
    if opcode in fills:
        return fills[opcode] + begins
    return m * beats + overhead


@cocotb.test()
async def cycles_are_as_stated(dut: Any) -> None:
    """Every vector engine command takes the cycles that the docstring of the engine's class states.

    In this test the memories accept every request at once, and each command runs alone.
    """
    room = await _surroundings(dut, 0.0)
    for step in _random_steps(room.config, room.random):
        cycles = await room.run(step)
        for _ in range(AWAITED if "factors" in step.flags else 0):
            await room.cycle()
        assert cycles == _stated(room.config, step), f"{step.opcode.name} {dict(step.operands)}"
