"""Programs before address assignment: operands name scratchpad buffers instead of addresses."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from celosia.arch.isa import REGISTERS, Opcode


@dataclass(frozen=True)
class Ref:
    """A scratchpad address: ``offset`` bytes after the start of a buffer."""

    buffer: str
    offset: int = 0

    def behind(self, offset: int) -> "Ref":
        """Return the address ``offset`` bytes after this address."""
        return Ref(self.buffer, self.offset + offset)


LENGTH_REGISTER = REGISTERS - 1
"""The register in which the host passes an inference's length."""
LENGTH_REGISTERS = 6
"""Number of registers, from the length's downward, in which the host passes row counts."""


@dataclass(frozen=True)
class Given:
    """An instruction operand: ``base`` plus the value of a register that the host writes."""

    register: int
    most: int
    """Largest value of the register."""
    base: int | Ref = 0

    def behind(self, offset: int) -> "Given":
        """Return an operand for the address ``offset`` bytes after this operand's address."""
        base = self.base.behind(offset) if isinstance(self.base, Ref) else self.base + offset
        return replace(self, base=base)


@dataclass(frozen=True)
class Written:
    """The range of rows and columns of a float model's tensor that a vector instruction writes.

    ``row`` and ``column`` are the indices of the range's first row and first column. If the
    instruction writes no tensor of the float model, ``columns`` is 0, and ``name`` describes the
    data.
    """

    name: str
    """Name of the tensor in the float model, or a description if no tensor is written."""
    row: int = 0
    rows: int = 0
    column: int = 0
    columns: int = 0
    head: int = 0
    """The head of scores and probabilities."""
    next_ranges: tuple["Written", ...] = ()
    """Further tensor ranges that the same instruction writes, in the next rows of its output."""
    pieces: tuple[tuple[int, int], ...] = ()
    """Column ranges (first, count) of the tensor in the order of writing; ``column`` is an index
    into this order. Empty if the columns are adjacent."""

    @property
    def places(self) -> list[int]:
        """Indices in the float model's tensor of the columns that the instruction writes.

        The indices are in the order in which the instruction writes the columns.
        """
        pieces = self.pieces or ((0, self.column + self.columns),)
        order = [place for first, count in pieces for place in range(first, first + count)]
        return order[self.column : self.column + self.columns]

    @property
    def parts(self) -> list["Written"]:
        """List of all tensor ranges that the instruction writes.

        The first range is this object, without :attr:`next_ranges`. The others are the ranges in
        :attr:`next_ranges`.
        """
        return [replace(self, next_ranges=()), *self.next_ranges]


@dataclass(frozen=True)
class Draft:
    """An instruction whose operands may name a buffer or a register instead of a number."""

    opcode: Opcode
    operands: Mapping[str, int | Ref | Given]
    flags: frozenset[str] = frozenset()
    defines: str = ""
    """The buffer whose old content is not needed from here on."""
    written: Written | None = None
    """Tensor that a vector instruction writes."""
    once: bool = False
    """Later runs omit it, because its result persists."""
    plane: int = 0
    """Number of bit planes above its plane; programs of at most this number of planes omit it."""

    @cached_property
    def buffers(self) -> dict[str, int]:
        """Dictionary from buffer name to the number of operands that address the buffer.

        The names are in alphabetical order.
        """
        values = [v.base if isinstance(v, Given) else v for v in self.operands.values()]
        return dict(sorted(Counter(v.buffer for v in values if isinstance(v, Ref)).items()))

    def number(self, operand: str) -> int:
        """Return the value of the operand named ``operand``, which must be a number.

        Other operands are addresses in a buffer, or registers.
        """
        value = self.operands[operand]
        assert isinstance(value, int)
        return value

    def begins(self, buffer: str) -> bool:
        """Return whether this instruction overwrites ``buffer`` without reading the old content."""
        return self.defines == buffer and self.buffers.get(buffer) == 1


