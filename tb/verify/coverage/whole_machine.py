"""Measurement of the coverage of the whole accelerator.

The measured runs are programs for goals of functional coverage, an inference of a model, and runs
that are disturbed by resets, aborts and memory errors.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import RunError
from celosia.arch.instruction import Instruction, pack
from celosia.arch.isa import MAX_TOKENS, Engine, Opcode
from celosia.arch.registers import (
    CONTROL_ABORT,
    REGISTER_MAP,
    STATUS_RECOVERING,
    Cause,
    cause_of,
)
from celosia.generators.frontend import digits
from celosia.generators.runtime.golden import GoldenModel
from celosia.hdl.control.recovery import FLUSH
from celosia.hdl.machine import machine_component
from celosia.sim.interpreter import Interpreter
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.recovery import KINDS, Campaign
from celosia.tb.machine.simulated import MemoryBehaviour, VerilatorMachine
from celosia.tb.models.digits_model import compile_digits
from celosia.tb.verify.coverage.functional import STALLS, goals
from celosia.tb.verify.coverage.goal_programs import MEMORY_BYTES, DirectedProgram
from celosia.tb.verify.coverage.points import Coverage, read_points
from celosia.tb.verify.coverage.verilog import CoveredVerilog

_MOST = 64
"""Largest size of a goal that is run here, since Verilator's counting is slow."""
_GOALS = 18
"""Most goals of a program that fit; most cycles of a program go to whole scratchpads."""
_TRIALS = 2  # of each kind of disturbance
_BEGUN = 300  # cycles after which a run moves words, and a machine that must wait does so

Part = Callable[[Config, VerilatorMachine, np.random.Generator], None]


def run_part(part: str, config: Config, rng: np.random.Generator) -> Coverage:
    """Simulate runs of an accelerator, and return the coverage of each of its modules.

    ``part``, a name in ``PARTS``, selects the runs: programs for coverage goals, disturbed runs, or
    an inference. Raises :class:`RunError` if a result differs from the golden machine's, or an
    error cause is wrong.
    """
    verilog = CoveredVerilog(machine_component(config))
    runs, timing = PARTS[part]
    with tempfile.TemporaryDirectory(prefix="celosia.") as folder:
        data = Path(folder) / "coverage.dat"
        machine = VerilatorMachine(
            config,
            memory_bytes=MEMORY_BYTES,
            verilog=verilog.text,
            coverage=data,
            limit=20_000_000,
            **timing.fields(),
        )
        try:
            runs(config, machine, rng)
            machine.write_coverage()
        finally:
            machine.close()
        return read_points(data, verilog)


def _programs(
    part: int, config: Config, machine: VerilatorMachine, rng: np.random.Generator
) -> None:
    """Run programs for a part of the goals of small sizes."""
    wanted = [goal for goal in goals(config) if goal.value <= _MOST][part :: len(STALLS)]
    for first in range(0, len(wanted), _GOALS):
        program = DirectedProgram(config, rng)
        for goal in wanted[first : first + _GOALS]:
            program.add(goal)
        machine.reset(2, cold=True)  # it begins with empty accumulators
        _check(program.compare(Interpreter(config), machine))
    program = DirectedProgram(config, rng)
    program.wait_for_store(next(goal for goal in goals(config) if goal.opcode == Opcode.MATMUL))
    machine.reset(2, cold=True)
    _check(program.compare(Interpreter(config), machine))
    waited = machine.read_register("ARRAY_WAIT_STORE_LOW")
    _check("" if waited else "The array has not waited for STORE")


def _recovery(config: Config, machine: VerilatorMachine, rng: np.random.Generator) -> None:
    """Disturb runs of random programs, run illegal ones, and read every register of the host."""
    campaign = Campaign(config, int(rng.integers(1 << 30)), programs=3, machine=machine)
    for kind in _TRIALS * KINDS:
        _check(campaign.trial(kind).mismatch)
    _check("; ".join(filter(None, campaign.cold)))
    for program in _moving(config):
        _give_up(config, machine, program)
    _check(campaign.trial("abort").mismatch)  # and the next run is exact
    machine.write_register("INTERRUPT_ENABLE", 1)
    for cause, program in _WRONG.items():
        words = pack(program)
        first = config.control.program_depth - len(words)  # the last word is followed by none
        machine.write_register("PROGRAM_ADDR", first)
        for word in words:
            machine.write_register("PROGRAM_DATA", word)
        _stops(machine, first, cause)
    _stops(machine, config.control.program_depth, Cause.PROGRAM)
    machine.write_register("INTERRUPT", machine.read_register("INTERRUPT"))
    _check("" if machine.read_register("INTERRUPT") == 0 else "INTERRUPT stays")
    for name in REGISTER_MAP:
        machine.read_register(name)


