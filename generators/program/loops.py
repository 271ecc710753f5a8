"""Assembly of programs with addresses: finds loops, adds dependency tokens, encodes words.

A dependency token makes an instruction of one engine wait for an instruction of another engine. The
instructions of a loop must push and pop the same tokens in every iteration. A token that is pushed
in a loop must be popped in the same loop.

Barriers ensure these two conditions. A barrier is a cheap instruction of the vector engine that
only makes engines wait. A loop with barriers has three:

- The barrier before the loop waits for all earlier instructions of the loop's engines.
- The barrier at the start of the loop's body begins each iteration: all other engines wait for it.
  The body's last instruction, of the vector engine, waits for all other engines.
- The barrier after the loop makes the loop's engines wait until the loop has ended.

A loop needs no barriers if consecutive iterations need the same tokens. An engine may then begin
the next iteration while other engines are still in the current iteration (:func:`words`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from celosia.arch.config import Config
from celosia.arch.instruction import Instruction, Operand, pack, wrap
from celosia.arch.isa import DEFINITIONS, LOOP_LEVELS, REGISTERS, Engine, Opcode
from celosia.generators.program.draft import Draft, Given, Node, Ref, Repeat, Written
from celosia.generators.program.tokens import Access, Tokens, order
from celosia.sim.admission import check_step
from celosia.sim.flow import Step
from celosia.sim.regions import Region, meet, regions

Steps = tuple[tuple[int, int], ...]
"""Growth of a value per iteration, in pairs (loop depth, growth). A value from the host has the
single pair (:data:`GIVEN`, register) in any loop."""
GIVEN = -1
"""Stands for a depth: the value is in a register that no instruction writes."""
BARRIER = "barrier"
"""The buffer from which barriers read a parameter word."""


@cache
def barrier() -> Draft:
    """Return a barrier: a PARAMS instruction that only makes engines wait."""
    operands: dict[str, int | Ref] = {"i_addr": Ref(BARRIER), "n": 1}
    return Draft(Opcode.PARAMS, operands, written=Written(BARRIER))


def with_barriers(nodes: Sequence[Node]) -> list[Node]:
    """Return a list of instructions with barriers added at each loop.

    A barrier is added before each loop, at the start of its body, and after the loop. If the body
    does not end with an instruction of the vector engine, a barrier is also added at its end.
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
    """Return the number of program words that instructions need at least.

    The instructions in a loop are counted once, together with LOOP and ENDLOOP. The words of SET
    instructions, which change the loop's registers, are not counted.
    """
    total = 0
    for node in nodes:
        if isinstance(node, Draft):
            total += DEFINITIONS[node.opcode].words
        else:
            ends = DEFINITIONS[Opcode.LOOP].words + DEFINITIONS[Opcode.ENDLOOP].words
            total += ends + least_words(node.iterations[0])
    return total


@dataclass
class Line:
    """A program instruction, with the values of its operands in every iteration of its loops."""

    opcode: Opcode
    flags: frozenset[str]
    values: dict[str, tuple[int, Steps]]
    """Each operand's value in the first iteration, and its growth."""
    reads: frozenset[Region]
    writes: frozenset[Region]
    """Memory accessed over all iterations."""

    @property
    def engine(self) -> Engine:
        """The engine that executes the instruction."""
        engine = DEFINITIONS[self.opcode].engine
        assert engine is not None
        return engine


@dataclass
class Loop:
    """A loop: an iteration count and a body."""

    count: int
    body: Sequence["Line | Loop"]

    @property
    def barred(self) -> bool:
        """True if the body of the loop begins with a barrier."""
        first = self.body[0]
        return isinstance(first, Line) and first.opcode == Opcode.PARAMS


TRIED = 4
"""Iterations whose tokens are compared for a loop without barriers."""


def lines(
    nodes: Sequence[Node], addresses: Mapping[str, int], config: Config
) -> list[Line | Loop] | None:
    """Return a list of a program's instructions and loops, or None if a loop is impossible.

    ``addresses`` is a dictionary from buffer name to the address that replaces references to the
    buffer. A loop is possible if its iterations have the same instructions, and each operand grows
    by a constant from iteration to iteration. Raises :class:`ProgramError` if an instruction cannot
    run on the configuration.
    """
    return _placed([nodes], (), addresses, config)


