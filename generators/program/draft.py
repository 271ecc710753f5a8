"""Programs before buffers have addresses."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from celosia.arch.isa import REGISTERS, Opcode


@dataclass(frozen=True)
class Ref:
    """A scratchpad address: so many bytes from the start of a buffer."""

    buffer: str
    offset: int = 0


LENGTH_REGISTER = REGISTERS - 1
"""The register in which the host gives an inference's length."""
LENGTH_REGISTERS = 6
"""Registers, the length's and those below it, in which the host gives rows of an inference."""
Rows = Mapping[int, tuple[int, int]]
"""The first row and the row count of the part of a sequence that each register counts."""


def row_counts(rows: Rows, length: int) -> dict[int, int]:
    """Return the registers of an inference of ``length`` rows: the rows of each part that it has.

    An instruction has at least one row, so a part behind the length has one, too.
    """
    return {number: min(max(length - first, 1), count) for number, (first, count) in rows.items()}


@dataclass(frozen=True)
class Given:
    """An operand that the host gives in a register before it starts the program.

    It is ``base`` plus the register.
    """

    register: int
    most: int
    """The register's largest value."""
    base: int | Ref = 0


@dataclass(frozen=True)
class Written:
    """The part of a tensor that a vector instruction writes; no columns where it writes none."""

    name: str
    """The tensor's name in the float model; what is done where no tensor is written."""
    row: int = 0
    rows: int = 0
    column: int = 0
    columns: int = 0
    head: int = 0
    """The head, of scores and probabilities."""
    below: tuple["Written", ...] = ()
    """The parts in the rows below, where one instruction writes several."""

    @property
    def parts(self) -> list["Written"]:
        """All parts, each without those below it."""
        return [replace(self, below=()), *self.below]


@dataclass(frozen=True)
class Draft:
    """An instruction whose scratchpad addresses may be references."""

    opcode: Opcode
    operands: Mapping[str, int | Ref | Given]
    flags: frozenset[str] = frozenset()
    defines: str = ""
    """The buffer whose old content nothing needs any more from here on."""
    written: Written | None = None
    """Tensor that a vector instruction writes."""
    once: bool = False
    """Later runs find what it leaves, and leave it out."""
    plane: int = 0
    """Planes of nested weights above the one that it is for; runs of no more leave it out."""


@dataclass(frozen=True)
class Repeat:
    """Instructions that come again with other operands; a loop where program memory is short."""

    iterations: Sequence[Sequence["Draft | Repeat"]]


Node = Draft | Repeat


@dataclass
class Item:
    """Instructions that compute something, and the loads that must come before them."""

    loads: list[Draft] = field(default_factory=list)
    body: list[Node] = field(default_factory=list)


def flatten(nodes: Sequence[Node]) -> Iterator[Draft]:
    """Yield the instructions in the order in which they run."""
    for node in nodes:
        if isinstance(node, Draft):
            yield node
        else:
            for iteration in node.iterations:
                yield from flatten(iteration)


def upper(nodes: Sequence[Node], planes: int) -> list[Node]:
    """Return the instructions of a run that reads so many planes of nested weights."""
    return [
        Repeat([upper(each, planes) for each in node.iterations])
        if isinstance(node, Repeat)
        else node
        for node in nodes
        if isinstance(node, Repeat) or node.plane < planes
    ]


def arrange(
    sections: Sequence[Sequence[Item]], ahead: int, *, across: bool
) -> list[Sequence[Node]]:
    """Return each section's instructions, with loads placed ``ahead`` items before their use.

    ``across`` lets a load move into the section before.
    """
    flat = [(index, item) for index, section in enumerate(sections) for item in section]
    starts = [sum(len(section) for section in sections[:index]) for index in range(len(sections))]
    placed: list[list[Node]] = [[] for _ in flat]
    for place, (index, item) in enumerate(flat):
        # No further, so that a load follows the last use of its buffer in the layer before.
        longest = min(ahead, len(sections[index]) - 1)
        first = 0 if across else starts[index]
        # At the start half as far, so that the first items need not wait for all of these loads.
        placed[max(place - longest, (first + place) // 2)].extend(item.loads)
    result: list[Sequence[Node]] = []
    for index in range(len(sections)):
        nodes: list[Node] = []
        for place in range(starts[index], starts[index] + len(sections[index])):
            nodes += [*placed[place], *flat[place][1].body]
        result.append(nodes)
    return result
