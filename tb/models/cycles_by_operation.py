"""Cycles, multiplications and external memory traffic of the operations in a recorded run."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from celosia.arch.config import Config
from celosia.arch.isa import Engine, Opcode
from celosia.sim.regions import ceil_div
from celosia.tb.machine.recording import Command, Recording
from celosia.tb.models.places import Place

Span = tuple[int, int]
"""The first cycle, and the one after the last."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """Cost of an operation in a recorded run: cycles, products, and external memory traffic.

    An operation computes one tensor of the model, or one layer's attention.
    """

    name: str
    spans: tuple[Span, ...]
    """Intervals of cycles spent on the operation. Each cycle of the run has one operation."""
    macs: int
    """Number of useful products (those without padding)."""
    vectors: int
    """Number of activation vectors that enter the array for these products."""
    loaded: int
    """Number of bytes that are read from external memory for the operation, at any time."""
    stored: int
    """Number of bytes that the operation writes to external memory."""

    @property
    def cycles(self) -> int:
        """Number of cycles spent on the operation."""
        return sum(end - begin for begin, end in self.spans)

    @property
    def layer(self) -> str:
        """The name of the operation's layer, or the operation's name if it belongs to no layer."""
        return self.name.rpartition(".")[0] or self.name

    @property
    def kind(self) -> str:
        """Kind of the operation: its name after the last dot, such as ``context``."""
        return self.name.rpartition(".")[2]

    def utilization(self, config: Config) -> float:
        """Return the array's utilization: useful multiplications / (array elements * cycles)."""
        return self.macs / (config.elements * self.cycles) if self.cycles else 0.0


def operations(recording: Recording, places: Sequence[Place], config: Config) -> list[Operation]:
    """Return the cost of each operation in a recorded run, in the order of the first cycles.

    ``places`` has the tensor of each command. A cycle counts for the matrix engine's operation, or
    for the vector engine's if the matrix engine is idle. A cycle without work counts for the next
    operation, or else for the last one.
    """
    spans: dict[str, list[Span]] = {}
    for begin, end, name in _intervals(recording, places):
        spans.setdefault(name, []).append((begin, end))
    sums: dict[str, list[int]] = {name: [0] * 4 for name in spans}
    for command, place in zip(recording.commands, places, strict=True):
        added = (*_products(command, config), *_bytes(command, config))
        before = sums.setdefault(place.operation, [0] * 4)
        sums[place.operation] = [a + b for a, b in zip(before, added, strict=True)]
    return [
        Operation(
            name=name,
            spans=tuple(spans.get(name, ())),
            macs=macs,
            vectors=vectors,
            loaded=loaded,
            stored=stored,
        )
        for name, (macs, vectors, loaded, stored) in sums.items()
        if name
    ]


def _intervals(recording: Recording, places: Sequence[Place]) -> list[tuple[int, int, str]]:
    """Return begin, end and operation of pieces of the run without gaps."""
    pairs = [
        (command, place.operation)
        for command, place in zip(recording.commands, places, strict=True)
        if place.operation
    ]
    pieces = [(c.begin, c.end, name) for c, name in pairs if c.engine == Engine.MATRIX]
    of_matrix = pieces.copy()
    place = 0
    for command, name in pairs:
        if command.engine != Engine.VECTOR:
            continue
        # What the matrix engine's commands leave of it.
        begin = command.begin
        while place < len(of_matrix) and of_matrix[place][1] <= begin:
            place += 1
        for other_begin, other_end, _ in itertools.islice(of_matrix, place, None):
            if other_begin >= command.end:
                break
            if begin < other_begin:
                pieces.append((begin, other_begin, name))
            begin = max(begin, other_end)
        if begin < command.end:
            pieces.append((begin, command.end, name))
    pieces.sort()
    merged: list[tuple[int, int, str]] = []
    for _, end, name in pieces:
        begin = merged[-1][1] if merged else 0
        if merged and merged[-1][2] == name:
            begin = merged.pop()[0]
        merged.append((begin, end, name))
    if merged:
        begin, _, name = merged.pop()
        merged.append((begin, recording.cycles, name))
    return merged


def _products(command: Command, config: Config) -> tuple[int, int]:
    if command.opcode != Opcode.MATMUL:
        return 0, 0
    m, k, n = (command.operands[name] for name in "mkn")
    return m * k * n, m * ceil_div(k, config.array.rows) * ceil_div(n, config.array.cols)


def _bytes(command: Command, config: Config) -> tuple[int, int]:
    """Return the bytes that a command reads and writes in external memory, in whole words."""
    if command.engine not in (Engine.LOAD, Engine.STORE):
        return 0, 0
    words = ceil_div(command.operands["row_bytes"], config.mem_bytes)
    moved = command.operands["m"] * words * config.mem_bytes
    return (moved, 0) if command.engine == Engine.LOAD else (0, moved)
