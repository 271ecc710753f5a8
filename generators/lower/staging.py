"""Loads that copy weights and other constants from external memory to the scratchpad."""

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from celosia.arch.config import Config
from celosia.generators.lower.instructions import parameters, table, table_bytes
from celosia.generators.lower.moves import load
from celosia.generators.lower.residence import Memory
from celosia.generators.program.draft import Draft, Item, Node, Ref, place_loads
from celosia.generators.program.image import Bytes, ImageBuilder, Piece

STAGES = 4
"""Number of buffers that pieces of a kind use alternately."""
WEIGHTS, WORDS, THIN = "stage", "words", "thin"
"""Kinds of pieces, each with separate buffers."""
Chunks = list[tuple[int, list[Node]]]
"""The row after each chunk of rows, and the chunk's instructions."""
OPENING = "opening"
"""Name of the stream whose only item is the first one of the program."""


@dataclass
class Stage:
    """A program under construction: instructions, and the loads of their constants.

    Weights, requantization parameters and low-rank corrections are loaded piece by piece. Each of
    these kinds uses :data:`STAGES` scratchpad buffers in turn.
    """

    memory: Memory
    image: ImageBuilder
    size: int = 0
    """Bytes of a buffer of weights."""
    keeps: bool = False
    """True if constants that the first run loads stay on the chip for later runs."""
    items: list[Item] = field(default_factory=list)
    _counts: Counter[str] = field(default_factory=Counter)

    def begin(self, size: int) -> None:
        """Allocate the scratchpad buffers into which weights are loaded from external memory.

        There are :data:`STAGES` buffers of ``size`` bytes each. Successive loads of weights use
        them in turn.
        """
        self.size = size
        for index in range(STAGES):
            self.memory.buffer(f"{WEIGHTS}{index}", self.size)

    @property
    def opening(self) -> Item:
        """The program's first item, whose loads precede all other loads.

        An :class:`Item` is a group of instructions with the loads that they need. If the program
        has no such first item yet, reading this property adds an empty one.
        """
        if not self.items or self.items[0].stream != OPENING:
            self.items.insert(0, Item(stream=OPENING))
        return self.items[0]

    def load(self, item: Item, buffer: str, data: Bytes, place: int = 0) -> None:
        """Append a LOAD of ``data`` to ``item``, and add ``data`` to the image of external memory.

        An item is a group of instructions with the loads that they need. The LOAD copies ``data``
        to the scratchpad buffer named ``buffer``, from byte ``place`` on. If :attr:`keeps` is true,
        only the first run executes the LOAD.
        """
        self.load_piece(item, buffer, self.image.add(data), once=self.keeps, place=place)

    def load_piece(
        self,
        item: Item,
        buffer: str,
        piece: Piece,
        *,
        once: bool = False,
        place: int = 0,
        plane: int = 0,
        stride: int = 0,
    ) -> None:
        """Append a LOAD of ``piece``, a range of rows in external memory, to the loads of ``item``.

        - ``buffer``, ``place``: scratchpad buffer, and index of the first byte in this buffer.
        - ``stride``: row stride (bytes) in the buffer, 0 for contiguous rows.
        - ``once``: true if only the first run executes the LOAD.
        - ``plane``: index of the bit plane if the piece is a bit plane of weights, otherwise 0.
        """
        self.memory.buffer(buffer, place + piece.m * (stride or piece.row_bytes))
        target, defines = Ref(buffer, place), "" if place else buffer
        rows = piece.m, piece.row_bytes
        loading = load(target, piece.addr, *rows, defines, stride, once=once)
        item.loads.append(replace(loading, plane=plane))

    def begin_item(self, stream: str = "") -> Item:
        """Append an empty item to the program, and return the item.

        An item is a group of instructions with the loads that they need. The loads of items with
        the same ``stream`` use the same scratchpad buffers in turn.
        """
        self.items.append(Item(stream=stream))
        return self.items[-1]

    def piece(self, piece: Piece, kind: str = WEIGHTS, stride: int = 0) -> Ref:
        """Append a LOAD of ``piece`` to the program, and return the scratchpad address of its data.

        - ``kind``: :data:`WEIGHTS`, :data:`WORDS` (requantization parameters) or :data:`THIN`
          (low-rank corrections). Each kind has separate buffers.
        - ``stride``: row stride (bytes) in the buffer, 0 for contiguous rows.
        """
        buffer = f"{kind}{self._counts[kind] % STAGES}"
        self._counts[kind] += 1
        item = self.begin_item("" if kind == WEIGHTS else kind)
        self.load_piece(item, buffer, piece, stride=stride)
        return Ref(buffer)

    def add(self, *nodes: Node) -> None:
        """Append the instructions ``nodes`` to the end of the program.

        The instructions become part of the last item. An item is a group of instructions, and the
        loads from external memory that must precede these instructions. If the program has no item,
        the method creates the first one (:attr:`opening`).
        """
        last = self.items[-1] if self.items else self.opening
        last.body += nodes

    def section(self) -> list[Item]:
        """Return the items that were appended since the last call, and empty :attr:`items`.

        An :class:`Item` is a group of instructions with the loads that they need.
        """
        items, self.items = self.items, []
        self._counts.clear()
        return items

    def take(self) -> list[Node]:
        """Return all instructions of this program in execution order, and empty the program.

        Each load of constants comes directly after the last use of the data that it overwrites.
        """
        (nodes,) = place_loads([self.section()], STAGES - 1, across=False, early=True)
        return nodes


