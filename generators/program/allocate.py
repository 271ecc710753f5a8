"""Assignment of scratchpad addresses; buffers that are live at the same time do not overlap."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from types import MappingProxyType

from celosia.arch.config import Config
from celosia.arch.isa import DEFINITIONS, Engine, Opcode
from celosia.generators.program.draft import Draft

Interval = tuple[int, int]


@dataclass
class Use:
    """Lifetimes of a scratchpad buffer, and how often other buffers are used together with it.

    A lifetime is a range of instructions of a program during which the buffer's content is needed.
    """

    intervals: list[Interval] = field(default_factory=list)
    """First and last instruction index of each lifetime."""
    beside: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Joint uses with each other buffer: 4 for each instruction that uses both, and 1 if one buffer
    is used by an instruction, and the other by the latest instruction of another engine before."""

    def overlaps(self, other: "Use") -> bool:
        """Return whether this buffer and the buffer of ``other`` are live at the same time."""
        i = j = 0
        while i < len(self.intervals) and j < len(other.intervals):
            (first, last), (other_first, other_last) = self.intervals[i], other.intervals[j]
            if first <= other_last and other_first <= last:
                return True
            if last < other_last:
                i += 1
            else:
                j += 1
        return False


def uses(drafts: Sequence[Draft]) -> dict[str, Use]:
    """Return the lifetimes and joint uses of each scratchpad buffer by name.

    ``drafts`` are the instructions of a program in execution order, with loops unrolled.
    """
    by_buffer: dict[str, Use] = defaultdict(Use)
    last: dict[Engine | None, list[str]] = defaultdict(list)
    for place, draft in enumerate(drafts):
        names = [*draft.buffers]
        for name in names:
            intervals = by_buffer[name].intervals
            if draft.begins(name) or not intervals:
                intervals.append((place, place))
            else:
                intervals[-1] = (intervals[-1][0], place)
        if draft.opcode == Opcode.PARAMS:
            continue
        for buffer, other in combinations(names, 2):
            by_buffer[buffer].beside[other] += 4
            by_buffer[other].beside[buffer] += 4
        engine = DEFINITIONS[draft.opcode].engine
        for neighbour, others in last.items():
            if neighbour != engine:
                for buffer in names:
                    for other in others:
                        if buffer != other:
                            by_buffer[buffer].beside[other] += 1
                            by_buffer[other].beside[buffer] += 1
        last[engine] = names
    return dict(by_buffer)


def extrapolated(used: Mapping[str, Use], before: Mapping[str, Use], times: int) -> dict[str, Use]:
    """Return the uses of buffers in a deep program, extrapolated from two programs of fewer layers.

    ``before`` and ``used`` are the results of :func:`uses` for n - 1 and n layers. The result is
    for n + ``times`` layers. Each further layer adds as many joint uses of two buffers as layer n.
    Lifetimes are those in ``used``.
    """
    grown = {}
    for name, use in used.items():
        others = before[name].beside if name in before else {}
        beside = {other: n + times * (n - others.get(other, 0)) for other, n in use.beside.items()}
        # Further layers repeat the overlaps of lifetimes that are in ``used``.
        grown[name] = Use(use.intervals, beside)
    return grown


def check_apart(
    uses: Mapping[str, Use], sizes: Mapping[str, int], addresses: Mapping[str, int]
) -> None:
    """Assert that no two buffers that are live at the same time share bytes."""
    names = sorted(uses, key=lambda name: addresses[name])
    for place, name in enumerate(names):
        for other in names[place + 1 :]:
            if addresses[other] >= addresses[name] + sizes[name]:
                break
            assert not uses[name].overlaps(uses[other]), f"{name} and {other} overlap"


def allocate(
    uses: Mapping[str, Use],
    sizes: Mapping[str, int],
    config: Config,
    held: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, int] | None:
    """Return the scratchpad address of each buffer by name, or None if no assignment was found.

    Each buffer is in one bank, aligned to lines. Buffers that are accessed together get different
    banks if possible. ``held`` has fixed addresses of buffers that are always live and may span
    banks.
    """
    for spread in (True, False):
        placed = _place(uses, sizes, config, held, spread=spread)
        if placed is not None:
            return placed
    return None