def _moving(config: Config) -> list[list[Instruction]]:
    """Return programs that move words for long, between different halves of both memories.

    In the first, requests and words wait as memory falls silent: its rows are so short that the
    next one's burst is requested, but so long that reports keep up with them. In the second only
    words are owed then, as its few bursts have been requested.
    """
    row = 3 * config.mem_bytes
    rows = {"m": config.bank_bytes // row, "dram_stride": row, "sp_stride": row, "row_bytes": row}
    places = dict.fromkeys(("sp_addr", "dram_addr"), config.bank_bytes)
    store, load = Instruction(Opcode.STORE, rows), Instruction(Opcode.LOAD, rows | places)
    long = Instruction(Opcode.LOAD, {"m": 1, "row_bytes": 2 * _BEGUN * config.mem_bytes})
    return [[store, load, _HALT], [long, _HALT]]


def _give_up(config: Config, machine: VerilatorMachine, program: list[Instruction]) -> None:
    """Abort a program that moves words while memory is silent for longer than all else takes."""
    machine.load_program(pack(program))
    machine.begin()
    machine.clock(_BEGUN)
    machine.behave(MemoryBehaviour.SILENT)
    machine.clock(_BEGUN)
    machine.write_register("CONTROL", CONTROL_ABORT)
    machine.clock(FLUSH + config.accumulators.depth + _BEGUN)
    status = machine.read_register("STATUS")
    _check("" if status & STATUS_RECOVERING else f"STATUS tells {status:#x} while words are owed")
    machine.behave(MemoryBehaviour.ANSWERS)
    machine.wait(100_000)
    cause = cause_of(machine.read_register("STATUS"))
    _check("" if cause == Cause.ABORTED else f"STATUS tells {cause.name}, not ABORTED")


def _stops(machine: VerilatorMachine, pc: int, cause: Cause) -> None:
    """Start at a word, and raise :class:`RunError` if STATUS does not report a cause then."""
    machine.begin(pc)
    machine.wait(100_000)
    stated = cause_of(machine.read_register("STATUS"))
    _check("" if stated == cause else f"STATUS tells {stated.name}, not {cause.name}")


def _digits(config: Config, machine: VerilatorMachine, _rng: np.random.Generator) -> None:
    """Run an inference of a trained model."""
    compiled = compile_digits("digits", config)
    values = digits.patches(digits.load()[1].images[:1])[0]
    for runner in (machine, golden := GoldenModel(compiled).machine):
        runner.write_memory(0, compiled.image.tobytes())
        runner.load_program(compiled.words)
        compiled.request(values).give(runner)
    _check("" if machine.start().signatures == golden.start().signatures else "Signatures differ")


def _check(mismatch: str) -> None:
    if mismatch:
        raise RunError(mismatch)


_LOAD = Instruction(Opcode.LOAD, {"m": 1, "row_bytes": 1})
_HALT = Instruction(Opcode.HALT)
_WRONG = {
    Cause.LOOP: [Instruction(Opcode.ENDLOOP), _HALT],
    Cause.REGISTER: [Instruction(Opcode.SET), _HALT],
    Cause.PROGRAM: [_LOAD],
    Cause.TOKENS: [
        Instruction(Opcode.LOOP, {"count": MAX_TOKENS + 1}),
        replace(_LOAD, push=frozenset({Engine.STORE})),
        Instruction(Opcode.ENDLOOP),
        _HALT,
    ],
    Cause.DEADLOCK: [replace(_LOAD, pop=frozenset({Engine.STORE})), _HALT],
}
"""Programs that are stopped, by the cause that STATUS then reports."""

PARTS: dict[str, tuple[Part, MemoryTiming]] = {
    **{
        f"accelerator_{name}": (partial(_programs, part), timing)
        for part, (name, timing) in enumerate(STALLS.items())
    },
    # Runs take as long as others where a cycle of memory is like any other.
    "accelerator_recovery": (_recovery, MemoryTiming(latency=23)),
    "accelerator_digits": (_digits, STALLS["refresh"]),
}
"""Runs of the accelerator, and the timing of its memory."""