@dataclass(frozen=True)
class Repeat:
    """A loop: the same instructions in each iteration, with different operands."""

    iterations: Sequence[Sequence["Draft | Repeat"]]


Node = Draft | Repeat


def repeat(bodies: Sequence[Sequence[Node]], apart: int = 0) -> list[Node]:
    """Return instructions that execute several iterations, most of them in a loop.

    ``bodies`` has a list of instructions for each iteration. The first ``apart`` iterations are
    separate instructions before the loop; the loop has all later iterations.
    """
    nodes = [node for body in bodies[:apart] for node in body]
    return [*nodes, Repeat(bodies[apart:])] if bodies[apart:] else nodes


@dataclass
class Item:
    """A group of instructions, and the loads from external memory that must precede them."""

    loads: list[Draft] = field(default_factory=list)
    body: list[Node] = field(default_factory=list)
    stream: str = ""
    """Name of a group of items whose loads use the same buffers in turn. The loads of a named
    stream are short, and precede other loads at the same position."""


def flatten(nodes: Sequence[Node]) -> Iterator[Draft]:
    """Yield the instructions of ``nodes`` in execution order.

    The instructions of a loop are yielded once for each iteration.
    """
    for node in nodes:
        if isinstance(node, Draft):
            yield node
        else:
            for iteration in node.iterations:
                yield from flatten(iteration)


def upper(nodes: Sequence[Node], planes: int) -> list[Node]:
    """Return ``nodes`` without the instructions that read lower bit planes of weights.

    The instructions that read the upper ``planes`` planes remain, so that the program computes with
    fewer bits of each weight. Instructions that read no planes remain, too.
    """
    return [
        Repeat([upper(each, planes) for each in node.iterations])
        if isinstance(node, Repeat)
        else node
        for node in nodes
        if isinstance(node, Repeat) or node.plane < planes
    ]


def place_loads(
    sections: Sequence[Sequence[Item]], ahead: int, *, across: bool, early: bool = False
) -> list[list[Node]]:
    """Return the instructions of each section (such as a layer), with loads before their uses.

    An item has instructions and their loads. The items of a stream use the same buffers in turn.

    - ``ahead``: a load is at most this number of its stream's items before its own item.
    - ``across``: loads may be in an earlier section.
    - ``early``: a stream's first loads are at the start of their section.
    """
    bodies = [[node for item in section for node in item.body] for section in sections]
    placed: dict[tuple[int, int], list[tuple[bool, bool, list[Draft]]]] = defaultdict(list)
    starts: dict[str, list[tuple[int, int]]] = defaultdict(list)
    ends = dict[str, tuple[int, int]]()
    """The place after the last item that uses a buffer."""
    for index, section in enumerate(sections):
        if not across:
            starts.clear()
        place = 0
        begin = next((at for at, node in enumerate(bodies[index]) if not _is_load(node)), 0)
        for item in section:
            known = starts[item.stream]
            known.append((index, place))
            number = len(known) - 1
            # The first items do not wait for too many loads.
            target = known[max(number - ahead, number // 2)]
            if early:
                # The start of the section is after the loads with which its instructions begin.
                target = known[number - ahead] if number > ahead else (index, begin)
            free = [ends[name] for load in item.loads for name in load.buffers if name in ends]
            target = max([target, *free])
            placed[target].append((number > ahead, not item.stream, item.loads))
            place += len(item.body)
            for draft in flatten([*item.loads, *item.body]):
                ends |= dict.fromkeys(draft.buffers, (index, place))
    arranged = []
    for index, body in enumerate(bodies):
        nodes = list[Node]()
        for at in range(len(body) + 1):
            for _, _, loads in sorted(placed.get((index, at), ()), key=lambda each: each[:2]):
                nodes += loads
            nodes += body[at : at + 1]
        arranged.append(nodes)
    return arranged


def _is_load(node: Node) -> bool:
    return isinstance(node, Draft) and node.opcode == Opcode.LOAD
