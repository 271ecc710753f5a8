"""Hardware loops for a program that is written out step by step."""

from collections.abc import Sequence

from arch.instruction import Instruction, Operand
from arch.isa import REGISTERS, Opcode

Body = list[Instruction]


def roll(steps: Sequence[Body]) -> Body:
    """Return a program that runs steps one after the other, as short as one loop makes it.

    A loop stands for steps that repeat with a period of one or two, with the same flags and tokens,
    while each operand grows by the same amount from round to round. Steps before and behind it stay
    as they are. Operands must be immediates, and registers are free to be used.
    """
    best = [instruction for step in steps for instruction in step]
    for period in (1, 2):
        for first in range(min(2 * period + 2, len(steps))):
            rounds = [
                [instruction for step in steps[at : at + period] for instruction in step]
                for at in range(first, len(steps) - period + 1, period)
            ]
            while len(rounds) > 1:
                loop = _loop(rounds)
                if loop is not None:
                    behind = steps[first + period * len(rounds) :]
                    program = [i for step in steps[:first] for i in step]
                    program += [*loop, *(i for step in behind for i in step)]
                    best = min(best, program, key=_words)
                    break
                rounds.pop()
    return best


def _words(program: Body) -> int:
    return sum(instruction.definition.words for instruction in program)


def _loop(rounds: Sequence[Body]) -> Body | None:
    """Return a loop of rounds, or None where they differ in more than steady growth."""
    first, second = rounds[:2]
    kinds = [[(i.opcode, i.flags, i.pop, i.push) for i in body] for body in rounds]
    if any(kind != kinds[0] for kind in kinds):
        return None
    growths: dict[int, int] = {}
    """The register of each growth."""
    body = []
    for place, instruction in enumerate(first):
        operands: dict[str, int | Operand] = {}
        for name, operand in instruction.operands.items():
            base = _immediate(operand)
            growth = _immediate(second[place].operands[name]) - base
            for index, later in enumerate(rounds):
                if _immediate(later[place].operands[name]) != base + index * growth:
                    return None
            operands[name] = base
            if growth:
                operands[name] = Operand(base, growths.setdefault(growth, len(growths) + 1))
        body.append(
            Instruction(
                instruction.opcode,
                operands,
                instruction.flags,
                instruction.pop,
                instruction.push,
            )
        )
    if len(growths) >= REGISTERS:
        return None
    return [
        *(_set(register, Operand(0)) for register in growths.values()),
        Instruction(Opcode.LOOP, {"count": len(rounds)}),
        *body,
        *(_set(register, Operand(growth, register)) for growth, register in growths.items()),
        Instruction(Opcode.ENDLOOP),
    ]


def _immediate(operand: int | Operand) -> int:
    assert isinstance(operand, int)
    return operand


def _set(register: int, value: Operand) -> Instruction:
    return Instruction(Opcode.SET, {"register": register, "value": value})
