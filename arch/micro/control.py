"""Control in microcode: start, fetch, operands, dispatch, loops, registers."""

from arch.isa import DEFINITIONS, FLAG_SHIFT, IMMEDIATE_WIDTH, LOOP_LEVELS, WORD_WIDTH, Opcode
from arch.micro.assembler import Assembler
from arch.micro.config import MicroConfig
from arch.micro.isa import Signal
from arch.micro.memory import DEPTH, FLAGS, FREE, LOOP_WORDS, OPERANDS, PC, ZERO, memory_map

_HEADER, _WORD, _VALUE, _NUMBERS, _LIST, _LEFT, _ENTRY = FREE[:7]
_NUMBERS_A_WORD = 4
_COUNT_BITS = 8


def control(a: Assembler, config: MicroConfig, handled: list[Opcode]) -> None:
    """Append what runs a program: it enters ``op NAME`` with the operands in their registers.

    Address 0 is entered once, after a reset, and clears accumulators and both registers 0. An
    instruction ends at ``next``, or at ``retire`` if it is the vector engine's.
    """
    where = memory_map(config)
    a.alu("ANDI", ZERO, ZERO, 0)
    a.store("ST", ZERO, ZERO, where.registers)
    a.constant(_LEFT, config.acc_depth)
    a.label("clear")
    a.alu("ADDI", _WORD, _LEFT, -1)
    a.emit("SUMS", ra=_WORD)
    a.loop(_LEFT, "clear")

    a.label("idle")
    a.emit("START", PC)
    a.move(DEPTH, ZERO)
    a.jump("next")

    a.label("retire")
    a.signal(Signal.RETIRE)
    a.label("next")
    a.load("LDP", _HEADER, PC, 1)
    a.alu("ANDI", _ENTRY, _HEADER, 31)
    a.alu("SLTUI", _WORD, _ENTRY, len(Opcode))
    a.branch("BEQ", _WORD, ZERO, "fail")
    a.load("LC", _WORD, _ENTRY, "reserved")
    a.alu("AND", _WORD, _WORD, _HEADER)
    a.branch("BNE", _WORD, ZERO, "fail")
    a.alu("SRLI", FLAGS, _HEADER, FLAG_SHIFT)
    a.load("LC", _LEFT, _ENTRY, "shapes")
    a.load("LC", _ENTRY, _ENTRY, "handlers")
    a.alu("SRLI", _LIST, _LEFT, _COUNT_BITS)
    a.alu("ANDI", _LEFT, _LEFT, (1 << _COUNT_BITS) - 1)
    a.branch("BEQ", _LEFT, ZERO, "enter")
    a.move(_NUMBERS, ZERO)
    a.label("operand")
    a.load("LDP", _WORD, PC, 1)
    a.alu("SRLI", _VALUE, _WORD, IMMEDIATE_WIDTH)
    a.load("LD", _VALUE, _VALUE, where.registers)
    a.branch("BNE", _NUMBERS, ZERO, "known")
    a.load("LC", _NUMBERS, _LIST, "operands")
    a.alu("ADDI", _LIST, _LIST, 1)
    a.label("known")
    a.alu("ADD", _VALUE, _VALUE, _WORD)
    a.alu("SLLI", _VALUE, _VALUE, WORD_WIDTH - IMMEDIATE_WIDTH)
    a.alu("SRAI", _VALUE, _VALUE, WORD_WIDTH - IMMEDIATE_WIDTH)
    a.emit("PUT", ra=_NUMBERS, rb=_VALUE)
    a.alu("SRLI", _NUMBERS, _NUMBERS, 8)
    a.loop(_LEFT, "operand")
    a.label("enter")
    a.back(_ENTRY)

    a.label("fail")
    a.signal(Signal.FAIL)
    a.label("op HALT")
    a.jump("idle")
    _loops(a, config)
    _tables(a, handled)


def _loops(a: Assembler, config: MicroConfig) -> None:
    """Append LOOP, ENDLOOP and SET."""
    where = memory_map(config)
    a.label("op LOOP")
    a.alu("SLTUI", _WORD, DEPTH, LOOP_WORDS * LOOP_LEVELS)
    a.branch("BEQ", _WORD, ZERO, "fail")
    a.store("ST", DEPTH, PC, where.loops)
    a.store("ST", DEPTH, OPERANDS["count"], where.loops + 1)
    a.alu("ADDI", DEPTH, DEPTH, LOOP_WORDS)
    a.jump("next")

    a.label("op ENDLOOP")
    a.branch("BEQ", DEPTH, ZERO, "fail")
    a.load("LD", _LEFT, DEPTH, where.loops - 1)
    a.load("LD", _WORD, DEPTH, where.loops - 2)
    a.alu("ADDI", _LEFT, _LEFT, -1)
    a.branch("BEQ", _LEFT, ZERO, "loop over")
    a.store("ST", DEPTH, _LEFT, where.loops - 1)
    a.move(PC, _WORD)
    a.jump("next")
    a.label("loop over")
    a.alu("ADDI", DEPTH, DEPTH, -LOOP_WORDS)
    a.jump("next")

    a.label("op SET")
    a.store("ST", OPERANDS["register"], OPERANDS["value"], where.registers)
    a.jump("next")


def _tables(a: Assembler, handled: list[Opcode]) -> None:
    """Append every opcode's handler, operand count, reserved bits and registers, four a word."""
    known = {Opcode.HALT, Opcode.LOOP, Opcode.ENDLOOP, Opcode.SET, *handled}
    shapes: list[int | str] = []
    lists: list[int | str] = []
    for opcode in Opcode:
        names = DEFINITIONS[opcode].operands if opcode in known else ()
        shapes.append(len(names) | len(lists) << _COUNT_BITS)
        for first in range(0, len(names), _NUMBERS_A_WORD):
            part = names[first : first + _NUMBERS_A_WORD]
            lists.append(sum(OPERANDS[name] << 8 * place for place, name in enumerate(part)))
    a.table("handlers", [f"op {op.name}" if op in known else "fail" for op in Opcode])
    a.table("shapes", shapes)
    a.table("reserved", [DEFINITIONS[opcode].reserved for opcode in Opcode])
    a.table("operands", lists)
