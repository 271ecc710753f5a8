"""Random programs that use all instructions of a configuration, with random operands."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import ProgramError
from celosia.arch.instruction import Instruction, Operand, pack, wrap
from celosia.arch.isa import LOOP_LEVELS, REGISTERS, RING_SLOTS, Opcode
from celosia.generators.program.layout import param_words, rows_image
from celosia.generators.program.tokens import insert_tokens
from celosia.generators.runtime.interface import Machine
from celosia.sim.admission import check_step
from celosia.sim.flow import run
from celosia.sim.regions import Region, regions
from celosia.tb.verify.instruction_maker import IMAGE_ROWS, InstructionMaker

CLEARED_ROW = 256
"""Bytes of zeros that are copied over the scratchpad, and of a row as it is stored."""


def clearing(config: Config, zeros: int = 0) -> list[Instruction]:
    """Return instructions that clear the scratchpad, parameters, tables and resident weights.

    The instructions copy ``CLEARED_ROW`` bytes of zeros, which must be in external memory from the
    address ``zeros`` on.
    """
    row = min(CLEARED_ROW, config.bank_bytes)
    rows = config.bank_bytes // row
    program = [
        Instruction(
            Opcode.LOAD,
            {
                "dram_addr": zeros,
                "sp_addr": bank * config.bank_bytes,
                "sp_stride": row,
                "m": rows,
                "row_bytes": row,
            },
        )
        for bank in range(config.scratchpad.banks)
    ]
    words = config.bank_bytes // config.word_bytes
    for first, count in _pieces(config.vector.words, words):
        program.append(Instruction(Opcode.PARAMS, {"params": first, "n": count}))
    if config.activation:
        slots = range(config.table_slots)
        program += [Instruction(Opcode.TABLE, {"table": slot}) for slot in slots]
    if config.array.weight_depth > RING_SLOTS:
        for slot in range(RING_SLOTS, config.array.weight_depth):
            operands = {
                "k": config.array.rows,
                "n": config.array.cols,
                "b_stride": config.array.cols,
                "slot": slot,
            }
            program.append(Instruction(Opcode.PRELOAD, operands))
    return program


def clearing_sums(config: Config) -> list[Instruction]:
    """Return DRAIN instructions that clear the accumulators.

    The instructions of :func:`clearing` must run before these DRAIN instructions. Otherwise the
    DRAIN instructions write values other than zero to the scratchpad.
    """
    program = []
    for first, count in _pieces(config.accumulators.depth, config.bank_bytes // config.array.cols):
        operands = {
            "acc_addr": first,
            "o_stride": config.array.cols,
            "m": count,
            "n": config.array.cols,
        }
        program.append(Instruction(Opcode.DRAIN, operands, frozenset({"per_tensor"})))
    return program


def _pieces(total: int, most: int) -> list[tuple[int, int]]:
    """Cut a range into pieces, each its first place and its length."""
    return [(first, min(most, total - first)) for first in range(0, total, most)]


@dataclass(frozen=True)
class RandomProgram:
    """A random program: its words, the initial external memory, and the bytes it may write.

    ``image`` is external memory's content from address 0 on. The program may write
    ``result_bytes`` bytes from the address ``result_addr`` on.
    """

    words: list[int]
    image: bytes
    result_addr: int
    result_bytes: int

    def load(self, machine: Machine, words: Sequence[int] | None = None) -> None:
        """Load the program to a machine, and write the initial content of its external memory.

        The bytes for the program's result are set to zero. ``words`` replaces the program's words
        if it is not None.
        """
        machine.write_memory(0, self.image)
        machine.write_memory(self.result_addr, bytes(self.result_bytes))
        machine.load_program(self.words if words is None else words)

    def stored(self, machine: Machine) -> bytes:
        """Return the ``result_bytes`` bytes of external memory that the program may write.

        ``machine`` is a machine that has run the program. The bytes begin at the address
        ``result_addr``.
        """
        return machine.read_memory(self.result_addr, self.result_bytes)


def _in_place(written: Region, read: Region) -> bool:
    """Return whether elements are written where they were read, or before that if narrower."""
    return (
        (written.addr, written.stride, written.m) == (read.addr, read.stride, read.m)
        and written.count <= read.count
        and abs(written.stride) >= read.count
    )


def _fits(instruction: Instruction, config: Config) -> bool:
    """Return whether a step is admissible and has one meaning in any order of its accesses."""
    words = pack([instruction, Instruction(Opcode.HALT)])
    for step in run(words):
        try:
            check_step(step, config)
        except ProgramError:
            return False
        reads, writes = regions(step, config)
        read = [region for region in reads if region.memory == "sp"]
        written = [region for region in writes if region.memory == "sp"]
        for index, region in enumerate(written):
            cells = region.cells().ravel()
            if np.unique(cells).size < cells.size:
                return False
            others = [other for other in read if not _in_place(region, other)]
            others += written[index + 1 :]
            if any(np.intersect1d(cells, other.cells()).size for other in others):
                return False
    return True


def _head(config: Config, rng: np.random.Generator, addr: int) -> tuple[list[Instruction], bytes]:
    """Return instructions that load random parameters from an external address, and the data."""
    room = config.bank_bytes // config.word_bytes
    columns = min(config.vector.words, room, 64) * config.vector.lanes
    shifts = rng.integers(-20, 3, columns)
    params = param_words(
        rng.integers(-(1 << 20), 1 << 20, columns),
        rng.integers(1 << 29, 1 << 31, columns),
        shifts,
        config,
        by_tile=False,
    )
    data, stride = rows_image(params, config)
    load = {"dram_addr": addr, "dram_stride": stride, "sp_stride": params.shape[1]}
    load |= {"m": len(params), "row_bytes": params.shape[1]}
    return [
        Instruction(Opcode.LOAD, load),
        Instruction(Opcode.PARAMS, {"n": len(params)}),
    ], data


def _split(instruction: Instruction, rng: np.random.Generator) -> list[Instruction]:
    """Return an instruction, or sometimes one on sums split into several, each begun early."""
    rows = instruction.operand("m").immediate if "m" in instruction.operands else 1
    splits = instruction.opcode == Opcode.SOFTMAX and "drain" in instruction.flags
    splits |= instruction.opcode == Opcode.DRAIN
    splits &= not instruction.flags & {"diagonal", "argmax", "per_row"}
    if not splits or rows < 2 or rng.random() < 0.3:
        return [instruction]
    first = int(rng.integers(1, rows))
    behind = {name: instruction.operand(name).immediate for name in instruction.operands}
    for name, step in (
        ("i_addr", 1),
        ("acc_addr", 1),
        ("r_addr", behind.get("r_stride", 0)),
        ("o_addr", behind["o_stride"]),
        ("start", behind.get("start_step", 0)),
        ("limit", behind.get("limit_step", 0)),
        ("m", -1),
    ):
        if name in behind:
            behind[name] += first * step
    operands = {**instruction.operands, "m": first}
    return [
        replace(instruction, operands=operands, flags=instruction.flags | {"followed"}),
        *_split(replace(instruction, operands=behind), rng),
    ]


def _controlled(program: list[Instruction], rng: np.random.Generator) -> list[Instruction]:
    """Let registers supply parts of operands, and run instructions without tokens several times."""
    values = [0, *(int(rng.integers(-(1 << 20), 1 << 20)) for _ in range(1, REGISTERS))]
    controlled = [
        Instruction(Opcode.SET, {"register": register, "value": values[register]})
        for register in range(1, REGISTERS)
    ]
    for instruction in program:
        operands = dict(instruction.operands)
        for name, value in instruction.operands.items():
            register = int(rng.integers(REGISTERS))
            if isinstance(value, int) and rng.random() < 0.3:
                operands[name] = Operand(wrap(value - values[register]), register)
        levels = 0
        alone = instruction.definition.engine is not None
        # A DRAIN that follows itself may read its output.
        alone &= instruction.opcode != Opcode.DRAIN or "followed" not in instruction.flags
        if alone and not instruction.pop | instruction.push and rng.random() < 0.2:
            levels = int(rng.integers(1, LOOP_LEVELS + 1))
        for _ in range(levels):
            count = 1 + int(rng.random() < 0.3)
            controlled.append(Instruction(Opcode.LOOP, {"count": count}))
        controlled.append(replace(instruction, operands=operands))
        controlled += [Instruction(Opcode.ENDLOOP)] * levels
    return controlled


def fitting_program(config: Config, rng: np.random.Generator, steps: int) -> RandomProgram:
    """Return a random program that clears memories first, and fits the program memory.

    ``steps`` is the number of random instructions, as for :func:`random_program`.
    """
    while True:
        program = random_program(config, rng, steps, alone=True)
        if len(program.words) <= config.control.program_depth:
            return program


def random_program(
    config: Config, rng: np.random.Generator, steps: int, *, alone: bool = False
) -> RandomProgram:
    """Return a random program: loads, then ``steps`` random instructions, then drains.

    Loads read external memory, and drains read the accumulators. If ``alone`` is true, the program
    first clears the memories that a reset does not clear. Otherwise all on-chip memories must be
    zero before the run.
    """
    row_bytes = -(-64 // config.mem_bytes) * config.mem_bytes
    data = rng.integers(0, 256, (IMAGE_ROWS, row_bytes)).astype(np.uint8)
    data[rng.random(data.shape) < 0.2] = 0
    program, params = _head(config, rng, data.size)
    image = data.tobytes() + params
    opening = []
    if alone:
        image += bytes(-len(image) % config.mem_bytes)
        opening = clearing(config, len(image))
        image += bytes(CLEARED_ROW)
    maker = InstructionMaker(config, rng, row_bytes, len(image))
    while len(program) < 14 + steps:
        filled = dict(maker.filled)
        instruction = maker.mover(Opcode.LOAD) if len(program) < 14 else maker.any()
        if _fits(instruction, config):
            program += _split(instruction, rng) if config.fused else [instruction]
        else:
            maker.filled = filled
    while maker.filled:
        filled = dict(maker.filled)
        instruction = maker.drain()
        if _fits(instruction, config):
            program.append(instruction)
        else:
            maker.filled = filled
    program = _controlled(insert_tokens(opening + program, config), rng)
    words = pack([*program, Instruction(Opcode.HALT)])
    return RandomProgram(words, image, maker.result_addr, IMAGE_ROWS * row_bytes)
