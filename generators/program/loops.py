"""Conversion of a program with loops to the words in program memory."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from celosia.arch.config import Config
from celosia.arch.instruction import Instruction, Operand, pack, wrap
from celosia.arch.isa import DEFINITIONS, REGISTERS, Engine, Opcode
from celosia.generators.program.draft import Draft, Node, Ref, Repeat, Written
from celosia.generators.program.lines import GIVEN, Line, Loop, Steps, inside, lines
from celosia.generators.program.loop_tokens import loop_tokens
from celosia.generators.program.tokens import Tokens
from celosia.sim.regions import meet

BARRIER = "barrier"
"""The buffer from which barriers read a parameter word."""


@cache
def barrier() -> Draft:
    """Return a barrier: a PARAMS instruction that only makes engines wait."""
    operands: dict[str, int | Ref] = {"i_addr": Ref(BARRIER), "n": 1}
    return Draft(Opcode.PARAMS, operands, written=Written(BARRIER))


def with_barriers(nodes: Sequence[Node]) -> list[Node]:
    """Return the instructions with barriers (which only make engines wait) at each loop.

    A barrier is before each loop, at the start of its body, and after the loop. A body that does
    not end with a vector instruction also ends with a barrier.
    """
    ordered: list[Node] = []
    for node in nodes:
        if isinstance(node, Repeat):
            bodies = [[barrier(), *with_barriers(body)] for body in node.iterations]
            for body in bodies:
                last = body[-1]
                if isinstance(last, Draft) and DEFINITIONS[last.opcode].engine != Engine.VECTOR:
                    body.append(barrier())
            ordered += [barrier(), Repeat(bodies), barrier()]
        else:
            ordered.append(node)
    return ordered


def least_words(nodes: Sequence[Node]) -> int:
    """Return a lower bound for the number of words that instructions need in program memory.

    ``nodes`` are the instructions and loops of a program. The instructions in a loop are counted
    once, together with LOOP and ENDLOOP. Instructions that the assembler inserts, such as SET, are
    not counted.
    """
    total = 0
    for node in nodes:
        if isinstance(node, Draft):
            total += DEFINITIONS[node.opcode].words
        else:
            ends = DEFINITIONS[Opcode.LOOP].words + DEFINITIONS[Opcode.ENDLOOP].words
            total += ends + least_words(node.iterations[0])
    return total


def words(nodes: Sequence[Line | Loop], config: Config) -> list[int] | None:
    """Return the words of a program in program memory, or None if its loops cannot be encoded.

    The result is None in these cases:

    - Operands that change in loops need more registers than are free.
    - Not all loops have barriers, and a loop contains a loop.
    - Not all loops have barriers, and a loop's iterations need different dependency tokens.
    """
    if config.fused:
        _follow(nodes)
    tokens = loop_tokens(nodes, config)
    if tokens is None:
        return None
    kinds = {steps for line in inside(nodes) for _, steps in line.values.values() if steps}
    registers = {steps: steps[0][1] for steps in kinds if steps[0][0] == GIVEN}
    reserved = {register for steps in kinds for depth, register in steps if depth == GIVEN}
    free = [number for number in range(1, REGISTERS) if number not in reserved]
    changing = sorted(kinds - registers.keys())
    if len(changing) > len(free):
        own = _in_place(kinds)
        registers |= own
        changing = [steps for steps in changing if steps not in own]
        free += _left(nodes)
    if len(changing) > len(free):
        return None
    registers |= dict(zip(changing, free, strict=False))
    program = _emit(nodes, tokens, registers, 0)
    return pack([*program, Instruction(Opcode.HALT)])


def program_words(
    nodes: Sequence[Node], addresses: Mapping[str, int], config: Config
) -> list[int] | None:
    """Return a list of a program's words, or None if its loops cannot be encoded.

    ``addresses`` is a dictionary from the name of each buffer to its scratchpad address. Raises
    :class:`ProgramError` if an instruction cannot run on the configuration.
    """
    placed = lines(nodes, addresses, config)
    return None if placed is None else words(placed, config)


def _follow(nodes: Sequence[Line | Loop]) -> None:
    """Let a DRAIN begin while an equal one (except addresses) before it is still writing."""
    before: Line | None = None
    for node in nodes:
        if isinstance(node, Loop):
            _follow(node.body)
            before = None
        elif node.engine == Engine.VECTOR:
            if before is not None and _follows(before, node):
                before.flags |= {"followed"}
            before = node


def _follows(before: Line, line: Line) -> bool:
    return (
        before.opcode == line.opcode == Opcode.DRAIN
        and "argmax" not in line.flags
        and before.flags == line.flags
        and all(before.values[name] == line.values[name] for name in ("o_zero", "table"))
        and not meet(before.writes, line.reads)
    )


def _in_place(kinds: Iterable[Steps]) -> dict[Steps, int]:
    """Return host registers that hold a single growing value, by that value's growth."""
    users: dict[int, list[Steps]] = defaultdict(list)
    for steps in kinds:
        if GIVEN in dict(steps):
            users[dict(steps)[GIVEN]].append(steps)
    return {
        users_of[0]: number
        for number, users_of in users.items()
        if len(users_of) == 1 and len(users_of[0]) > 1
    }


def _left(nodes: Sequence[Line | Loop]) -> list[int]:
    """Return the host registers that are not needed from the first loop on."""
    first = next(place for place, node in enumerate(nodes) if isinstance(node, Loop))
    before, behind = (
        {dict(steps).get(GIVEN, 0) for line in inside(part) for _, steps in line.values.values()}
        for part in (nodes[:first], nodes[first:])
    )
    return sorted(before - behind - {0})


def _emit(
    nodes: Sequence[Line | Loop],
    tokens: Mapping[int, Tokens],
    registers: Mapping[Steps, int],
    depth: int,
) -> list[Instruction]:
    program = []
    for node in nodes:
        if isinstance(node, Line):
            operands: dict[str, int | Operand] = {
                name: Operand(wrap(value), registers[steps] if steps else 0)
                for name, (value, steps) in node.values.items()
            }
            draft_tokens = tokens[id(node)]
            pop, push = frozenset(draft_tokens.pop), frozenset(draft_tokens.push)
            program.append(Instruction(node.opcode, operands, node.flags, pop, push))
            continue
        used = {steps for line in inside(node.body) for _, steps in line.values.values()}
        growing = [(steps, dict(steps)[depth]) for steps in sorted(used) if depth in dict(steps)]
        for steps, _ in growing:
            begin = dict(steps).get(GIVEN, 0)
            if steps[0][0] == depth and begin != registers[steps]:
                # A value from the host grows from its register.
                program.append(_set(registers[steps], Operand(0, begin)))
        program.append(Instruction(Opcode.LOOP, {"count": node.count}))
        program += _emit(node.body, tokens, registers, depth + 1)
        for steps, growth in growing:
            number = registers[steps]
            program.append(_set(number, Operand(wrap(growth), number)))
        program.append(Instruction(Opcode.ENDLOOP))
        for steps, growth in growing:
            number = registers[steps]
            if steps[0][0] < depth or dict(steps).get(GIVEN) == number:
                program.append(_set(number, Operand(wrap(-node.count * growth), number)))
    return program


def _set(number: int, value: Operand) -> Instruction:
    return Instruction(Opcode.SET, {"register": number, "value": value})
