"""Pieces of external memory on their way through the scratchpad."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from arch.config import Config
from arch.isa import Opcode
from generators.graph import Linear
from generators.lower.lowering import Operands
from generators.lower.text_memory import Memory, Slots
from generators.program.draft import Draft, Ref, Written
from generators.program.image import ImageBuilder, Piece
from generators.stored import part_rows, stored_data, stored_rows

STAGES = 4
"""Buffers that pieces of a kind take in turn."""
WEIGHTS, WORDS = "stage", "words"
"""Kinds of pieces, each with buffers of its own."""


@dataclass(frozen=True)
class Cut:
    """A part of a matrix that is dense in external memory: rows from ``row`` on, and columns."""

    row: int
    k: int
    column: int
    n: int
    piece: Piece


@dataclass
class Stage:
    """Loads each piece into the next of its kind's buffers, as early as the one before allows."""

    memory: Memory
    image: ImageBuilder
    size: int = 0
    """Bytes of a buffer of weights."""
    nodes: list[Draft] = field(default_factory=list)
    _loads: list[tuple[str, int, Draft]] = field(default_factory=list)
    _starts: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def begin(self, size: int) -> None:
        """Take buffers of weights of so many bytes."""
        self.size = size
        for index in range(STAGES):
            self.memory.buffer(f"{WEIGHTS}{index}", self.size)

    def piece(self, piece: Piece, kind: str = WEIGHTS, stride: int = 0) -> Ref:
        """Load a piece, and return where the instructions that come next find it.

        Its rows are there ``stride`` bytes apart, or without it one behind the other.
        """
        starts = self._starts[kind]
        place = Ref(f"{kind}{len(starts) % STAGES}")
        self._loads.append((kind, len(starts), load(place, piece, stride)))
        starts.append(len(self.nodes))
        return place

    def add(self, *drafts: Draft) -> None:
        """Append instructions."""
        self.nodes += drafts

    def take(self) -> list[Draft]:
        """Return all instructions, each load as early as its buffer is free, and begin anew."""
        placed: list[list[Draft]] = [[] for _ in range(len(self.nodes) + 1)]
        # What the program begins with is not kept waiting.
        loads = (place for place, one in enumerate(self.nodes) if one.opcode != Opcode.LOAD)
        begin = next(loads, 0)
        # Of the first loads the short ones come first, whatever they are mixed with: so sections
        # of the same loop look alike.
        for kind, index, draft in sorted(
            self._loads, key=lambda one: (one[1] >= STAGES, one[0] == WEIGHTS)
        ):
            # Behind the uses of the piece that had the buffer before.
            starts = self._starts[kind]
            first = starts[index - STAGES + 1] if index >= STAGES else begin
            placed[first].append(draft)
        found: list[Draft] = []
        for place, draft in enumerate(self.nodes):
            found += [*placed[place], draft]
        self.nodes, self._loads = [], []
        self._starts.clear()
        return found


def load(place: Ref, piece: Piece, stride: int = 0) -> Draft:
    """Return the instruction that loads a piece, its rows ``stride`` bytes apart if given."""
    operands: Operands = {
        "dram_addr": piece.addr,
        "dram_stride": piece.row_bytes,
        "sp_addr": place,
        "sp_stride": stride or piece.row_bytes,
        "m": piece.m,
        "row_bytes": piece.row_bytes,
    }
    return Draft(Opcode.LOAD, operands)


def cuts(
    one: Linear,
    rows: range,
    image: ImageBuilder,
    size: int,
    config: Config,
    bounds: Sequence[int] = (),
) -> list[Cut]:
    """Put some rows of a matrix into the image in parts of at most so many bytes; return them.

    They are whole tile columns, or, where one is too large, parts of one; rows count from 0. None
    crosses the tile columns ``bounds``, between which they are about equal.
    """
    stored, k, n = one.stored, len(rows), one.weight.shape[1]
    tiles = size // (stored_rows(stored, k) * config.cols)
    least = part_rows(stored, config)
    depth = k if tiles else size // (stored_rows(stored, least) * config.cols) * least
    total = -(-n // config.cols)
    starts = [
        first + start
        for first, end in pairwise(bounds or (0, total))
        for start, _ in even(end - first, -(-(end - first) // (tiles or 1)))
    ]
    found = []
    for first, end in pairwise([*starts, total]):
        for row in range(0, k, depth):
            taken = rows[row : row + depth]
            column = first * config.cols
            columns = slice(column, min(n, end * config.cols))
            data = stored_data(one.weight, stored, slice(taken.start, taken.stop), columns)
            piece = image.add(data.ravel())
            found.append(Cut(row, len(taken), column, data.shape[1], piece))
    return found


def even(total: int, parts: int) -> list[tuple[int, int]]:
    """Return (first, end) of at most so many parts of about the same size."""
    parts = min(parts, total)
    bounds = [total * part // max(parts, 1) for part in range(parts + 1)]
    return list(pairwise(bounds))


def preload(cut: Cut, place: Ref, slots: Slots, config: Config, flags: frozenset[str]) -> Draft:
    """Return the instruction that keeps a part of a matrix in its slots."""
    tile = cut.column // config.cols * slots.k_tiles + cut.row // config.rows
    operands: Operands = {
        "b_addr": place,
        "b_stride": cut.n,
        "k": cut.k,
        "n": cut.n,
        "slot": slots.first + tile,
    }
    return Draft(Opcode.PRELOAD, operands, flags)


def constants(stage: Stage) -> None:
    """Load all parameter words and tables that the memory has been asked for."""
    memory = stage.memory
    width = memory.config.param_lines * memory.config.line_bytes
    words = np.concatenate([np.zeros((0, width), np.uint8), *memory.words])  # [words, bytes]
    most = max(1, stage.size // width)
    for first in range(0, len(words), most):
        part = words[first : first + most]
        place = stage.piece(stage.image.add(part.ravel()))
        operands: Operands = {"i_addr": place, "n": len(part), "params": first}
        stage.add(Draft(Opcode.PARAMS, operands, written=Written("parameters")))
    for slot, table in enumerate(memory.tables):
        place = stage.piece(stage.image.add(table.astype(np.int8).view(np.uint8)))
        operands = {"i_addr": place, "table": slot}
        stage.add(Draft(Opcode.TABLE, operands, written=Written("table")))


def least_size(config: Config) -> int:
    """Return the least bytes of a buffer that every piece finds room in."""
    word = config.param_lines * config.line_bytes
    group = (config.weight_group + 1) * config.cols if config.weight_group else 0
    return max(256, word, config.rows * config.cols, config.mem_bytes, group)


def stage_size(config: Config, taken: int, most: int) -> int:
    """Return the bytes of a buffer where so many bytes of the scratchpad are taken already.

    They are at most ``most``, if that suffices for every piece.
    """
    free = max(0, config.scratchpad_bytes - taken) // 2
    line = config.line_bytes
    size = min(free // STAGES, config.bank_bytes // 4, 16384, most) // line * line
    return max(least_size(config), size)