@dataclass
class Rows:
    """Instructions that apply norms and conversions to a tensor, range of rows by range of rows.

    For each range of rows, the instructions apply all the operations. A conversion changes the
    scale or the width of numbers.
    """

    loads: list[Draft] = field(default_factory=list)
    """Loads of requantization parameters from external memory."""
    params: list[Node] = field(default_factory=list)
    """Instructions that copy the requantization parameters to the parameter memory."""
    chunks: Chunks = field(default_factory=list)

    @property
    def nodes(self) -> list[Node]:
        """Instructions of the norms and conversions in execution order.

        The first instructions copy requantization parameters from the scratchpad to the parameter
        memory. The loads of these parameters from external memory (:attr:`loads`) are not included.
        """
        return [*self.params, *(node for _, chunk in self.chunks for node in chunk)]


@dataclass
class Blob:
    """The data of one LOAD instruction, such as weights, and their place in a scratchpad buffer.

    :meth:`put` adds data, and :meth:`load` appends a LOAD instruction for the added data.
    """

    stage: Stage
    item: Item
    buffer: str
    _begin: int = 0
    _pieces: list[Bytes] = field(default_factory=list)

    def put(self, data: Bytes) -> Ref:
        """Add ``data`` to the data of the next LOAD, and return their place in the scratchpad.

        The place is the scratchpad address of the first byte of ``data``.
        """
        place = Ref(self.buffer, self._begin + sum(piece.size for piece in self._pieces))
        self._pieces.append(data)
        return place

    def load(self, plane: int = 0) -> None:
        """Append one LOAD for all data that :meth:`put` has added since the previous LOAD.

        If the data are one bit plane of weights (the same bits of each weight), ``plane`` is the
        index of this plane; plane 0 has the highest bits. Otherwise ``plane`` is 0.
        """
        if self._pieces:
            piece, once = self.stage.image.add(np.concatenate(self._pieces)), self.stage.keeps
            self.stage.load_piece(
                self.item, self.buffer, piece, once=once, place=self._begin, plane=plane
            )
            self._begin, self._pieces = self._begin + piece.size, []


def constants(stage: Stage) -> None:
    """Append instructions that load requantization parameters and activation tables to the chip.

    ``stage.memory`` is the :class:`Memory` that has allocated parameter words and table slots for
    these data. The function also adds the data to the image of external memory.
    """
    memory = stage.memory
    width = memory.config.word_bytes
    most = max(1, stage.size // width)
    for start, words_kept in ((0, memory.pre_words), (memory.config.pre_depth, memory.words)):
        words = np.concatenate([np.zeros((0, width), np.uint8), *words_kept])  # [words, bytes]
        for first in range(0, len(words), most):
            part = words[first : first + most]
            place = stage.piece(stage.image.add(part.ravel()))
            stage.add(parameters(place, len(part), start + first))
    for slot, values in enumerate(memory.tables):
        place = stage.piece(stage.image.add(table_bytes(values)))
        stage.add(table(place, slot))


def least_size(config: Config) -> int:
    """Return the least size (bytes) of a scratchpad buffer for data from external memory.

    It is the largest size of: an external word, a tile of weights, a group of weight rows with its
    scales, a parameter word, an activation table.
    """
    group = (config.weight_group + 1) * config.array.cols if config.weight_group else 0
    return max(
        256, config.word_bytes, config.array.rows * config.array.cols, config.mem_bytes, group
    )


def stage_size(config: Config, occupied: int, most: int) -> int:
    """Return the size (bytes) of each scratchpad buffer into which weights are streamed.

    It is the smallest of these limits, in whole scratchpad lines, but at least :func:`least_size`:

    - ``most``, 16 KiB, and a quarter of a scratchpad bank;
    - an eighth of the scratchpad's free bytes, which are all but ``occupied`` bytes.
    """
    free = max(0, config.scratchpad.bytes - occupied) // 2
    line = config.line_bytes
    size = min(free // STAGES, config.bank_bytes // 4, 16384, most) // line * line
    return max(least_size(config), size)