def _placed(
    bodies: Sequence[Sequence[Node]],
    counts: tuple[int, ...],
    addresses: Mapping[str, int],
    config: Config,
) -> list[Line | Loop] | None:
    """Return one body for all iterations of the surrounding loops.

    ``counts`` are the iterations of these loops, the outermost first. The iterations of the
    innermost loop follow each other in ``bodies``.
    """
    if len({len(body) for body in bodies}) != 1:
        return None
    placed: list[Line | Loop] = []
    for nodes in zip(*bodies, strict=True):
        made: Line | Loop | None = None
        drafts = [node for node in nodes if isinstance(node, Draft)]
        sizes = {len(node.iterations) for node in nodes if isinstance(node, Repeat)}
        if len(drafts) == len(nodes):
            made = _line(drafts, counts, addresses, config)
        elif not drafts and len(sizes) == 1 and len(counts) < LOOP_LEVELS:
            (count,) = sizes
            each = [body for node in nodes if isinstance(node, Repeat) for body in node.iterations]
            inner = _placed(each, (*counts, count), addresses, config)
            made = None if inner is None else Loop(count, inner)
        if made is None:
            return None
        placed.append(made)
    return placed


def _line(
    drafts: Sequence[Draft],
    counts: tuple[int, ...],
    addresses: Mapping[str, int],
    config: Config,
) -> Line | None:
    """Return the instruction of all iterations of the loops with these counts, one draft each.

    Return None if operands do not change by constant steps.
    """
    opcode, flags = drafts[0].opcode, drafts[0].flags
    if any((draft.opcode, draft.flags) != (opcode, flags) for draft in drafts):
        return None
    engine, names = DEFINITIONS[opcode].engine, DEFINITIONS[opcode].operands
    assert engine is not None
    operands = [
        [_parts(draft.operands.get(name, 0), addresses) for name in names] for draft in drafts
    ]
    bases, registers, most = np.moveaxis(np.array(operands), -1, 0)  # [iterations, operands] each
    steps: list[Steps] = [((GIVEN, number),) if number else () for number in registers[0].tolist()]
    values = bases.reshape(*counts, len(names))
    for depth in reversed(range(len(counts))):
        growth = np.diff(values, axis=depth).reshape(-1, len(names))
        if (growth != growth[:1]).any() or (registers != registers[0]).any():
            return None
        for index in np.flatnonzero(growth[:1]):
            steps[index] = ((depth, int(growth[0, index])), *steps[index])
    reads, writes = set[Region](), set[Region]()
    rows = [*dict.fromkeys(map(tuple, (bases + most).tolist()))]
    decisive = _decisive(rows, names, config)
    for row in rows:
        step_operands = dict(zip(names, row, strict=True))
        step = Step(0, opcode, engine, step_operands, flags, frozenset(), frozenset())
        if row in decisive:
            check_step(step, config)
        for kept, own in zip((reads, writes), regions(step, config), strict=True):
            kept.update(own)
    begin = dict(zip(names, zip(bases[0].tolist(), steps, strict=True), strict=True))
    return Line(opcode, flags, begin, frozenset(reads), frozenset(writes))


def _decisive(
    rows: Sequence[tuple[int, ...]], names: Sequence[str], config: Config
) -> set[tuple[int, ...]]:
    """Return the operands of the iterations to check; if these are valid, all iterations are.

    External memory has no banks: of iterations that differ only in its address, with the same
    place in a word, the lowest and the highest address decide.
    """
    if "dram_addr" not in names:
        return set(rows)
    place = list(names).index("dram_addr")
    alike: dict[object, list[tuple[int, ...]]] = {}
    for row in rows:
        key = row[:place], row[place + 1 :], row[place] % config.mem_bytes
        alike.setdefault(key, []).append(row)
    return {end for group in alike.values() for end in (min(group), max(group))}


def _parts(value: int | Ref | Given, addresses: Mapping[str, int]) -> tuple[int, int, int]:
    """Return an operand's value with its address, the host's register and its largest value."""
    register, most = (value.register, value.most) if isinstance(value, Given) else (0, 0)
    base = value.base if isinstance(value, Given) else value
    return addresses[base.buffer] + base.offset if isinstance(base, Ref) else base, register, most


def _inside(nodes: Sequence[Line | Loop]) -> Iterator[Line]:
    for node in nodes:
        if isinstance(node, Line):
            yield node
        else:
            yield from _inside(node.body)


