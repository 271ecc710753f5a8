"""Proof that a program's tokens order every hazard between engines.

The four engines run concurrently; only tokens order an instruction of one engine against one of
another. A program means what it does when run in order, so every pair of steps on different
engines that touch the same cell, at least one of them writing, must be ordered by tokens. The
proof keeps, for every engine, the vector clock of its last step (Fidge 1988; Mattern 1989): the
number of steps of each engine that have certainly completed.
"""

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from arch.config import Config
from arch.isa import Engine
from sim.flow import Step, run
from sim.regions import Memory, Region, check_step, regions, sizes

Clock = NDArray[np.int64]
_ENGINES = len(Engine)


class _History:
    """The last read and the last write of every cell by each engine, as step counts, 0 for none."""

    def __init__(self, cells: int):
        self.read: Clock = np.zeros((_ENGINES, cells), np.int64)
        self.written: Clock = np.zeros((_ENGINES, cells), np.int64)


class _Memories:
    """Histories of all memories; external memory is kept in words as far as it is touched."""

    def __init__(self, config: Config):
        self._config = config
        self._histories: dict[Memory, _History] = {}

    def cells(self, region: Region) -> NDArray[np.int64]:
        if region.memory != "dram":
            return region.cells().ravel()
        width = self._config.mem_bytes
        words = -(-region.count // width)
        return (
            Region("dram", region.addr // width, region.stride // width, region.m, words)
            .cells()
            .ravel()
        )

    def history(self, memory: Memory, highest: int) -> _History:
        size = sizes(self._config)[memory] if memory != "dram" else highest + 1
        history = self._histories.get(memory)
        if history is None:
            history = self._histories[memory] = _History(size)
        elif history.read.shape[1] < size:
            grown = _History(2 * size)
            grown.read[:, : history.read.shape[1]] = history.read
            grown.written[:, : history.written.shape[1]] = history.written
            history = self._histories[memory] = grown
        return history


def check(
    words: Sequence[int],
    config: Config,
    start: int = 0,
    registers: Mapping[int, int] | None = None,
) -> int:
    """Check a program and return its number of steps.

    Raises :class:`ValueError` where a step could not run on the configuration, waits for a token
    that no earlier step pushes, leaves a token behind, or races with a step of another engine.
    """
    memories = _Memories(config)
    tokens: dict[tuple[Engine, Engine], deque[Clock]] = {
        (source, sink): deque() for source in Engine for sink in Engine
    }
    clocks: dict[Engine, Clock] = {engine: np.zeros(_ENGINES, np.int64) for engine in Engine}
    seen: dict[tuple[Engine, int], Step] = {}
    steps = 0
    for step in run(words, start, registers):
        check_step(step, config)
        clock = clocks[step.engine].copy()
        for source in sorted(step.pop):
            if not tokens[source, step.engine]:
                raise ValueError(
                    f"{step} waits for a token from {source.name}, but no earlier step pushes one"
                )
            np.maximum(clock, tokens[source, step.engine].popleft(), out=clock)
        count = clocks[step.engine][step.engine] + 1
        seen[step.engine, int(count)] = step
        _check_hazards(step, clock, int(count), memories, config, seen)
        clock[step.engine] = count
        clocks[step.engine] = clock
        for sink in step.push:
            tokens[step.engine, sink].append(clock)
        steps += 1
    for (source, sink), left in tokens.items():
        if left:
            raise ValueError(
                f"Program leaves {len(left)} tokens from {source.name} to {sink.name} behind"
            )
    return steps


def _check_hazards(
    step: Step,
    clock: Clock,
    count: int,
    memories: _Memories,
    config: Config,
    seen: Mapping[tuple[Engine, int], Step],
) -> None:
    for writing, found in enumerate(regions(step, config)):
        for region in found:
            cells = memories.cells(region)
            history = memories.history(region.memory, int(cells.max()))
            for engine in Engine:
                if engine == step.engine:
                    continue
                kinds = [("write", history.written)] + [("read", history.read)] * writing
                for kind, last in kinds:
                    latest = int(last[engine, cells].max())
                    if latest > clock[engine]:
                        verb = "writes" if writing else "reads"
                        raise ValueError(
                            f"{step} {verb} {region.memory} without waiting for the {kind} of "
                            f"{seen[engine, latest]}"
                        )
            (history.written if writing else history.read)[step.engine, cells] = count
