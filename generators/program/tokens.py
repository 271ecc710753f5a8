"""Insertion of dependency tokens into a program.

A dependency token makes an instruction of one engine wait for an earlier instruction of another
engine.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.instruction import Instruction, pack
from celosia.arch.isa import Engine, Opcode
from celosia.sim.admission import check_step
from celosia.sim.checker import Memories
from celosia.sim.flow import run
from celosia.sim.regions import Memory, Region, regions


@dataclass
class Access:
    """Memory that an instruction reads and writes, and earlier instructions that it must follow."""

    engine: Engine
    reads: Sequence[Region]
    writes: Sequence[Region]
    after: list[int] = field(default_factory=list)
    """Indices of earlier instructions that must complete first, even without common memory."""


@dataclass
class Tokens:
    """Dependency tokens of an instruction, by which engines wait for each other.

    The instruction waits for a token from each engine in ``pop``. When it completes, it sends a
    token to each engine in ``push``.
    """

    pop: set[Engine] = field(default_factory=set)
    push: set[Engine] = field(default_factory=set)


def order(accesses: Sequence[Access], config: Config) -> list[Tokens]:
    """Return the dependency tokens of each instruction, by which engines wait for each other.

    An instruction waits for earlier instructions of other engines that access the same memory, if
    one of the two writes. It also waits for the instructions in :attr:`Access.after`. A wait that
    follows from other waits needs no token.
    """
    memories = Memories(config, _units(accesses))
    tokens = [Tokens() for _ in accesses]
    clocks = {engine: np.zeros(len(Engine), np.int64) for engine in Engine}
    after: dict[tuple[Engine, int], NDArray[np.int64]] = {}
    where: dict[tuple[Engine, int], int] = {}
    ends: list[tuple[Engine, int]] = []
    for place, access in enumerate(accesses):
        engine = access.engine
        clock = clocks[engine].copy()
        cells = [
            (writing, memories.cells(region))
            for writing, regions in enumerate((access.reads, access.writes))
            for region in regions
        ]
        latest = _needs(engine, clock, cells)
        explicit = {ends[other][0] for other in access.after}
        for source, count in [ends[other] for other in access.after]:
            latest[source] = max(latest[source], count)
        # The youngest step of another engine may itself be ordered after those of the others.
        for source in sorted(Engine, key=lambda source: source not in explicit):
            if source == engine or latest[source] <= clock[source]:
                continue
            tokens[place].pop.add(source)
            tokens[where[source, int(latest[source])]].push.add(engine)
            np.maximum(clock, after[source, int(latest[source])], out=clock)
        clock[engine] += 1
        end = engine, int(clock[engine])
        for writing, each in cells:
            each[writing, engine] = end[1]
        clocks[engine] = clock
        after[end] = clock.copy()
        where[end] = place
        ends.append(end)
    return tokens


def _units(accesses: Sequence[Access]) -> dict[Memory, int]:
    """Return the largest units of each memory at which all runs of cells begin."""
    units: dict[Memory, int] = {}
    for access in accesses:
        for region in (*access.reads, *access.writes):
            stride = region.stride if region.m > 1 else 0
            units[region.memory] = math.gcd(units.get(region.memory, 0), region.addr, stride)
    return {memory: unit for memory, unit in units.items() if unit}


def _needs(
    engine: Engine, clock: NDArray[np.int64], cells: Sequence[tuple[int, NDArray[np.int32]]]
) -> NDArray[np.int64]:
    """Return the last step of each engine that conflicts with a step and is not ordered yet.

    ``cells`` are the last steps at each region of the step, with 1 for a region that it writes.
    """
    # Reads conflict with writes, and writes with reads as well.
    latest = np.max([each[1 - writing :].max(axis=(0, 2, 3)) for writing, each in cells], axis=0)
    latest[engine] = 0
    return np.where(latest > clock, latest, 0)


def insert_tokens(program: Sequence[Instruction], config: Config) -> list[Instruction]:
    """Return a copy of a program without loops, with dependency tokens between its engines.

    The later of two instructions that access the same data waits. Raises :class:`ProgramError` if
    the configuration cannot run an instruction.
    """
    steps = list(run(pack([*program, Instruction(Opcode.HALT)])))
    for step in steps:
        check_step(step, config)
    accesses = [Access(step.engine, *regions(step, config)) for step in steps]
    tokens = iter(order(accesses, config))
    ordered = []
    for instruction in program:
        if instruction.definition.engine is not None:
            pair = next(tokens)
            pop, push = frozenset(pair.pop), frozenset(pair.push)
            instruction = replace(instruction, pop=pop, push=push)
        ordered.append(instruction)
    return ordered