def middle_banks_address(rows: int, stride: int, config: Config) -> int | None:
    """Return an address at which about half of a buffer's rows are in each of the two middle banks.

    No row is in both banks. The result is None if there is one bank, the buffer does not fit two
    banks, or it has at most half the bytes of a bank.
    """
    size, middle = rows * stride, config.scratchpad.banks // 2 * config.bank_bytes
    half = half_bytes(rows, stride, config)
    fits = max(half, size - half) <= config.bank_bytes
    return middle - half if fits and 2 * size > config.bank_bytes and middle else None


def half_bytes(rows: int, stride: int, config: Config) -> int:
    """Return the number of bytes in about half of a buffer's ``rows`` rows.

    A row has ``stride`` bytes. The number is rounded down to whole rows and whole lines of the
    scratchpad.
    """
    whole = math.lcm(stride, config.line_bytes)
    return rows * stride // 2 // whole * whole


def occupied_ranges(
    held: Mapping[str, int], sizes: Mapping[str, int], bank: int, config: Config
) -> list[Interval]:
    """Return a list of the byte ranges (first, end) of a bank that the buffers in ``held`` occupy.

    ``held`` is a dictionary from buffer name to fixed address. The ranges are relative to the
    bank's start.
    """
    begin, line = bank * config.bank_bytes, config.line_bytes
    intervals = []
    for name, addr in held.items():
        low = max(addr - begin, 0)
        high = min(-(-(addr + sizes[name] - begin) // line) * line, config.bank_bytes)
        if low < high:
            intervals.append((low, high))
    return intervals


def _place(
    uses: Mapping[str, Use],
    sizes: Mapping[str, int],
    config: Config,
    held: Mapping[str, int],
    *,
    spread: bool,
) -> dict[str, int] | None:
    line, bank_bytes = config.line_bytes, config.bank_bytes
    rounded = {name: -(-sizes[name] // line) * line for name in uses}
    placed: dict[str, int] = {}
    fixed = [occupied_ranges(held, sizes, bank, config) for bank in range(config.scratchpad.banks)]
    for name in sorted(uses.keys() - held.keys(), key=lambda name: (-rounded[name], name)):
        size = rounded[name]
        occupied = [[*intervals] for intervals in fixed]
        penalty = [0] * config.scratchpad.banks
        filled = [sum(high - low for low, high in intervals) for intervals in fixed]
        for other, addr in placed.items():
            bank = addr // bank_bytes
            filled[bank] += rounded[other]
            penalty[bank] += uses[name].beside.get(other, 0)
            if uses[name].overlaps(uses[other]):
                occupied[bank].append((addr % bank_bytes, addr % bank_bytes + rounded[other]))
        banks = range(config.scratchpad.banks)
        order = sorted(banks, key=lambda bank: (penalty[bank], filled[bank])) if spread else banks
        for bank in order:
            start = 0
            for low, high in sorted(occupied[bank]):
                if start + size <= low:
                    break
                start = max(start, high)
            if start + size <= bank_bytes:
                placed[name] = bank * bank_bytes + start
                break
        else:
            return None
    return placed | dict(held)


def fit(
    uses: Mapping[str, Use],
    sizes: Mapping[str, int],
    config: Config,
    fixed: Sequence[Interval] = (),
) -> dict[str, int] | None:
    """Return the byte offset of each buffer in one bank by name, or None if there is no room.

    Buffers share bytes only if they are never live at the same time. ``fixed`` has byte ranges
    (first, end) of the bank that the buffers must not use.
    """
    line = config.line_bytes
    placed: dict[str, tuple[int, int]] = {}
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        size, start = -(-sizes[name] // line) * line, 0
        occupied = [range_ for other, range_ in placed.items() if uses[name].overlaps(uses[other])]
        for low, high in sorted([*occupied, *fixed]):
            if start + size <= low:
                break
            start = max(start, high)
        if start + size > config.bank_bytes:
            return None
        placed[name] = start, start + size
    return {name: start for name, (start, _) in placed.items()}


def live_bytes(uses: Mapping[str, Use], sizes: Mapping[str, int]) -> int:
    """Return the largest number of buffer bytes that are live at the same time."""
    changes: dict[int, int] = defaultdict(int)
    for name, use in uses.items():
        for first, last in use.intervals:
            changes[first] += sizes[name]
            changes[last + 1] -= sizes[name]
    most = now = 0
    for place in sorted(changes):
        now += changes[place]
        most = max(most, now)
    return most
