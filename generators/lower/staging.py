"""Loads from external memory to scratchpad buffers, each issued as early as possible."""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from celosia.arch.config import Config
from celosia.arch.isa import Opcode
from celosia.generators.lower.instructions import parameters, table, table_bytes
from celosia.generators.lower.moves import load_piece
from celosia.generators.lower.residence import Memory
from celosia.generators.program.draft import Draft, Ref
from celosia.generators.program.image import ImageBuilder, Piece

STAGES = 4
"""Number of buffers that pieces of a kind use alternately."""
WEIGHTS, WORDS, THIN = "stage", "words", "thin"
"""Kinds of pieces, each with separate buffers."""


@dataclass
class Stage:
    """Adds loads that copy pieces of external memory to scratchpad buffers before their use.

    A piece is a range of external memory, for example some weights. Pieces of each kind (weights,
    requantization parameters, matrices of low-rank corrections) use :data:`STAGES` buffers in turn.
    A piece is loaded as soon as the previous piece of its buffer has been used.
    """

    memory: Memory
    image: ImageBuilder
    size: int = 0
    """Bytes of a buffer of weights."""
    nodes: list[Draft] = field(default_factory=list)
    _loads: list[tuple[str, int, Draft]] = field(default_factory=list)
    _starts: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def begin(self, size: int) -> None:
        """Allocate :data:`STAGES` buffers of ``size`` bytes each for pieces of weights."""
        self.size = size
        for index in range(STAGES):
            self.memory.buffer(f"{WEIGHTS}{index}", self.size)

    def piece(self, piece: Piece, kind: str = WEIGHTS, stride: int = 0) -> Ref:
        """Add the load of ``piece``, and return the scratchpad address to which it is loaded.

        The address is in one of the buffers for pieces of ``kind``. In the scratchpad, the rows of
        the piece are ``stride`` bytes apart, or contiguous if ``stride`` is 0.
        """
        starts = self._starts[kind]
        place = Ref(f"{kind}{len(starts) % STAGES}")
        self._loads.append((kind, len(starts), load_piece(place, piece, step=stride)))
        starts.append(len(self.nodes))
        return place

    def add(self, *drafts: Draft) -> None:
        """Append instructions to the program, after all loads and instructions added so far."""
        self.nodes += drafts

    def take(self) -> list[Draft]:
        """Return all added instructions and loads, and begin an empty program.

        Each load is moved to the earliest position at which its buffer is free.
        """
        placed: list[list[Draft]] = [[] for _ in range(len(self.nodes) + 1)]
        # What the program begins with is not kept waiting.
        loads = (place for place, draft in enumerate(self.nodes) if draft.opcode != Opcode.LOAD)
        begin = next(loads, 0)
        # Of the first loads the short ones come first, whatever they are mixed with: so sections
        # of the same loop look alike.
        for kind, index, draft in sorted(
            self._loads, key=lambda entry: (entry[1] >= STAGES, entry[0] == WEIGHTS)
        ):
            # Behind the uses of the piece that had the buffer before.
            starts = self._starts[kind]
            first = starts[index - STAGES + 1] if index >= STAGES else begin
            placed[first].append(draft)
        ordered: list[Draft] = []
        for place, draft in enumerate(self.nodes):
            ordered += [*placed[place], draft]
        self.nodes, self._loads = [], []
        self._starts.clear()
        return ordered


def constants(stage: Stage) -> None:
    """Add all allocated parameter words and activation tables to the image of external memory.

    The function also adds instructions to ``stage`` that load the words and tables, piece by piece,
    into the scratchpad buffers for weights. Further instructions copy the words to the parameter
    memory, and the tables to their table slots.
    """
    memory = stage.memory
    width = memory.config.word_bytes
    most = max(1, stage.size // width)
    for start, words_kept in ((0, memory.early), (memory.config.pre_depth, memory.words)):
        words = np.concatenate([np.zeros((0, width), np.uint8), *words_kept])  # [words, bytes]
        for first in range(0, len(words), most):
            part = words[first : first + most]
            place = stage.piece(stage.image.add(part.ravel()))
            stage.add(parameters(place, len(part), start + first))
    for slot, values in enumerate(memory.tables):
        place = stage.piece(stage.image.add(table_bytes(values)))
        stage.add(table(place, slot))


def least_size(config: Config) -> int:
    """Return the least size of a buffer for streamed pieces (bytes).

    A buffer of this size has room for the smallest piece of each kind, for example the weights of
    one tile of the array.
    """
    group = (config.weight_group + 1) * config.array.cols if config.weight_group else 0
    return max(
        256, config.word_bytes, config.array.rows * config.array.cols, config.mem_bytes, group
    )


def stage_size(config: Config, occupied: int, most: int) -> int:
    """Return the size of each buffer for pieces of streamed weights (bytes).

    ``occupied`` is the number of scratchpad bytes that other buffers use. The size is the smallest
    of ``most`` bytes, 16 KiB, a quarter of a bank, and an eighth of the free scratchpad, rounded
    down to whole scratchpad lines. However, it is never less than :func:`least_size`.
    """
    free = max(0, config.scratchpad.bytes - occupied) // 2
    line = config.line_bytes
    size = min(free // STAGES, config.bank_bytes // 4, 16384, most) // line * line
    return max(least_size(config), size)
