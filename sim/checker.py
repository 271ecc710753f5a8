"""Proof that a program's synchronization tokens order every two instructions with a hazard.

Two instructions of different engines have a hazard if both access the same memory cell and at least
one writes it. The proof uses vector clocks (Fidge 1988; Mattern 1989).
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
    """Records of each engine's last read and last write of every memory cell in a run.

    ``units`` maps a memory's name to the number of adjacent cells that share a record; by default,
    one word of external memory, else one cell. If rows of a :class:`Region` do not begin at
    multiples of this number, false hazards are possible.
    """

    def __init__(self, config: Config, units: Mapping[Memory, int] = MappingProxyType({})):
        self._config = config
        self._units: Mapping[Memory, int] = {"dram": config.mem_bytes, **units}
        self._histories: dict[Memory, Counts] = {}

    def cells(self, region: Region) -> Counts:
        """Return numbers of the last instructions that accessed a region, [2, engines, m, units].

        The first axis has reads, then writes. Each engine's instructions count from 1; 0 means no
        access. A unit is a group of cells with a common record. The result is a view: a caller
        stores new numbers in it.
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
    """Check a program for hazards; return the number of engine instructions that its run executes.

    A hazard is a cell that two engines access, at least one by a write, in an order that no token
    ensures. Raises :class:`ProgramError` for a hazard, a missing or unused token, an instruction
    that cannot run, or a read of undefined accumulators.
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
