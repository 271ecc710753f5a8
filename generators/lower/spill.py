"""Spilling: tensors without room in the scratchpad are moved to external memory.

The scratchpad buffer with the furthest next use is removed first (Belady 1966).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from celosia.arch.config import Config
from celosia.arch.isa import Opcode
from celosia.generators.lower.moves import load, moved_rows, store
from celosia.generators.program.allocate import Use
from celosia.generators.program.draft import Given, Node, Ref, Repeat, flatten
from celosia.generators.program.image import LONGEST_ROW
from celosia.generators.program.loops import BARRIER

LEAD = 2
"""Number of nodes by which a buffer may come back before its use, if it fits."""
_NEVER = 1 << 60


@dataclass
class _Touch:
    """Use of the named buffers by a node."""

    needs: set[str] = field(default_factory=set)
    anew: set[str] = field(default_factory=set)
    """Buffers whose earlier content the node does not use."""
    writes: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Spilled:
    """A program that moves blocks of tensors between the scratchpad and external memory.

    A block is a part of a tensor with a separate scratchpad buffer. Blocks are moved because the
    scratchpad has no room for all blocks at once.
    """

    sections: list[Sequence[Node]]
    addresses: dict[str, int]
    """For each place that a buffer has had."""
    bytes: int
    """Bytes of external memory for the blocks that leave."""


class Spill:
    """Adds loads and stores to a program whose tensors do not all fit the scratchpad at once.

    ``known`` has the lifetimes of the scratchpad buffers. ``free`` is the first free address of
    external memory.
    """

    def __init__(
        self,
        sections: Sequence[Sequence[Node]],
        sizes: Mapping[str, int],
        known: Mapping[str, Use],
        config: Config,
        free: int,
    ):
        self.sections, self.known, self.config = sections, known, config
        line = config.line_bytes
        self.sizes = {name: -(-size // line) * line for name, size in sizes.items()}
        self.first = self.free = free
        self.touches = [[_touch(node) for node in nodes] for nodes in sections]
        self.outside: dict[str, int] = {}
        """External addresses of the buffers that have left."""
        self.addresses: dict[str, int] = {}
        self.across = self._across()
        self.here: dict[str, int] = {}
        """Scratchpad addresses of the buffers that are there."""
        self.saved: set[str] = set()
        """Buffers that external memory holds as well."""

    def run(self) -> Spilled | None:
        """Return the program with added loads and stores of tensor blocks, or None.

        The result is None if the scratchpad has no room for all blocks that one instruction or loop
        uses.
        """
        last = len(self.sections) - 1
        sections: list[Sequence[Node]] = []
        for index in range(len(self.sections)):
            section = self._section(index, ends=index == last)
            if section is None:
                return None
            sections.append(section)
        return Spilled(sections, self.addresses, self.free - self.first)

    def _across(self) -> set[str]:
        """Return the buffers whose content is used in a later section."""
        known: set[str] = set()
        across: set[str] = set()
        for touches in self.touches:
            inside: set[str] = set()
            for touch in touches:
                across |= (touch.needs - touch.anew - inside) & known
                inside |= touch.needs
            known |= inside
        return across

    def _section(self, index: int, *, ends: bool) -> list[Node] | None:
        nodes, touches = self.sections[index], self.touches[index]
        self.uses: dict[str, list[tuple[int, bool]]] = defaultdict(list)
        """The nodes that still name each buffer, the next one last, and whether it begins anew."""
        for place, touch in reversed([*enumerate(touches)]):
            for name in touch.needs:
                self.uses[name].append((place, name in touch.anew))
        self.lasting = set() if ends else self.across
        self.saved = self.across & self.outside.keys()
        placed: list[Node] = []
        for place, (node, touch) in enumerate(zip(nodes, touches, strict=True)):
            for name in sorted(touch.needs - self.here.keys()):
                brought = self._bring(name, touch.needs, anew=name in touch.anew)
                if brought is None:
                    return None
                placed += brought
            for early in touches[place + 1 : place + 1 + LEAD]:
                for name in sorted((early.needs - early.anew - self.here.keys()) & self.saved):
                    placed += self._bring(name, set(self.here), anew=False) or []
            placed.append(self._renamed(node))
            self.saved -= touch.writes
            for name in touch.needs:
                self.uses[name].pop()
                if self._next(name) == _NEVER and name != BARRIER:
                    self.here.pop(name, None)
        # So sections with equal instructions stay equal, and can be iterations of a loop.
        for name in sorted(self.here.keys() - {BARRIER}):
            placed += self._leave(name)
        return placed

    def _next(self, name: str) -> int:
        """Return the node that needs a buffer's content next."""
        if self.uses[name]:
            place, anew = self.uses[name][-1]
            return _NEVER if anew else place
        return _NEVER - 1 if name in self.lasting else _NEVER

    def _bring(self, name: str, staying: set[str], *, anew: bool) -> list[Node] | None:
        """Return the nodes that load a buffer, or None if it does not fit beside ``staying``."""
        window = self._window(self.sizes[name], staying | {BARRIER}, self.known[name])
        if window is None:
            return None
        address, leaving = window
        nodes = [node for other in leaving for node in self._leave(other)]
        self.here[name] = address
        self.addresses[_place(name, address)] = address
        if not anew and name in self.saved:
            for first, m, count in moved_rows(self.sizes[name], LONGEST_ROW):
                define = "" if first else name
                outside = self.outside[name] + first
                nodes.append(self._renamed(load(Ref(name, first), outside, m, count, define)))
        return nodes

    def _window(self, size: int, staying: set[str], use: Use) -> tuple[int, list[str]] | None:
        """Return the best address for ``size`` bytes, and the buffers that leave for them."""
        best: tuple[tuple[int, int, int, int], list[str]] | None = None
        bank_bytes = self.config.bank_bytes
        for bank in range(self.config.scratchpad.banks):
            low, high = bank * bank_bytes, (bank + 1) * bank_bytes
            inside = {n: a for n, a in self.here.items() if low <= a < high}
            beside = sum(use.beside.get(name, 0) for name in inside)
            for start in {low, *inside.values(), *(a + self.sizes[n] for n, a in inside.items())}:
                end = start + size
                if end > high:
                    continue
                leaving = [n for n, a in inside.items() if a < end and start < a + self.sizes[n]]
                if not staying.isdisjoint(leaving):
                    continue
                soonest = min((self._next(n) for n in leaving), default=_NEVER)
                lost = sum(self.sizes[n] for n in leaving)
                score = -soonest, beside, lost, start
                if best is None or score < best[0]:
                    best = score, sorted(leaving)
        return None if best is None else (best[0][-1], best[1])

    def _leave(self, name: str) -> Iterator[Node]:
        if self._next(name) != _NEVER and name not in self.saved:
            if name not in self.outside:
                self.outside[name] = self.free
                self.free += self.sizes[name]
            self.saved.add(name)
            for first, m, count in moved_rows(self.sizes[name], LONGEST_ROW):
                outside = self.outside[name] + first
                yield self._renamed(store(Ref(name, first), outside, m, count))
        del self.here[name]

    def _renamed(self, node: Node) -> Node:
        """Return a node with its buffers named by their places."""
        if isinstance(node, Repeat):
            return Repeat(
                [[self._renamed(body_node) for body_node in body] for body in node.iterations]
            )
        operands = {name: self._placed(value) for name, value in node.operands.items()}
        return replace(node, operands=operands)

    def _placed(self, value: int | Ref | Given) -> int | Ref | Given:
        if isinstance(value, Given) and isinstance(value.base, Ref):
            place = self._placed(value.base)
            assert isinstance(place, Ref)
            return replace(value, base=place)
        if isinstance(value, Ref) and value.buffer != BARRIER:
            return replace(value, buffer=_place(value.buffer, self.here[value.buffer]))
        return value


def _place(name: str, address: int) -> str:
    return name if name == BARRIER else f"{name}@{address}"


def _touch(node: Node) -> _Touch:
    touch = _Touch()
    for draft in flatten([node]):
        if draft.defines not in touch.needs and draft.begins(draft.defines):
            touch.anew.add(draft.defines)
        touch.needs |= draft.buffers.keys()
        written = ("sp_addr",) if draft.opcode == Opcode.LOAD else ("o_addr", "s_addr")
        places = [draft.operands.get(operand) for operand in written]
        touch.writes |= {place.buffer for place in places if isinstance(place, Ref)}
    return touch
