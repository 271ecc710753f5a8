"""A recorded run by operations of the model: their cycles, products and external bytes."""

from collections.abc import Sequence
from dataclasses import dataclass

from arch.config import Config
from arch.isa import Engine, Opcode
from sim.regions import ceil_div
from tb.places import Place
from tb.recording import Command, Recording


@dataclass(frozen=True, kw_only=True)
class Operation:
    """Everything that one tensor of the model, or one layer's attention, takes."""

    name: str
    begin: int
    end: int
    """Cycles from when the operation before has ended until this one has: they add up to all."""
    macs: int
    """Useful products."""
    vectors: int
    """Vectors of activations that the array takes for them."""
    loaded: int
    """External bytes read for it, at whatever time."""
    stored: int
    """External bytes written."""

    @property
    def cycles(self) -> int:
        """Cycles that the run would be shorter without it, if nothing else moved."""
        return self.end - self.begin

    @property
    def layer(self) -> str:
        """The name without its last part; the name itself outside of layers."""
        return self.name.rpartition(".")[0] or self.name

    @property
    def kind(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(".")[2]

    def utilization(self, config: Config) -> float:
        """Return useful products over elements times cycles."""
        return self.macs / (config.elements * self.cycles) if self.cycles else 0.0


def operations(recording: Recording, found: Sequence[Place], config: Config) -> list[Operation]:
    """Return the operations in the order in which they end.

    An operation ends with its last command that is not a load. Masked tiles count as computed.
    """
    ends: dict[str, int] = {}
    sums: dict[str, list[int]] = {}
    for command, place in zip(recording.commands, found, strict=True):
        name = place.operation
        if not name:
            continue
        if command.engine != Engine.LOAD:
            ends[name] = max(ends.get(name, 0), command.end)
        added = (*_products(command, config), *_bytes(command, config))
        sums[name] = [a + b for a, b in zip(sums.get(name, [0] * 4), added, strict=True)]
    order = sorted(ends, key=lambda name: ends[name])
    begin, result = 0, []
    for name in order:
        end = recording.cycles if name == order[-1] else ends[name]
        macs, vectors, loaded, stored = sums[name]
        result.append(
            Operation(
                name=name,
                begin=begin,
                end=end,
                macs=macs,
                vectors=vectors,
                loaded=loaded,
                stored=stored,
            )
        )
        begin = end
    return result


def _products(command: Command, config: Config) -> tuple[int, int]:
    if command.opcode != Opcode.MATMUL:
        return 0, 0
    m, k, n = (command.operands[name] for name in "mkn")
    return m * k * n, m * ceil_div(k, config.rows) * ceil_div(n, config.cols)


def _bytes(command: Command, config: Config) -> tuple[int, int]:
    """Return the bytes that a command reads and writes in external memory, in whole words."""
    if command.engine not in (Engine.LOAD, Engine.STORE):
        return 0, 0
    words = ceil_div(command.operands["row_bytes"], config.mem_bytes)
    moved = command.operands["m"] * words * config.mem_bytes
    return (moved, 0) if command.engine == Engine.LOAD else (0, moved)
