"""Events of a run, cycle by cycle, as the fast simulations record them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from celosia.arch.errors import RunError
from celosia.arch.instruction import unpack_one, wrap
from celosia.arch.isa import Engine, Opcode
from celosia.arch.registers import ARRAY_CAUSES
from celosia.hdl.ports import WORD
from celosia.tb.machine.packing import unpack

SUMS = (*(name.lower() for name in ARRAY_CAUSES), "loaded", "stored")
"""Counts for each window of cycles: causes of the array, words of external memory."""

# Kinds of events: a command word was sent; a command was offered, or completed; the engines whose
# tokens are lacking (a bit mask) changed; a count of the window that begins.
_WORD, _OFFERED, _DONE, _LACKING, _SUM = range(5)
# A code is kind, index (the engine's, or the count's in SUMS) and value, from the highest bits on.
_PLACE_SHIFT, _KIND_SHIFT = 40, 44


@dataclass(frozen=True, kw_only=True)
class Command:
    """A recorded command of an engine: its instruction, and its times as cycles of the run.

    The times are those at which the command was sent, could be accepted, began and ended.
    """

    engine: Engine
    opcode: Opcode
    flags: frozenset[str]
    operands: Mapping[str, int]
    sent: int
    """Cycle in which the command's last word entered the engine's queue."""
    offered: int
    """First cycle in which the engine could accept the command: no token was missing."""
    begin: int
    """First cycle in which the command was the engine's oldest command; at least ``offered``."""
    end: int
    """Cycle after the command's last cycle."""


@dataclass(frozen=True)
class Wait:
    """Cycles in which an engine's next command waits for dependency tokens from other engines.

    ``lacking`` are the engines that have not yet sent their token.
    """

    engine: Engine
    lacking: frozenset[Engine]
    begin: int
    end: int
    """Cycle after the last cycle of the wait."""


@dataclass(frozen=True)
class Recording:
    """A recorded run: the engines' commands and waits, and counts of activity over time.

    A count is for one window: a fixed number of cycles.
    """

    cycles: int
    window: int
    """Number of cycles of a window; the last window may be shorter."""
    commands: list[Command] = field(default_factory=list)
    """The commands of all engines in program order."""
    waits: list[Wait] = field(default_factory=list)
    sums: dict[str, list[int]] = field(default_factory=dict)
    """For each name in ``SUMS``, a list with a count for each window: cycles of an activity of the
    array, or words ``loaded`` from or ``stored`` to external memory."""


def recording(events: Sequence[tuple[int, int]], cycles: int, window: int) -> Recording:
    """Return the recording of a run, made from the events that the simulation has reported.

    ``events`` lists pairs (cycle, code). ``cycles`` is the length of the run. The recording has
    counts for each window of ``window`` cycles. Raises :class:`RunError` if some events of a
    command are missing.
    """
    sent: list[tuple[int, Engine, list[int]]] = []
    offered: dict[Engine, list[int]] = {engine: [] for engine in Engine}
    done: dict[Engine, list[int]] = {engine: [] for engine in Engine}
    lacking: dict[Engine, list[tuple[int, int]]] = {engine: [] for engine in Engine}
    changes: dict[str, list[tuple[int, int]]] = {name: [] for name in SUMS}
    for cycle, code in events:
        kind, place = code >> _KIND_SHIFT, code >> _PLACE_SHIFT & 15
        value = code & ((1 << _PLACE_SHIFT) - 1)
        if kind == _WORD:
            word = unpack(WORD, value)
            if word["first"]:
                sent.append((cycle, Engine(word["engine"]), []))
            sent[-1] = (cycle, sent[-1][1], [*sent[-1][2], word["word"]])
        elif kind == _OFFERED:
            offered[Engine(place)].append(cycle)
        elif kind == _DONE:
            done[Engine(place)].append(cycle + 1)
        elif kind == _LACKING:
            lacking[Engine(place)].append((cycle, value))
        else:
            changes[SUMS[place]].append((cycle, value))
    return Recording(
        cycles,
        window,
        list(_commands(sent, offered, done)),
        [wait for engine in Engine for wait in _waits(engine, lacking[engine], cycles)],
        {name: _filled(changes[name], cycles, window) for name in SUMS},
    )


def _commands(
    sent: Sequence[tuple[int, Engine, list[int]]],
    offered: Mapping[Engine, list[int]],
    done: Mapping[Engine, list[int]],
) -> Iterator[Command]:
    """Yield the commands; an engine is offered them in the order in which they were sent."""
    counts = {engine: sum(to == engine for _, to, _ in sent) for engine in Engine}
    for engine in Engine:
        if not counts[engine] == len(offered[engine]) == len(done[engine]):
            raise RunError(
                f"The {engine.name} engine was sent {counts[engine]} commands, was offered "
                f"{len(offered[engine])} and completed {len(done[engine])}"
            )
    place, before = dict.fromkeys(Engine, 0), dict.fromkeys(Engine, 0)
    for cycle, engine, words in sent:
        instruction = unpack_one(words, 0)
        start, end = offered[engine][place[engine]], done[engine][place[engine]]
        yield Command(
            engine=engine,
            opcode=instruction.opcode,
            flags=instruction.flags,
            operands={
                name: wrap(instruction.operand(name).immediate)
                for name in instruction.definition.operands
            },
            sent=cycle,
            offered=start,
            begin=max(start, before[engine]),
            end=end,
        )
        before[engine] = end
        place[engine] += 1


def _waits(engine: Engine, changes: Sequence[tuple[int, int]], cycles: int) -> Iterator[Wait]:
    ends = [cycle for cycle, _ in changes[1:]] + [cycles]
    for (begin, mask), end in zip(changes, ends, strict=False):
        if mask:
            yield Wait(engine, frozenset(e for e in Engine if mask >> e & 1), begin, end)


def _filled(changes: Sequence[tuple[int, int]], cycles: int, window: int) -> list[int]:
    """Return the sum of each window, from those sums that differ from the previous one."""
    sums, value, next_change = [], 0, 0
    for first in range(0, cycles, window):
        while next_change < len(changes) and changes[next_change][0] <= first:
            value = changes[next_change][1]
            next_change += 1
        sums.append(value)
    return sums
