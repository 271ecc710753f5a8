"""Dependency tokens for a program that has none."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from arch.config import Config
from arch.isa import Engine, Instruction, Opcode, pack
from sim.checker import Memories
from sim.flow import run
from sim.regions import check_step, regions


def insert_tokens(program: Sequence[Instruction], config: Config) -> list[Instruction]:
    """Return a straight-line program with the tokens that order all of its hazards.

    An instruction waits for the latest step of each other engine that it conflicts with, unless
    it is ordered behind that step already. So a pair of engines exchanges each token once, and
    tokens are taken in the order in which they are given.

    Raises :class:`ValueError` where an instruction could not run on the configuration.
    """
    engines = len(Engine)
    memories = Memories(config)
    clocks = {engine: np.zeros(engines, np.int64) for engine in Engine}
    after: dict[tuple[Engine, int], np.ndarray] = {}
    where: dict[tuple[Engine, int], int] = {}
    pops: list[set[Engine]] = [set() for _ in program]
    pushes: list[set[Engine]] = [set() for _ in program]
    places = [
        i for i, instruction in enumerate(program) if instruction.definition.engine is not None
    ]
    for place, step in zip(places, run(pack([*program, Instruction(Opcode.HALT)])), strict=True):
        check_step(step, config)
        clock = clocks[step.engine].copy()
        latest = np.zeros(engines, np.int64)
        reads, writes = regions(step, config)
        count = int(clock[step.engine]) + 1
        for region in reads:
            np.maximum(latest, memories.latest(region, writes_only=True), out=latest)
        for region in writes:
            np.maximum(latest, memories.latest(region, writes_only=False), out=latest)
        # The youngest step of another engine may itself stand behind those of the others.
        for source in Engine:
            if source == step.engine or latest[source] <= clock[source]:
                continue
            pops[place].add(source)
            pushes[where[source, int(latest[source])]].add(step.engine)
            np.maximum(clock, after[source, int(latest[source])], out=clock)
        for region in reads:
            memories.note(region, step.engine, count, writing=False)
        for region in writes:
            memories.note(region, step.engine, count, writing=True)
        clock[step.engine] = count
        clocks[step.engine] = after[step.engine, count] = clock
        where[step.engine, count] = place
    return [
        replace(instruction, pop=frozenset(pop), push=frozenset(push))
        for instruction, pop, push in zip(program, pops, pushes, strict=True)
    ]
