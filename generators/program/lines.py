"""Conversion of repeated instructions to loops, after the assignment of scratchpad addresses.

In a loop, each instruction is stored once for all iterations. The instruction's operands grow by
constants from iteration to iteration.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from celosia.arch.config import Config
from celosia.arch.isa import DEFINITIONS, LOOP_LEVELS, Engine, Opcode
from celosia.generators.program.draft import Draft, Given, Node, Ref, Repeat
from celosia.sim.admission import check_step
from celosia.sim.flow import Step
from celosia.sim.regions import Region, regions

Steps = tuple[tuple[int, int], ...]
"""Growth of a value per iteration, in pairs (loop depth, growth). A value from the host has the
single pair (:data:`GIVEN`, register) in any loop."""
GIVEN = -1
"""Stands for a depth: the value is in a register that no instruction writes."""


@dataclass
class Line:
    """A program instruction, with its operands' values in all iterations of the loops around it."""

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
    """A loop in a program: the number of iterations, and a body of instructions and inner loops."""

    count: int
    body: Sequence["Line | Loop"]

    @property
    def barred(self) -> bool:
        """True if the body begins with a barrier, an instruction that only makes engines wait."""
        first = self.body[0]
        return isinstance(first, Line) and first.opcode == Opcode.PARAMS


def inside(nodes: Sequence[Line | Loop]) -> Iterator[Line]:
    """Yield all instructions of ``nodes``; each instruction in a loop is yielded once."""
    for node in nodes:
        if isinstance(node, Line):
            yield node
        else:
            yield from inside(node.body)


def lines(
    nodes: Sequence[Node], addresses: Mapping[str, int], config: Config
) -> list[Line | Loop] | None:
    """Return instructions and loops with addresses, or None if repeated instructions are no loop.

    A loop's iterations must have equal instructions whose operands grow by constants. ``addresses``
    has the address of each buffer. Raises :class:`ProgramError` if the configuration cannot run an
    instruction.
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
