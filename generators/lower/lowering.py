"""State of lowering: memory image, buffers, parameters, accumulators."""

from collections.abc import Callable, Sequence

import numpy as np

from arch.config import Config
from arch.isa import Opcode
from generators.graph import QuantizedModel, Rescale, Tensor
from generators.lower.blocks import Blocks, Part, cut, even, groups
from generators.lower.choices import Choices
from generators.lower.instructions import (
    Count,
    View,
    load,
    parameters,
    requantize,
    rescale_words,
    store,
)
from generators.lower.residence import check_at_once
from generators.program.draft import (
    LENGTH_REGISTER,
    LENGTH_REGISTERS,
    Draft,
    Given,
    Item,
    Node,
    Ref,
    Repeat,
    Written,
)
from generators.program.image import LONGEST_ROW, Bytes, ImageBuilder, Piece

SPARE_WORDS = 1
"""Parameter words that no operation uses; loops read into them (see generators.program.loops)."""


class Lowering:
    """A model on its way to instructions."""

    def __init__(
        self,
        model: QuantizedModel,
        config: Config,
        choices: Choices,
        blocks: dict[str, Blocks],
        batch: int,
    ):
        self.batch = batch
        """Inputs whose rows lie one below the other in every tensor."""
        self.model, self.config, self.choices, self.blocks = model, config, choices, blocks
        self.image = ImageBuilder(config)
        self.sizes: dict[str, int] = {}
        for tensor in blocks.values():
            self.sizes |= tensor.sizes()
        self.name = model.description.name
        self.pool: Piece | None = None
        self.row_registers: dict[int, Part] = {}
        """The part of the sequence that each register of the host counts the rows of."""
        self.leaving: tuple[Tensor, Piece] | None = None
        """The output, and its place in external memory."""
        self._acc_next = 0
        self._written: set[str] = set()

    @property
    def word_bytes(self) -> int:
        """Scratchpad bytes of a parameter word."""
        return self.config.param_lines * self.config.line_bytes

    def restart(self) -> None:
        """Take accumulators from their start again, so that iterations are alike."""
        self._acc_next = 0

    def run_rows(self, first: int, count: int, total: int) -> int | Given:
        """Return how many of ``count`` rows from ``first`` on an inference has.

        ``total`` are all rows of the tensor. The count is the host's where the tensor has a row for
        each token, the model takes any length and a register is left. Other programs work on all
        rows, and so do loops that need the registers, or whose parts differ in theirs.
        """
        model, whole = self.model.description, (0, self.model.description.sequence)
        if not model.variable or total != whole[1] or total == 1:
            return count
        loops = self.choices.loop_heads or self.choices.loop_parts
        if (first, count) != whole and loops:
            return count
        for number, part in self.row_registers.items():
            if part == (first, count):
                return Given(number, count)
        # The whole sequence has the register that is the length.
        taken = self.row_registers.keys() | {LENGTH_REGISTER}
        number = LENGTH_REGISTER if (first, count) == whole else min(taken) - 1
        if number <= LENGTH_REGISTER - LENGTH_REGISTERS:
            return count
        self.row_registers[number] = first, count
        return Given(number, count)

    def requantize(
        self,
        opcode: Opcode,
        source: View,
        target: Tensor,
        rows: Part,
        columns: Part,
        m: Count,
        params: int,
        *flags: str,
        residual: bool = False,
        anew: bool = True,
    ) -> Draft:
        """Return a DRAIN or a MAP to some rows and columns of a tensor.

        With ``residual`` their old values are added; without ``anew`` others of the buffer stay.
        """
        view = self.blocks[target.buffer].view(rows[0], columns[0])
        on = {"wide_out": target.wide, "add": residual}
        return requantize(
            opcode,
            source,
            view,
            m,
            columns[1],
            params,
            Written(target.name, *rows, *columns),
            *flags,
            *(name for name, given in on.items() if given),
            zero=0 if {"table", "polynomial"} & set(flags) else target.zero,
            beside=view if residual else None,
            defines=self.defines(view, anew=anew and not residual),
        )

    def load(self, item: Item, buffer: str, data: Bytes) -> None:
        """Add bytes to the image and load them into a buffer."""
        self.load_piece(item, buffer, self.image.add(data))

    def load_piece(self, item: Item, buffer: str, piece: Piece) -> None:
        """Load a piece of external memory into a buffer."""
        self.sizes[buffer] = max(self.sizes.get(buffer, 0), piece.size)
        item.loads.append(load(Ref(buffer), piece.addr, piece.m, piece.row_bytes, buffer))

    def load_tensor(self, item: Item, tensor: Tensor, piece: Piece) -> None:
        """Load a tensor that lies in external memory row behind row."""
        if self.in_columns(tensor):
            for place, addr, row_bytes, _ in self._column_blocks(tensor, piece):
                one = load(place, addr, tensor.rows, row_bytes, place.buffer, outside=tensor.stride)
                item.loads.append(one)
            return
        for place, addr, size, rows in self._runs(tensor, piece):
            if isinstance(rows, Given):
                item.loads.append(load(place, addr, rows, tensor.stride, place.buffer))
                continue
            whole = -(-size // self.config.mem_bytes) * self.config.mem_bytes
            self.sizes[place.buffer] = max(self.sizes[place.buffer], whole)
            for first, m, row_bytes in moved_rows(whole, piece.row_bytes):
                at = Ref(place.buffer, place.offset + first)
                define = "" if first else place.buffer
                item.loads.append(load(at, addr + first, m, row_bytes, define))

    def store_tensor(self, tensor: Tensor, piece: Piece) -> list[Node]:
        """Store a tensor, byte behind byte, in rows as long as possible."""
        nodes: list[Node] = []
        for place, addr, size, rows in self._runs(tensor, piece):
            moved: list[tuple[int, int | Given, int]] = [*moved_rows(size, piece.row_bytes)]
            if isinstance(rows, Given):
                moved = [(0, rows, tensor.stride)]
            for first, m, row_bytes in moved:
                at = Ref(place.buffer, place.offset + first)
                nodes.append(store(at, addr + first, m, row_bytes))
        return nodes

    def in_columns(self, tensor: Tensor) -> bool:
        """Return whether a tensor's blocks are of columns."""
        return self.blocks[tensor.buffer].column_step < tensor.columns

    def _column_blocks(self, tensor: Tensor, piece: Piece) -> list[tuple[Ref, int, int, int]]:
        """Return place, external address, bytes of a row and end of each block of columns."""
        blocks = self.blocks[tensor.buffer]
        firsts = blocks.column_marks
        ends = [*firsts[1:], tensor.columns]
        return [
            (blocks.place(0, first), piece.addr + first * blocks.size, blocks.stride(first), end)
            for first, end in zip(firsts, ends, strict=True)
        ]

    def leave(self, tensor: Tensor, end: int) -> list[Node]:
        """Return the store of the output's block that ends before a column, if one does."""
        if self.leaving is None or self.leaving[0] != tensor or not self.in_columns(tensor):
            return []
        return [
            store(place, addr, tensor.rows, row_bytes, tensor.stride)
            for place, addr, row_bytes, last in self._column_blocks(tensor, self.leaving[1])
            if last == end
        ]

    def _runs(self, tensor: Tensor, piece: Piece) -> list[tuple[Ref, int, int, int | Given]]:
        """Return scratchpad place, external address, bytes and rows of each block of whole rows.

        Rows are counted by the host only where each is one that a load or a store can move.
        """
        blocks = self.blocks[tensor.buffer]
        single = tensor.stride <= LONGEST_ROW and not tensor.stride % self.config.mem_bytes
        skipped = self.model.description.sequence - tensor.rows
        return [
            (
                blocks.place(row, 0),
                piece.addr + row * tensor.stride,
                m * tensor.stride,
                self.run_rows(skipped + row, m, skipped + tensor.rows)
                if single and tensor.rows > 1
                else m,
            )
            for row, m in cut(tensor.rows, blocks.row_marks)
        ]

    def params(self, rescales: Sequence[Rescale]) -> Bytes:
        """Return parameter words one behind the other, [bytes]."""
        return np.concatenate([rescale_words(r, self.config).ravel() for r in rescales])

    def params_draft(self, blob: str, count: int, first: int = 0) -> Draft:
        """Return the instruction that reads so many words from a blob's start."""
        return parameters(Ref(blob), count, SPARE_WORDS + first)

    def room_for(self, words: int) -> None:
        """Refuse more parameter words than there are."""
        check_at_once(self.name, self.config, words + SPARE_WORDS)

    def acc(self, rows: int) -> int:
        """Return the first of so many accumulator rows, other ones than the last time."""
        if self._acc_next + rows > self.config.acc_depth:
            self._acc_next = 0
        first = self._acc_next
        self._acc_next += rows
        return first

    def height(self, m: int) -> int:
        """Return how many of m rows of one tile column half of the accumulators take."""
        return even(m, min(m, self.config.acc_depth // 2))

    def tiles(self, height: int) -> int:
        """Return how many tile columns of so many rows half of the accumulators take."""
        return max(1, self.config.acc_depth // 2 // height)

    def begin(self) -> None:
        """Begin an operation: what it writes first is written anew."""
        self._written.clear()

    def defines(self, target: View, *, anew: bool = True) -> str:
        """Return the buffer of rows if the operation writes there first, and nothing before."""
        place = target.place
        assert isinstance(place, Ref)
        first = place.buffer not in self._written
        self._written.add(place.buffer)
        return place.buffer if first and anew else ""

    def each(self, pieces: Sequence[Part], make: Callable[[int, int], list[Node]]) -> list[Node]:
        """Return the instructions of parts (first, count), those of one size as a loop if asked."""
        if not self.choices.loop_parts or len(pieces) == 1:
            return [node for part in pieces for node in make(*part)]
        bodies = []
        for part in pieces:
            self._acc_next = 0
            bodies.append(make(*part))
        alike = sum(count == pieces[0][1] for _, count in pieces)
        rest = [node for body in bodies[alike:] for node in body]
        return [Repeat(bodies[:alike]), *rest] if alike > 1 else [*bodies[0], *rest]

    def row_groups(self, total: int, most: int, *tensors: tuple[str, int]) -> list[list[Part]]:
        """Return row parts of at most so many rows, grouped by the blocks that they lie in.

        ``tensors`` are buffers and the row of each that row 0 is.
        """
        marks = [mark - row for name, row in tensors for mark in self.blocks[name].row_marks]
        return groups(total, marks, most)

    def column_groups(self, total: int, tiles: int, *tensors: str) -> list[list[Part]]:
        """Return column parts of at most so many tile columns, grouped by their blocks."""
        marks = [mark for name in tensors for mark in self.blocks[name].column_marks]
        return groups(total, marks, tiles, self.config.cols)


def moved_rows(size: int, longest: int) -> list[tuple[int, int, int]]:
    """Return (first byte, rows, bytes of a row) that bytes behind each other are moved as."""
    row = min(size, longest)
    rest = size % row
    found = ((0, size // row, row), (size - rest, 1, rest))
    return [(first, m, count) for first, m, count in found if count]
