"""Goals of functional coverage: combinations of instruction, flag and size that tests must cover.

A size is an operand that gives a number of rows, columns or bytes. Goals have boundary values of
sizes, such as 1 and the largest value.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from celosia.arch.config import Config
from celosia.arch.isa import DEFINITIONS, Engine, Opcode
from celosia.arch.sparse import LEAST_K
from celosia.sim.flow import Step
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.verify.coverage.directed import SIZES, largest

PLAIN = ""
"""Flag of a point of instructions without flags."""

STALLS = {
    "steady": MemoryTiming(latency=1, interval=1),
    "slow": MemoryTiming(latency=40, interval=4),
    "refresh": MemoryTiming(latency=8, interval=1, refresh_period=100, refresh_cycles=40),
}
"""Timings of external memory by their names: a word a cycle, one in four, and with stops."""


@dataclass(frozen=True, order=True)
class Goal:
    """A goal of functional coverage: an instruction with a flag and a certain value of one size."""

    opcode: Opcode
    flag: str
    """Empty for an instruction without flags."""
    size: str
    """Name of the operand, such as ``m`` for rows."""
    bound: str
    """Name of the value, such as ``largest``."""
    value: int

    def __str__(self) -> str:
        """Return the name of a point, without the timing."""
        return f"{self.opcode.name} {self.flag or 'plain'} {self.size} {self.bound}".strip()


@cache
def goals(config: Config) -> tuple[Goal, ...]:
    """Return the goals of functional coverage: legal instructions with boundary values of a size.

    A size is an operand that is a number of rows, columns or bytes. The boundary values are 1, the
    number n that the hardware processes at once, n + 1, and the largest value for which the
    matrices fit the memories.
    """
    return tuple(_goals(config))


def _goals(config: Config) -> Iterator[Goal]:
    for opcode, definition in DEFINITIONS.items():
        named = [name for name in SIZES if name in definition.operands]
        if definition.engine is None:
            continue
        if not named and (definition.unit is None or config.read(definition.unit)):
            yield Goal(opcode, PLAIN, "", "", 0)
        for flag in (PLAIN, *definition.flags):
            for size in named:
                most = largest(opcode, flag, size, config)
                side = _side(opcode, size, config)
                bounds = {"one": 1, "array": side, "more": side + 1, "largest": most}
                for bound, value in bounds.items():
                    if 0 < value <= most and _is_taken(opcode, flag, size, value, config):
                        yield Goal(opcode, flag, size, bound, value)


def _is_taken(opcode: Opcode, flag: str, size: str, value: int, config: Config) -> bool:
    """Return whether the checker accepts a size that is no larger than the largest."""
    if opcode == Opcode.SPARSE and size == "k":
        return value >= LEAST_K
    unit = {"rotate": 2, "spaced": config.array.cols}.get(flag, 1)
    return size != "n" or not value % unit


def _side(opcode: Opcode, size: str, config: Config) -> int:
    """Return the number that the array, the vector engine or a word processes at once of a size."""
    if size == "row_bytes":
        return config.mem_bytes
    if size == "n":
        matrix = DEFINITIONS[opcode].engine == Engine.MATRIX
        return config.array.cols if matrix else config.vector.lanes
    return config.array.rows


def reached(step: Step, config: Config) -> set[str]:
    """Return the names of the goals that an executed instruction reaches by its flags and sizes."""
    flags = step.flags or {PLAIN}
    return {name for flag in flags for name in _names(step, flag, config)}


def _names(step: Step, flag: str, config: Config) -> Iterator[str]:
    for goal in _by_flag(config).get((step.opcode, flag), ()):
        if not goal.size or step[goal.size] == goal.value:
            yield str(goal)


@cache
def _by_flag(config: Config) -> dict[tuple[Opcode, str], Sequence[Goal]]:
    goals_by_flag: dict[tuple[Opcode, str], list[Goal]] = {}
    for goal in goals(config):
        goals_by_flag.setdefault((goal.opcode, goal.flag), []).append(goal)
    return dict(goals_by_flag)
