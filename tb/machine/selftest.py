"""Self-test of a machine through its host port: memories, registers, every functional unit."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.instruction import Instruction, pack
from celosia.arch.isa import RING_SLOTS, Opcode
from celosia.arch.registers import IDENTITY
from celosia.generators.program.tokens import insert_tokens
from celosia.generators.runtime.interface import Machine
from celosia.sim.flow import Step, run
from celosia.sim.interpreter import Interpreter
from celosia.tb.verify.instruction_maker import UNIT_FLAGS
from celosia.tb.verify.random_programs import (
    CLEARED_ROW,
    RandomProgram,
    clearing,
    clearing_sums,
    random_program,
)

Progress = Callable[[int, int], None]

STEPS = 30
"""Random instructions of a program at first; a program that does not fit gets fewer."""

UNITS = (
    "zero_points",
    "b_transpose",
    "activation",
    "wide_functions",
    "wide_operands",
    "softmax",
    "norm",
    "rotary",
    "argmax",
    "fused",
)
"""The units that results can distinguish, by their fields; operand gating changes no result."""

_NEEDS = {
    "fused": ("softmax", "norm"),
    "wide_functions": ("activation",),
    "wide_operands": ("zero_points",),
}
_ATTEMPTS = 40
_TRIES = 10


class HostedMachine(Machine, Protocol):
    """Interface of a machine with methods that read and write the registers of its host port."""

    def write_register(self, name: str, value: int) -> None:
        """Write a value to the register ``name`` of the host port."""


def selftest(
    machine: HostedMachine,
    config: Config,
    memory_bytes: int,
    *,
    programs: int,
    seed: int,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Test a machine by random data in memory and by random programs; return a dictionary.

    The core, each optional unit, and all units together are tested by ``programs`` programs each.
    The machine is good if the value of ``mismatches`` in the result is 0. ``progress(done, total)``
    is called after each step. Raises :class:`InputError` if no program fits the machine.
    """
    rng = np.random.default_rng(seed)
    groups = ["core", *(unit for unit in UNITS if config.read(unit)), "all"]
    total = programs * len(groups) + 3
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    wrong = int(machine.read_register("ID") != IDENTITY)
    for value in (config.control.program_depth - 1, 0):
        machine.write_register("PC", value)
        wrong += int(machine.read_register("PC") != value)
    advance()
    memory = rng.integers(0, 256, memory_bytes, np.uint8)
    damaged = 0
    for pattern in (memory, ~memory):
        machine.write_memory(0, pattern.tobytes())
        content = np.frombuffer(machine.read_memory(0, memory_bytes), np.uint8)
        damaged += int((content != pattern).sum())
        advance()
    ran: Counter[str] = Counter()
    units = {}
    for place, unit in enumerate(groups):
        failed = uses = 0
        for number in range(programs):
            random = np.random.default_rng([seed, place, number])
            trial = _trial(config, unit, memory_bytes, random)
            machine.write_memory(0, bytes(min(CLEARED_ROW, memory_bytes)))
            for words in clearing_programs(config):
                machine.load_program(words)
                machine.start()
            failed += not _agrees(machine, config, trial.program)
            uses += trial.uses
            ran.update(trial.ran)
            advance()
        # A unit is untested if no random program could use it.
        result = "fail" if failed else "pass" if uses else "untested"
        units[unit] = {"result": result, "programs": programs, "failed": failed, "uses": uses}
    known = [
        definition.opcode.name
        for definition in config.instructions
        if definition.engine is not None
        and (definition.opcode != Opcode.PRELOAD or config.array.weight_depth > RING_SLOTS)
    ]
    return {
        "memory_bytes": memory_bytes,
        "memory_mismatches": damaged,
        "register_mismatches": wrong,
        "units": units,
        "instructions": {name: ran[name] for name in known},
        "untested": [name for name in known if not ran[name]],
        "mismatches": damaged + wrong + sum(unit["failed"] for unit in units.values()),
    }


