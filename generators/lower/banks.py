"""Assignment of scratchpad buffers to banks, so that few reads wait for each other.

If two buffers of one bank are read in the same cycle, one of the reads waits.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from celosia.arch.config import Config
from celosia.arch.isa import DEFINITIONS, Engine, Opcode
from celosia.generators.program.allocate import Use, fit, occupied_ranges
from celosia.generators.program.draft import Draft, Given, Ref

Pair = tuple[str, str]
"""Two buffers, in the order of their names."""
Span = tuple[int, int]
"""First cycle of an instruction, and the cycle after its last."""

LATENCY = 40
"""Latency of the external memory that programs are optimized for (cycles)."""

ROUNDS = 4
"""Largest number of passes over all buffers."""


@dataclass(frozen=True)
class _Read:
    """A buffer that is read for a while, in a share of the cycles."""

    begin: int
    end: int
    buffer: str
    share: float


def conflicts(
    drafts: Sequence[Draft], timeline: Sequence[Span], config: Config
) -> dict[Pair, float]:
    """Return the number of cycles in which two buffers are read, for pairs of buffer names.

    If such buffers are in one bank, one of the reads waits. ``drafts`` are the instructions of a
    program. ``timeline`` has (first cycle, cycle after the last) for each instruction. Pairs of 0
    cycles are omitted.
    """
    costs: dict[Pair, float] = defaultdict(float)
    matrix: list[_Read] = []
    vector: list[_Read] = []
    for draft, (begin, end) in zip(drafts, timeline, strict=True):
        bases = {n: v.base if isinstance(v, Given) else v for n, v in draft.operands.items()}
        buffers = {n: v.buffer for n, v in bases.items() if isinstance(v, Ref)}
        if draft.opcode == Opcode.MATMUL:
            matrix.append(_Read(begin, end, buffers["a_addr"], 1.0))
            if "b_addr" not in buffers:
                continue
            share = min(1.0, min(config.array.rows, _size(draft, "k")) / _size(draft, "m"))
            tiles = -(-_size(draft, "k") // config.array.rows) * -(
                -_size(draft, "n") // config.array.cols
            )
            matrix.append(_Read(begin, end, buffers["b_addr"], share))
            _note(costs, buffers["a_addr"], buffers["b_addr"], tiles * share * _size(draft, "m"))
        elif DEFINITIONS[draft.opcode].engine == Engine.VECTOR:
            reads = [buffers[name] for name in ("i_addr", "r_addr") if name in buffers]
            vector += [_Read(begin, end, buffer, 1.0) for buffer in reads]
    for read, other, cycles in _together(matrix, vector):
        _note(costs, read.buffer, other.buffer, cycles * read.share)
    return dict(costs)


def _size(draft: Draft, name: str) -> int:
    value = draft.operands[name]
    if isinstance(value, Given):
        return value.most
    assert isinstance(value, int)
    return value


def _note(costs: dict[Pair, float], buffer: str, other: str, cycles: float) -> None:
    if buffer != other:
        costs[min(buffer, other), max(buffer, other)] += cycles


def _together(
    matrix: Sequence[_Read], vector: Sequence[_Read]
) -> Iterator[tuple[_Read, _Read, int]]:
    """Yield pairs of reads at the same time, with their cycles; inputs are in order of time."""
    start = 0
    for read in vector:
        while start < len(matrix) and matrix[start].end <= read.begin:
            start += 1
        for product in matrix[start:]:
            if product.begin >= read.end:
                break
            cycles = min(product.end, read.end) - max(product.begin, read.begin)
            if cycles > 0:
                yield product, read, cycles


class Banks:
    """Search for scratchpad banks of buffers, so that few reads of one bank wait for each other.

    ``costs`` are the cycles in which two buffers in one bank would be read at the same time.
    ``used`` are the buffers' lifetimes, and ``held`` the addresses of buffers that must not move.
    """

    def __init__(
        self,
        used: Mapping[str, Use],
        sizes: Mapping[str, int],
        addresses: Mapping[str, int],
        costs: Mapping[Pair, float],
        config: Config,
        held: Mapping[str, int] = MappingProxyType({}),
    ):
        self.used, self.sizes, self.config, self.held = used, sizes, config, held
        self.bank = {name: addr // config.bank_bytes for name, addr in addresses.items()}
        self.offsets = {name: addr % config.bank_bytes for name, addr in addresses.items()}
        self.near: dict[str, dict[str, float]] = defaultdict(dict)
        for (buffer, other), cycles in costs.items():
            self.near[buffer][other] = self.near[other][buffer] = cycles

    def run(self) -> dict[str, int]:
        """Return buffer addresses (bytes) with fewer bank conflicts, or the original addresses.

        A bank conflict is a predicted cycle in which two buffers in one bank are read.
        """
        for _ in range(ROUNDS):
            # What suffers most comes first.
            names = sorted(self.near, key=lambda name: (-self._cost(name, self.bank[name]), name))
            if not sum(self._better(name) for name in names):
                break
        size = self.config.bank_bytes
        return {name: bank * size + self.offsets[name] for name, bank in self.bank.items()}

    def _cost(self, name: str, bank: int, without: str = "") -> float:
        """Return the conflicts of a buffer in a bank."""
        return sum(
            cycles
            for other, cycles in self.near[name].items()
            if self.bank[other] == bank and other != without
        )

    def _better(self, name: str) -> bool:
        """Move a buffer, or exchange it with another, if that helps; return whether it did."""
        here = self.bank[name]
        now = self._cost(name, here)
        if not now or name in self.held:
            return False
        for bank in sorted(range(self.config.scratchpad.banks), key=lambda b: self._cost(name, b)):
            gain = now - self._cost(name, bank)
            if bank != here and gain > 0 and self._assign({name: bank}):
                return True
        for other in sorted(self.bank.keys() - self.held.keys()):
            bank = self.bank[other]
            if bank == here:
                continue
            gain = now - self._cost(name, bank, without=other)
            gain += self._cost(other, bank) - self._cost(other, here, without=name)
            if gain > 0 and self._assign({name: bank, other: here}):
                return True
        return False

    def _assign(self, changes: Mapping[str, int]) -> bool:
        """Give buffers other banks if all have room there."""
        banks = self.bank | dict(changes)
        offsets: dict[str, int] = {}
        for bank in set(changes.values()):
            names = (name for name, place in banks.items() if place == bank)
            others = {name: self.sizes[name] for name in names if name not in self.held}
            fixed = occupied_ranges(self.held, self.sizes, bank, self.config)
            placed = fit(self.used, others, self.config, fixed)
            if placed is None:
                return False
            offsets |= placed
        self.bank, self.offsets = banks, self.offsets | offsets
        return True
