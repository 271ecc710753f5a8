"""Assembler and disassembler of programs as text, with one instruction a line.

A line is the opcode's name, operands as ``NAME=VALUE``, and flags. A value is an integer, a
register ``rN``, or ``INTEGER+rN``; it is 0 if omitted. ``pop=ENGINES`` and ``push=ENGINES`` list
engines to wait for and to signal. A ``#`` starts a comment. For example::

    LOAD dram_addr=0+r1 dram_stride=16 m=4 row_bytes=16 sp_stride=16 push=MATRIX
"""

import re

from celosia.arch.errors import ProgramError
from celosia.arch.instruction import Instruction, Operand
from celosia.arch.isa import DEFINITIONS, Engine, Opcode

_VALUE = re.compile(r"(?:(?P<immediate>-?(?:0x[0-9a-fA-F]+|\d+))(?:\+|$))?(?:r(?P<register>\d+))?")


def assemble(text: str) -> list[Instruction]:
    """Return the list of instructions that a program text defines, one for each line.

    Empty lines and comments define no instruction. Raises :class:`ProgramError` if a line is
    malformed; the message has the line's number.
    """
    program = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if words:
            try:
                program.append(_instruction(words))
            except ProgramError as error:
                raise ProgramError(f"Line {number}: {error}") from error
    return program


def disassemble(program: list[Instruction]) -> str:
    """Return a program as assembler text, with one instruction per line.

    :func:`assemble` converts this text back to an equal program.
    """
    return "".join(f"{_line(instruction)}\n" for instruction in program)


def _instruction(words: list[str]) -> Instruction:
    if words[0] not in Opcode.__members__:
        raise ProgramError(f"Unknown instruction {words[0]!r}")
    opcode = Opcode[words[0]]
    operands: dict[str, Operand] = {}
    flags = set()
    tokens: dict[str, frozenset[Engine]] = {}
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if not equals:
            flags.add(word)
        elif name in ("pop", "push"):
            tokens[name] = frozenset(_engine(engine) for engine in value.split(","))
        else:
            operands[name] = _operand(value)
    return Instruction(opcode, operands, frozenset(flags), **tokens)


def _engine(name: str) -> Engine:
    if name not in Engine.__members__:
        raise ProgramError(f"Unknown engine {name!r}")
    return Engine[name]


def _operand(value: str) -> Operand:
    match = _VALUE.fullmatch(value)
    if match is None or not value:
        raise ProgramError(f"A value must look like 5, r1 or 5+r1, not {value!r}")
    return Operand(int(match["immediate"] or "0", 0), int(match["register"] or "0"))


def _line(instruction: Instruction) -> str:
    words = [instruction.opcode.name]
    for name in DEFINITIONS[instruction.opcode].operands:
        operand = instruction.operand(name)
        if operand != Operand(0):
            register = f"+r{operand.register}" if operand.register else ""
            words.append(f"{name}={operand.immediate}{register}")
    words += sorted(instruction.flags)
    for name, engines in (("pop", instruction.pop), ("push", instruction.push)):
        if engines:
            words.append(f"{name}={','.join(engine.name for engine in sorted(engines))}")
    return " ".join(words)
