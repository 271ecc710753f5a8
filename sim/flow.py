"""A program's instructions in execution order, with loops unrolled and registers resolved."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from celosia.arch.errors import ProgramError
from celosia.arch.instruction import Instruction, resolve, unpack_one
from celosia.arch.isa import (
    COUNT_WIDTH,
    DEFINITIONS,
    FACTOR_SHIFT,
    LOOP_LEVELS,
    REGISTERS,
    Engine,
    Opcode,
)


@dataclass(frozen=True)
class Step:
    """One engine instruction of a run, with every operand resolved to an integer."""

    address: int
    """Word address in the program."""
    opcode: Opcode
    engine: Engine
    operands: Mapping[str, int]
    flags: frozenset[str]
    pop: frozenset[Engine]
    push: frozenset[Engine]

    def __getitem__(self, name: str) -> int:
        """Return the value of an operand.

        With the flag ``factors``, operand ``params`` is split into ``params`` and ``factor``.
        """
        if "factors" in self.flags and name in ("params", "factor"):
            factor, word = divmod(self.operands["params"], 1 << FACTOR_SHIFT)
            return word if name == "params" else factor
        return self.operands[name]

    @property
    def definition_unit(self) -> str | None:
        """Name of the configuration field for the optional unit that executes the instruction.

        For example, a machine has the softmax unit only if its configuration field ``softmax`` is
        set. The value is None if the instruction needs no optional unit.
        """
        return DEFINITIONS[self.opcode].unit

    def __str__(self) -> str:
        """Return the step's name in messages."""
        return f"{self.opcode.name} at word {self.address}"


def run(words: Sequence[int], start: int = 0, registers: list[int] | None = None) -> Iterator[Step]:
    """Yield the engine instructions from a start address to HALT, in program order.

    ``registers`` are the 16 registers' values (0 by default), which the program changes in place.
    Raises :class:`ProgramError` for an end without HALT, an invalid loop or an unknown instruction.
    """
    words = list(words)
    values = [0] * REGISTERS if registers is None else registers
    loops: list[list[int]] = []
    decoded: dict[int, Instruction] = {}
    address = start
    while True:
        if not 0 <= address < len(words):
            raise ProgramError(f"Program runs past its last word, to word {address}")
        if address not in decoded:
            decoded[address] = unpack_one(words, address)
        instruction = decoded[address]
        definition = instruction.definition
        operands = {}
        for name in definition.operands:
            operand = instruction.operand(name)
            operands[name] = resolve(name, operand.immediate + values[operand.register])
        here, address = address, address + definition.words
        if definition.engine is not None:
            yield Step(
                here,
                instruction.opcode,
                definition.engine,
                operands,
                instruction.flags,
                instruction.pop,
                instruction.push,
            )
        elif instruction.opcode == Opcode.HALT:
            return
        elif instruction.opcode == Opcode.SET:
            if not 1 <= operands["register"] <= 15:
                raise ProgramError(
                    f"SET at word {here} must write a register from 1 to 15, "
                    f"not {operands['register']}"
                )
            values[operands["register"]] = operands["value"]
        elif instruction.opcode == Opcode.LOOP:
            if not 1 <= operands["count"] < 1 << COUNT_WIDTH:
                raise ProgramError(
                    f"LOOP at word {here} must run 1 to {(1 << COUNT_WIDTH) - 1} times, "
                    f"not {operands['count']}"
                )
            if len(loops) == LOOP_LEVELS:
                raise ProgramError(f"LOOP at word {here} nests deeper than {LOOP_LEVELS} levels")
            loops.append([address, operands["count"]])
        elif not loops:
            raise ProgramError(f"ENDLOOP at word {here} ends no loop")
        else:
            loops[-1][1] -= 1
            if loops[-1][1]:
                address = loops[-1][0]
            else:
                loops.pop()