def only(config: Config, unit: str) -> Config:
    """Return ``config`` with one optional unit, ``unit``, and the units that ``unit`` needs.

    Two special values are allowed: ``core`` removes all optional units, and ``all`` keeps them. A
    program for the returned configuration gives the same results on a machine with ``config``.
    """
    if unit == "all":
        return config
    kept = {unit, *_NEEDS.get(unit, ())}
    return config.replace(**{other: False for other in UNITS if other not in kept})


def clearing_programs(config: Config) -> list[list[int]]:
    """Return programs (lists of instruction words) that together set on-chip memories to zero.

    A random program expects zeros in these memories. The returned programs copy zeros from external
    memory, whose first ``CLEARED_ROW`` bytes must be zero.
    """
    program = [*clearing(config), *clearing_sums(config)]
    step = config.control.program_depth // 12 - 1  # an instruction has at most 11 words
    return [
        pack([*insert_tokens(program[first : first + step], config), Instruction(Opcode.HALT)])
        for first in range(0, len(program), step)
    ]


@dataclass(frozen=True)
class _Trial:
    """A random program, its instructions' counts, and the number that use the tested unit."""

    program: RandomProgram
    ran: Counter[str]
    uses: int


def _trial(config: Config, unit: str, memory_bytes: int, rng: np.random.Generator) -> _Trial:
    """Return a program that fits a machine and uses a unit, if one is found."""
    part = only(config, unit)
    for _ in range(_TRIES):
        program = _fitting(part, memory_bytes, rng)
        steps = list(run(program.words))
        uses = sum(_uses(step, unit) for step in steps)
        if uses:
            break
    return _Trial(program, Counter(Opcode(step.opcode).name for step in steps), uses)


def _uses(step: Step, unit: str) -> bool:
    if unit in ("core", "all"):
        return True
    if unit == "zero_points":
        return any(step.operands.get(name) for name in ("a_zero", "b_zero"))
    return step.definition_unit == unit or bool(step.flags & UNIT_FLAGS.get(unit, set()))


def _fitting(config: Config, memory_bytes: int, rng: np.random.Generator) -> RandomProgram:
    """Return a random program for which the machine has room."""
    steps = STEPS
    for _ in range(_ATTEMPTS):
        program = random_program(config, rng, steps)
        words, end = len(program.words), program.result_addr + program.result_bytes
        if words <= config.control.program_depth and end <= memory_bytes:
            return program
        steps = max(1, steps - 2)
    raise InputError(
        f"No random program fits program_depth = {config.control.program_depth} words and "
        f"{memory_bytes} bytes of external memory"
    )


def _agrees(machine: HostedMachine, config: Config, program: RandomProgram) -> bool:
    """Return whether a program gives the same results on a machine and on the golden machine."""
    golden = Interpreter(config)
    registers = ("ARGMAX", "ARGMAX_VALUE") if config.vector.argmax else ()
    if registers:  # a run may continue from the old content
        golden.argmax, value = (machine.read_register(name) for name in registers)
        golden.argmax_value = value - (value >> 31 << 32)
    end = program.result_addr + program.result_bytes
    image = program.image + bytes(end - len(program.image))
    macs = []
    for each in (machine, golden):
        each.write_memory(0, image)
        each.load_program(program.words)
        macs.append(each.start().counters["macs"])
    return (
        (not config.control.counters or macs[0] == macs[1])
        and all(machine.read_register(name) == golden.read_register(name) for name in registers)
        and machine.read_memory(0, end) == golden.read_memory(0, end)
        and _scratchpad(machine, config, end) == golden.sp.tobytes()
    )


def _scratchpad(machine: Machine, config: Config, room: int) -> bytes:
    """Return a machine's scratchpad, read through ``room`` bytes of external memory."""
    row = min(CLEARED_ROW, config.bank_bytes)
    rows = 1 << (min(config.bank_bytes, room) // row).bit_length() - 1
    operands = {"sp_stride": row, "dram_stride": row, "m": rows, "row_bytes": row}
    content = b""
    for addr in range(0, config.scratchpad.bytes, row * rows):
        store = Instruction(Opcode.STORE, {**operands, "sp_addr": addr})
        machine.load_program(pack([store, Instruction(Opcode.HALT)]))
        machine.start()
        content += machine.read_memory(0, row * rows)
    return content
