"""Proof that a program's synchronization tokens order every two instructions with a hazard.

The four engines run concurrently; only tokens order instructions of different engines. Results must
nevertheless be those of a run that executes all instructions in order. Two instructions of
different engines have a hazard if both access the same memory cell and at least one writes it.
Tokens must then order these two instructions.

A step is an instruction of a run. The proof keeps, for every engine, the vector clock of its last
step (Fidge 1988; Mattern 1989): the number of steps of each engine that have certainly completed.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.errors import ProgramError
from celosia.arch.isa import Engine
from celosia.sim.admission import check_followed, check_step
from celosia.sim.flow import Step, run
from celosia.sim.regions import Memory, Region, regions, sizes
from celosia.sim.sums import Sums

Clock = NDArray[np.int64]
Counts = NDArray[np.int32]
_ENGINES = len(Engine)


class Memories:
    """History of a run's memory accesses, with which :func:`check` finds hazards.

    Two instructions of different engines have a hazard if both access the same memory cell, at
    least one writes it, and no synchronization token orders them. For each memory cell and each
    engine, the history has the last instruction of the engine that read the cell, and the last one
    that wrote the cell. The instructions of each engine are numbered from 1.

    To save space, consecutive cells have a common record. Such a group of cells is a unit.
    ``units`` maps the name of a memory to the number of cells in a unit. By default, a unit of
    external memory has ``config.mem_bytes`` cells (one word), and a unit of any other memory has
    one cell.

    An instruction accesses rows of consecutive cells (:class:`Region`). The caller must choose
    units so that each row begins at the first cell of a unit. Otherwise :func:`check` could report
    a hazard of two instructions that access different cells of one unit.
    """

    def __init__(self, config: Config, units: Mapping[Memory, int] = MappingProxyType({})):
        self._config = config
        self._units: Mapping[Memory, int] = {"dram": config.mem_bytes, **units}
        self._histories: dict[Memory, Counts] = {}

    def cells(self, region: Region) -> Counts:
        """Return the number of the last step in which each engine accessed each unit of a region.

        A step is an instruction of the run; the steps of each engine are numbered from 1. A unit is
        a group of consecutive memory cells with a common record. ``region`` has ``m`` rows of
        memory cells.

        The result has shape [2, engines, m, units]. Element [0, e, i, j] is the number of the last
        step of engine e that read unit j of row i of the region. Element [1, e, i, j] is the number
        of the last step that wrote this unit. An element is 0 if there is no such step. The result
        is a view of this object's data: a caller records a step by assigning the step's number to
        elements.
        """
        unit = self._units.get(region.memory, 1)
        if region.memory not in self._histories:
            # The operating system allocates memory only for the cells that a program accesses.
            cells = -(-sizes(self._config)[region.memory] // unit)
            self._histories[region.memory] = np.zeros((2, _ENGINES, cells), np.int32)
        history = self._histories[region.memory]
        kind, engine, cell = history.strides
        shape = 2, _ENGINES, region.m, -(-region.count // unit)
        strides = kind, engine, region.stride // unit * cell, cell
        return np.ndarray(shape, history.dtype, history, region.addr // unit * cell, strides)


def check(
    words: Sequence[int],
    config: Config,
    start: int = 0,
    registers: Sequence[int] | None = None,
) -> int:
    """Check the hazards of a program; return the number of instructions (steps) in its run.

    Raises :class:`ProgramError` if a step cannot run on the configuration, waits for a token that
    no earlier step pushes, or races with a step of another engine. The error is also raised if a
    step pushes a token that no later step waits for, or reads accumulators that no product has
    filled (:class:`celosia.sim.sums.Sums`).
    """
    memories, sums = Memories(config), Sums(config)
    tokens: dict[tuple[Engine, Engine], deque[Clock]] = {
        (source, sink): deque() for source in Engine for sink in Engine
    }
    clocks: dict[Engine, Clock] = {engine: np.zeros(_ENGINES, np.int64) for engine in Engine}
    seen: dict[tuple[Engine, int], Step] = {}
    before: Step | None = None
    steps = 0
    for step in run(words, start, None if registers is None else list(registers)):
        check_step(step, config)
        if step.engine == Engine.VECTOR:
            check_followed(before, step, config)
            before = step
        clock = clocks[step.engine].copy()
        for source in sorted(step.pop):
            if not tokens[source, step.engine]:
                raise ProgramError(
                    f"{step} waits for a token from {source.name}, but no earlier step pushes one"
                )
            np.maximum(clock, tokens[source, step.engine].popleft(), out=clock)
        count = clocks[step.engine][step.engine] + 1
        seen[step.engine, int(count)] = step
        _check_hazards(step, clock, int(count), memories, config, seen)
        sums.follow(step)
        clock[step.engine] = count
        clocks[step.engine] = clock
        for sink in step.push:
            tokens[step.engine, sink].append(clock)
        steps += 1
    check_followed(before, None, config)
    for (source, sink), left in tokens.items():
        if left:
            raise ProgramError(
                f"Program leaves {len(left)} tokens from {source.name} to {sink.name} behind"
            )
    return steps


def _check_hazards(
    step: Step,
    clock: Clock,
    count: int,
    memories: Memories,
    config: Config,
    seen: Mapping[tuple[Engine, int], Step],
) -> None:
    for writing, touched in enumerate(regions(step, config)):
        for region in touched:
            cells = memories.cells(region)
            for kind in ("write", "read")[: 1 + writing]:
                latest = cells[int(kind == "write")].max(axis=(1, 2))
                for engine in Engine:
                    if engine != step.engine and latest[engine] > clock[engine]:
                        raise ProgramError(
                            f"{step} {'writes' if writing else 'reads'} {region.memory} without "
                            f"waiting for the {kind} of {seen[engine, int(latest[engine])]}"
                        )
            cells[writing, step.engine] = count