def _order(nodes: Sequence[Line | Loop], config: Config, *, body: bool) -> dict[int, Tokens]:
    """Return the tokens of every line, by its identity, in nodes and their loops."""
    flat: list[Line] = []
    accesses: list[Access] = []
    last: dict[Engine, int] = {}
    waiting: dict[Engine, int] = {}
    """Engines that must wait for a barrier before their next instruction, and its index."""
    by_line: dict[int, Tokens] = {}
    for index, node in enumerate(nodes):
        if isinstance(node, Loop):
            by_line |= _order(node.body, config, body=True)
            continue
        access = Access(node.engine, list(node.reads), list(node.writes))
        for neighbour in (index - 1, index + 1):
            beside = nodes[neighbour] if 0 <= neighbour < len(nodes) else None
            if isinstance(beside, Loop):
                inner = list(_inside(beside.body))
                access.reads = sorted(node.reads.union(*(line.reads for line in inner)), key=repr)
                access.writes = sorted(
                    node.writes.union(*(line.writes for line in inner)), key=repr
                )
                engines = {line.engine for line in inner} - {Engine.VECTOR}
                if neighbour > index:
                    access.after += [last[engine] for engine in engines if engine in last]
                else:
                    waiting |= dict.fromkeys(engines, len(flat))
        if node.engine in waiting:
            access.after.append(waiting.pop(node.engine))
        if body and not flat:
            waiting = dict.fromkeys(set(Engine) - {Engine.VECTOR}, 0)
        last[node.engine] = len(flat)
        flat.append(node)
        accesses.append(access)
    if body:
        assert flat[0].engine == flat[-1].engine == Engine.VECTOR
        accesses[-1].after += [at for engine, at in last.items() if engine != Engine.VECTOR]
    for line, tokens in zip(flat, order(accesses, config), strict=True):
        by_line[id(line)] = tokens
    return by_line


def _flow(nodes: Sequence[Line | Loop], config: Config) -> dict[int, Tokens] | None:
    """Return the tokens of every line, by its identity, if loops have no barriers.

    Each iteration is assumed to access the memory of all iterations. None if iterations need
    different tokens.
    """
    flat: list[Line] = []
    loops: list[tuple[int, int]] = []
    for node in nodes:
        body = [node] if isinstance(node, Line) else list(_inside(node.body))
        if isinstance(node, Loop):
            if len(body) != len(node.body):
                return None
            loops.append((len(flat), len(body)))
        flat += body * (TRIED if isinstance(node, Loop) else 1)
    accesses = [Access(line.engine, list(line.reads), list(line.writes)) for line in flat]
    tokens = order(accesses, config)
    for first, size in loops:
        _take_last(accesses, tokens, first, size)
    if any(access.after for access in accesses):
        tokens = order(accesses, config)
    for first, size in loops:
        once = tokens[first : first + size]
        if any(tokens[first + i * size : first + (i + 1) * size] != once for i in range(TRIED)):
            return None
    return {id(line): line_tokens for line, line_tokens in zip(flat, tokens, strict=True)}


def _take_last(accesses: Sequence[Access], tokens: Sequence[Tokens], first: int, size: int) -> None:
    """Let instructions after a loop pop the tokens that its last iteration pushes additionally.

    The consumer is the last instruction of the token's engine before one that pops a later token of
    the same source engine.
    """
    end = first + TRIED * size
    for place in range(end - size, end):
        giver = accesses[place].engine
        for engine in tokens[place - size].push - tokens[place].push:
            behind = [at for at in range(end, len(accesses)) if accesses[at].engine == engine]
            takers = [at for at in behind[1:] if giver in tokens[at].pop]
            for taker in [at for at in behind if at < min(takers, default=len(accesses))][-1:]:
                accesses[taker].after.append(place)


def words(nodes: Sequence[Line | Loop], config: Config) -> list[int] | None:
    """Return the program-memory words of a program, or None if its loops cannot be encoded.

    Loops cannot be encoded if they need too many registers. Loops without barriers cannot be
    encoded if their iterations need different dependency tokens. If too few registers are free, a
    loop overwrites registers that the host has set, so the host must write them before each start.
    """
    if config.fused:
        _follow(nodes)
    barred = all(node.barred for node in nodes if isinstance(node, Loop))
    tokens = _order(nodes, config, body=False) if barred else _flow(nodes, config)
    if tokens is None:
        return None
    kinds = {steps for line in _inside(nodes) for _, steps in line.values.values() if steps}
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

    Raises :class:`ProgramError` if an instruction cannot run on the configuration.
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
        {dict(steps).get(GIVEN, 0) for line in _inside(part) for _, steps in line.values.values()}
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
        used = {steps for line in _inside(node.body) for _, steps in line.values.values()}
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
