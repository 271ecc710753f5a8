"""Assignment of recorded commands to the model: the tensor that each command helps to compute."""

from collections.abc import Sequence
from dataclasses import dataclass

from celosia.arch.config import Config
from celosia.arch.isa import Engine
from celosia.generators.program.draft import Written
from celosia.sim.flow import Step
from celosia.sim.regions import Memory, Region, regions
from celosia.tb.machine.recording import Command

Hull = tuple[Memory, int, int]
"""A memory, and the first and the end of the cells that are accessed in it."""

_ATTENTION = ("scores", "probabilities", "context")
"""Tensors that are computed alternately, part by part."""


@dataclass(frozen=True)
class Place:
    """The tensor that a command helps to compute, and the part (rows, columns, head) of it."""

    tensor: str
    """Name of the tensor that the command helps to compute; empty if unknown."""
    part: str = ""
    """The tensor's rows, columns and head that the command computes; empty for a STORE."""

    @property
    def operation(self) -> str:
        """Name of the operation that computes the tensor; usually the tensor's name.

        One operation computes the tensors ``scores``, ``probabilities`` and ``context`` of a layer.
        Its name is the layer's name followed by ``.attention``.
        """
        layer, _, name = self.tensor.rpartition(".")
        if name not in _ATTENTION:
            return self.tensor
        return f"{layer}.attention" if layer else "attention"


def places(commands: Sequence[Command], written: Sequence[Written], config: Config) -> list[Place]:
    """Return a list with the tensor that each recorded command of a run helps to compute.

    ``written`` has the tensor part that each vector command writes. For any other command, it is
    the tensor of the first command that reads the command's result; for a STORE, the stored tensor.
    An element is an empty :class:`Place` if the tensor is unknown.
    """
    vector = [index for index, c in enumerate(commands) if c.engine == Engine.VECTOR]
    # If a program was not compiled from a model, the place of a vector command is its opcode.
    fits = len(written) == len(vector)
    tensors = dict(zip(vector, written, strict=True)) if fits else {}
    touched = [_hulls(command, config) for command in commands]
    placed = [Place("")] * len(commands)
    for index in reversed(range(len(commands))):
        tensor = tensors.get(index)
        if tensor is not None and tensor.columns:
            placed[index] = Place(tensor.name, _part(tensor))
        elif not fits and commands[index].engine == Engine.VECTOR:
            placed[index] = Place(commands[index].opcode.name.lower())
        else:
            writes = touched[index][1]
            for later in range(index + 1, len(commands)):
                if _meet(writes, touched[later][0]):
                    placed[index] = placed[later]
                    break
    for index, command in enumerate(commands):
        if command.engine == Engine.STORE:
            reads = touched[index][0]
            for before in reversed(range(index)):
                if _meet(reads, touched[before][1]):
                    placed[index] = Place(placed[before].tensor)
                    break
    return placed


def _part(written: Written) -> str:
    rows = f"rows {written.row} to {written.row + written.rows - 1}"
    columns = f"columns {written.column} to {written.column + written.columns - 1}"
    head = f", head {written.head}" if written.name.rpartition(".")[2] in _ATTENTION[:2] else ""
    return f"{rows}, {columns}{head}"


def _hulls(command: Command, config: Config) -> tuple[list[Hull], list[Hull]]:
    """Return the cells that a command reads and writes, without external memory."""
    step = Step(
        0,
        command.opcode,
        command.engine,
        command.operands,
        command.flags,
        frozenset(),
        frozenset(),
    )
    reads, writes = regions(step, config)
    return [_hull(r) for r in reads if r.memory != "dram"], [
        _hull(r) for r in writes if r.memory != "dram"
    ]


def _hull(region: Region) -> Hull:
    last = region.addr + region.stride * (region.m - 1)
    return region.memory, min(region.addr, last), max(region.addr, last) + region.count


def _meet(some: Sequence[Hull], others: Sequence[Hull]) -> bool:
    return any(a[0] == b[0] and a[1] < b[2] and b[1] < a[2] for a in some for b in others)
