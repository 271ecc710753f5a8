"""Dependency tokens for a program that has none."""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from arch.config import Config
from arch.instruction import Instruction, pack
from arch.isa import Engine, Opcode
from sim.admission import check_step
from sim.checker import Memories
from sim.flow import Step, expanded, resolve
from sim.regions import Region, regions


@dataclass
class Part:
    """One command of an instruction that has several, with the tokens that it always has."""

    engine: Engine
    reads: Sequence[Region] = ()
    writes: Sequence[Region] = ()
    pop: frozenset[Engine] = frozenset()
    push: frozenset[Engine] = frozenset()


@dataclass
class Access:
    """Memory that one instruction touches, and its further dependencies."""

    engine: Engine
    reads: Sequence[Region]
    writes: Sequence[Region]
    after: list[int] = field(default_factory=list)
    """Places of earlier instructions that must have completed, whatever both touch."""
    parts: Sequence[Part] = ()
    """Its commands, if there are several: the first waits for all that the instruction must wait
    for, and whatever waits for any of them waits for the last."""


@dataclass
class Tokens:
    """The engines that an instruction takes a token from and gives one to."""

    pop: set[Engine] = field(default_factory=set)
    push: set[Engine] = field(default_factory=set)


def order(accesses: Sequence[Access], config: Config) -> list[Tokens]:
    """Return the tokens that order all hazards of instructions that run one after the other.

    An instruction waits for the latest one of each other engine that it conflicts with, unless
    it is ordered behind that one already. So a pair of engines exchanges each token once, and
    tokens are taken in the order in which they are given: also with those inside an instruction
    of several commands, as behind these each of their engines is ordered behind all that the
    others had done before.
    """
    memories = Memories(config)
    tokens = [Tokens() for _ in accesses]
    clocks = {engine: np.zeros(len(Engine), np.int64) for engine in Engine}
    after: dict[tuple[Engine, int], NDArray[np.int64]] = {}
    where: dict[tuple[Engine, int], int] = {}
    ends: list[tuple[Engine, int]] = []
    last: dict[tuple[Engine, int], tuple[Engine, int]] = {}
    """The last command of the instruction that a command belongs to, where it is another."""
    for place, access in enumerate(accesses):
        engine = access.engine
        clock = clocks[engine].copy()
        parts = access.parts or [Part(engine, access.reads, access.writes)]
        latest = _needs(parts, clocks, memories)
        explicit = {ends[other][0] for other in access.after}
        for source, count in [ends[other] for other in access.after]:
            latest[source] = max(latest[source], count)
        for source in Engine:
            if latest[source] > clock[source] and (source, int(latest[source])) in last:
                giver, count = last[source, int(latest[source])]
                latest[source] = 0
                latest[giver] = max(latest[giver], count)
        # The youngest step of another engine may itself stand behind those of the others.
        for source in sorted(Engine, key=lambda source: source not in explicit):
            if source == engine or latest[source] <= clock[source]:
                continue
            tokens[place].pop.add(source)
            tokens[where[source, int(latest[source])]].push.add(engine)
            np.maximum(clock, after[source, int(latest[source])], out=clock)
        clocks[engine] = clock
        numbers = _run(parts, clocks, memories)
        end = numbers[-1]
        last |= dict.fromkeys(numbers[:-1], end)
        after[end] = clocks[end[0]].copy()
        where[end] = place
        ends.append(end)
    return tokens


Clocks = dict[Engine, NDArray[np.int64]]


def _passing(parts: Sequence[Part], clocks: Clocks) -> Iterator[tuple[Part, NDArray[np.int64]]]:
    """Yield commands with their clocks before them, which may be changed, and let them pass."""
    held: dict[tuple[Engine, Engine], deque[NDArray[np.int64]]] = defaultdict(deque)
    for part in parts:
        clock = clocks[part.engine].copy()
        for source in sorted(part.pop):
            np.maximum(clock, held[source, part.engine].popleft(), out=clock)
        yield part, clock
        clock[part.engine] += 1
        clocks[part.engine] = clock
        for sink in part.push:
            held[part.engine, sink].append(clock)


def _needs(parts: Sequence[Part], clocks: Clocks, memories: Memories) -> NDArray[np.int64]:
    """Return the last step of each engine that commands conflict with and do not stand behind."""
    needs = np.zeros(len(Engine), np.int64)
    for part, clock in _passing(parts, dict(clocks)):
        latest = np.zeros(len(Engine), np.int64)
        for region in part.reads:
            np.maximum(latest, memories.latest(region, writes_only=True), out=latest)
        for region in part.writes:
            np.maximum(latest, memories.latest(region, writes_only=False), out=latest)
        latest[part.engine] = 0
        np.maximum(needs, np.where(latest > clock, latest, 0), out=needs)
        np.maximum(clock, latest, out=clock)
    return needs


def _run(parts: Sequence[Part], clocks: Clocks, memories: Memories) -> list[tuple[Engine, int]]:
    """Let the commands of an instruction pass, and return their engines and numbers."""
    numbers = []
    for part, clock in _passing(parts, clocks):
        count = int(clock[part.engine]) + 1
        for region in part.reads:
            memories.note(region, part.engine, count, writing=False)
        for region in part.writes:
            memories.note(region, part.engine, count, writing=True)
        numbers.append((part.engine, count))
    return numbers


def _parts(step: Step, config: Config) -> list[Part]:
    """Return the commands of an instruction that has several."""
    alone = replace(step, pop=frozenset(), push=frozenset())
    if step.opcode != Opcode.ATTENTION:
        return []
    return [
        Part(part.engine, *regions(part, config), pop=part.pop, push=part.push)
        for part in expanded(alone)
    ]


def insert_tokens(program: Sequence[Instruction], config: Config) -> list[Instruction]:
    """Return a straight-line program with the tokens that order all of its hazards.

    Raises :class:`ProgramError` where an instruction could not run on the configuration.
    """
    steps = list(resolve(pack([*program, Instruction(Opcode.HALT)])))
    for step in steps:
        check_step(step, config)
    accesses = [
        Access(step.engine, *regions(step, config), parts=_parts(step, config)) for step in steps
    ]
    tokens = iter(order(accesses, config))
    found = []
    for instruction in program:
        if instruction.definition.taker is not None:
            given = next(tokens)
            pop, push = frozenset(given.pop), frozenset(given.push)
            instruction = replace(instruction, pop=pop, push=push)
        found.append(instruction)
    return found
