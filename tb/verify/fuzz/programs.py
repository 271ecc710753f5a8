"""Fuzzing with random programs, legal and illegal, on the circuit and the golden machine."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import InputError, ProgramError
from celosia.arch.instruction import Instruction, unpack
from celosia.arch.isa import Opcode
from celosia.arch.presets import PRESETS, WITH_ENGINES
from celosia.arch.registers import CONTROL_ABORT, STATUS_RECOVERING, Cause, cause_of
from celosia.generators.campaign.case import Case
from celosia.sim.checker import check
from celosia.sim.interpreter import Interpreter
from celosia.tb.machine.recovery import MEMORY_BYTES, disturbed
from celosia.tb.machine.simulated import VerilatorMachine
from celosia.tb.verify.random_programs import RandomProgram, fitting_program

_STEPS = 8  # random instructions of a program, besides those that make it independent
_LIMIT = 300_000  # cycles; legal programs take a tenth of this
_POLL = 1000  # cycles
_LATENCIES = 60  # cycles
_LOOP_COUNT = 4  # at most, of a program that is broken: the golden machine runs every iteration


@dataclass(frozen=True)
class _Wanted:
    """Signatures of a run of the golden machine, and the bytes that it stored."""

    signatures: list[int]
    stored: bytes


def run(case: Case) -> dict[str, Any]:
    """Run a random program on the circuit and the golden machine; return a dictionary.

    Half of the programs are damaged. If the machine refuses a damaged program, the circuit must run
    the undamaged program next. Keys of the result:

    - ``mismatch``: the circuit's first error, or empty.
    - ``refusal``: the reason for a refusal, or empty.
    - ``cause``: the error cause in STATUS.
    """
    rng = case.rng()
    config = disturbed(PRESETS[case.choice("config", WITH_ENGINES)])
    whole = fitting_program(config, rng, _STEPS)
    broken = case.index % 2 == 1
    words = _broken(whole.words, rng) if broken else whole.words
    refusal, wanted = _golden(whole, words, config)
    # An accepted damaged program may read unwritten words, which are 0 on the golden machine.
    machine = VerilatorMachine(
        config,
        memory_bytes=MEMORY_BYTES,
        latency=int(rng.integers(_LATENCIES)),
        contents=0 if broken and not refusal else int(rng.integers(1, 1 << 30)),
    )
    try:
        if wanted is not None:
            mismatch = _differs(machine, whole, words, wanted)
        else:
            mismatch = _stop(machine, whole, words)
        cause = cause_of(machine.read_register("STATUS")).name
        if refusal and not mismatch:
            mismatch = _next(machine, whole)
    finally:
        machine.close()
    return {"mismatch": mismatch, "refusal": refusal.partition(" at word")[0], "cause": cause}


def _broken(words: list[int], rng: np.random.Generator) -> list[int]:
    """Return a program with some words replaced, whose loops are still short."""
    while True:
        broken = list(words)
        for _ in range(int(rng.integers(1, 6))):
            place, kind = int(rng.integers(len(broken))), rng.integers(4)
            if kind == 0:
                broken[place] = int(rng.integers(1 << 32))
            elif kind == 1:
                broken[place] ^= 1 << int(rng.integers(32))
            elif kind == 2:
                del broken[place]
            else:
                broken.insert(place, broken[int(rng.integers(len(broken)))])
        if all(map(_is_short, _readable(broken))):
            return broken


def _readable(words: list[int]) -> Iterator[Instruction]:
    """Yield the instructions before the first illegal word."""
    with contextlib.suppress(ProgramError):
        yield from unpack(words)


def _is_short(instruction: Instruction) -> bool:
    if instruction.opcode != Opcode.LOOP:
        return True
    count = instruction.operand("count")
    return count.immediate <= _LOOP_COUNT and not count.register


def _golden(program: RandomProgram, words: list[int], config: Config) -> tuple[str, _Wanted | None]:
    """Return the sentence by which a program is refused, or the golden machine's results.

    The checker sees the words, the golden machine the parameters that they load, too.
    """
    try:
        check(words, config)
        golden = Interpreter(config)
        program.load(golden, words)
        signatures = golden.start().signatures
    except (ProgramError, InputError) as error:
        return str(error), None
    return "", _Wanted(signatures, program.stored(golden))


def _stop(machine: VerilatorMachine, program: RandomProgram, words: list[int]) -> str:
    """Run a program that is refused, and abort it if the machine does not stop it.

    If it reaches its HALT, it may leave accumulators that no reset has cleared.
    """
    program.load(machine, words)
    machine.begin()
    machine.wait(_LIMIT)
    if cause_of(machine.read_register("STATUS")) == Cause.NONE:
        machine.write_register("CONTROL", CONTROL_ABORT)
        if machine.wait(_LIMIT) >= _LIMIT:
            return "ABORT does not end a program with random words"
    # It is cut off and writes no more once memory has accepted all outstanding words.
    for _ in range(_LIMIT // _POLL):
        if not machine.read_register("STATUS") & STATUS_RECOVERING:
            machine.report()  # the signatures of its writes
            return ""
        machine.clock(_POLL)
    return "The machine does not recover from a program with random words"


def _differs(
    machine: VerilatorMachine, program: RandomProgram, words: list[int], wanted: _Wanted
) -> str:
    """Run a program, and return how its results differ from those of the golden machine."""
    program.load(machine, words)
    machine.begin()
    if machine.wait(_LIMIT) >= _LIMIT:
        return "The program does not end"
    status = machine.read_register("STATUS")
    if status:
        return f"The program ends with STATUS {status:#x}"
    if machine.report().signatures != wanted.signatures:
        return "Signatures differ"
    if program.stored(machine) != wanted.stored:
        return "External memory differs"
    return ""


def _next(machine: VerilatorMachine, program: RandomProgram) -> str:
    """Run the program without random words, and return how its results differ."""
    refusal, wanted = _golden(program, program.words, machine.config)
    mismatch = refusal if wanted is None else _differs(machine, program, program.words, wanted)
    return mismatch and f"After a program with random words: {mismatch}"
