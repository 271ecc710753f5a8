"""State and helper methods for compiling an encoder's operations to instructions."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from celosia.arch.config import Config
from celosia.generators.graph.operations import Linear
from celosia.generators.graph.quantized import QuantizedModel
from celosia.generators.graph.tensors import Tensor
from celosia.generators.lower.blocks import Blocks, Part, cut, even, groups, row_rescales
from celosia.generators.lower.choices import Choices
from celosia.generators.lower.instructions import Count, rescale_words
from celosia.generators.lower.moves import load, moved_rows, store
from celosia.generators.lower.residence import Memory, WeightHome
from celosia.generators.lower.rules import Rules
from celosia.generators.lower.staging import Rows, Stage
from celosia.generators.lower.walk import Rowwise
from celosia.generators.program.calls import RegisterFormula, RunNumber
from celosia.generators.program.draft import (
    LENGTH_REGISTER,
    LENGTH_REGISTERS,
    Draft,
    Given,
    Item,
    Node,
    Ref,
    repeat,
)
from celosia.generators.program.image import LONGEST_ROW, ImageBuilder, Piece

SPARE_WORDS = 1
"""Parameter words that no operation uses; loops read into them (``program/loops.py``)."""

Move = tuple[Ref, int, Count, int]
"""Scratchpad place and external address of some rows, their number, and the bytes of each."""


class Lowering(Rules):
    """Base class for the translation of an encoder's operations to instructions.

    It has the image of external memory, the scratchpad buffers and the allocated accumulator rows.
    Its methods load and store tensors, and divide their rows and columns into parts.
    """

    def __init__(
        self,
        model: QuantizedModel,
        config: Config,
        choices: Choices,
        blocks: dict[str, Blocks],
        batch: int,
    ):
        described = model.description
        pre, memory = described.placement == "pre", Memory(described.name, config)
        self.image, keeps = ImageBuilder(config), choices.home != WeightHome.STREAM
        super().__init__(Stage(memory, self.image, keeps=keeps), blocks, lasting=False, pre=pre)
        self.model, self.choices = model, choices
        self.batch = batch
        """Inputs whose rows lie one below the other in every tensor."""
        self.room -= SPARE_WORDS
        self.pool: Piece | None = None
        self.left_out = 0
        """Tiles of zeros that are left out of all weights."""
        for tensor in blocks.values():
            self.memory.buffers |= tensor.sizes()
        self.call: dict[int, RegisterFormula] = {}
        """The registers of a run: rows of the sequence, or of a part of it."""
        if model.description.variable:
            self.call[LENGTH_REGISTER] = RegisterFormula(
                RunNumber.ROWS, most=model.description.sequence
            )
        self.leaving: dict[str, Piece] = {}
        """The places in external memory of buffers whose blocks leave as soon as each is complete.
        """
        self.arriving: dict[str, Piece] = {}
        """The places in external memory of buffers whose blocks each product's part loads."""

    def row_operand(self, first: int, count: int, total: int) -> int | Given:
        """Return the operand for the number of tensor rows that an instruction processes.

        The instruction processes ``count`` of ``total`` rows, from row ``first`` on. If inputs may
        be shorter, the operand may read the number of rows from a register (:class:`Given`).
        Otherwise it is ``count``.
        """
        model, whole = self.model.description, (0, self.model.description.sequence)
        if not model.variable or total != whole[1] or total == 1:
            return count
        loops = self.choices.loop_heads or self.choices.loop_parts
        if (first, count) != whole and loops:
            return count
        rows = RegisterFormula(RunNumber.ROWS, first=first, most=count)
        for number, value in self.call.items():
            if value == rows:
                return Given(number, count)
        number = min(self.call) - 1
        if number <= LENGTH_REGISTER - LENGTH_REGISTERS:
            return count
        self.call[number] = rows
        return Given(number, count)

    def words_together(self, ops: Sequence[Linear | Rowwise]) -> int:
        """Return the fewest parameter memory words with which ``ops`` can be computed together.

        ``ops`` are successive operations, whose words are added. A norm or a conversion needs words
        for all columns. A linear layer needs words for one tile column, which is as wide as the
        array.
        """
        lanes, words = self.config.vector.lanes, 0
        for op in ops:
            rescales = [] if isinstance(op, Linear) else row_rescales(op, self.blocks)
            words += sum(-(-len(rescale.bias) // lanes) for rescale in rescales)
            words += self.config.lane_groups if isinstance(op, Linear) else 0
        return words

    def rowwise(self, label: str, ops: Sequence[Rowwise], first_word: int = 0) -> Rows:
        """Return the instructions of successive norms and conversions, with loads of parameters.

        For each range of rows, the instructions apply all operations. ``label`` is the first part
        of the names of the parameters' scratchpad buffers. In the parameter memory, the parameters
        begin at word ``SPARE_WORDS + first_word``.
        """
        lowered, words, marks = Rows(), list[int](), set[int]()
        if not ops:
            return lowered
        for index, op in enumerate(ops):
            params = rescale_words(self.config, *row_rescales(op, self.blocks))
            item, blob = Item(), f"{label}.params.{index}"
            self.stage.load(item, blob, params.ravel())
            lowered.loads += item.loads
            words.append(SPARE_WORDS + first_word)
            lowered.params.append(self.bring(Ref(blob), len(params), words[-1]))
            first_word += len(params)
            for tensor in (op.source, op.target):
                marks |= {*self.blocks[tensor.buffer].row_marks}
        rows = ops[0].target.rows
        if self.choices.height:
            marks |= {*range(0, rows, even(rows, self.choices.height))}
        lowered.chunks = self.chunks(ops, words, cut(rows, marks))
        return lowered

    def load_tensor(self, item: Item, tensor: Tensor, piece: Piece) -> None:
        """Append to ``item.loads`` the instructions that load a tensor from external memory.

        ``piece`` is the tensor's range of external memory. Nothing is appended if the instructions
        of products load the tensor block by block (:meth:`reload`).
        """
        if tensor.buffer in self.arriving:
            return
        if self.blocks[tensor.buffer].in_columns:
            moves = [move for _, _, move in self._columns(tensor, piece)]
            item.loads += [load(*move, move[0].buffer, outside=tensor.stride) for move in moves]
            return
        for move in self._moves(tensor, piece, self.config.mem_bytes):
            item.loads.append(load(*move, "" if move[0].offset else move[0].buffer))

    def store_tensor(self, tensor: Tensor, piece: Piece) -> list[Node]:
        """Return the STORE instructions that copy a tensor from the scratchpad to external memory.

        ``piece`` is the range of external memory to which the rows are copied, one directly after
        another. In the scratchpad, the tensor may be divided into blocks of rows, but not into
        blocks of columns.
        """
        return [store(*move) for move in self._moves(tensor, piece)]

    def reload(self, tensor: Tensor, column: int) -> list[Draft]:
        """Return a list with the LOAD of a tensor's block of columns that begins at ``column``.

        A block has a separate scratchpad buffer. The list is empty if no block begins at this
        column, or if the tensor stays in the scratchpad.
        """
        if tensor.buffer not in self.arriving:
            return []
        columns = self._columns(tensor, self.arriving[tensor.buffer])
        moves = [move for first, _, move in columns if first == column]
        return [load(*move, move[0].buffer, outside=tensor.stride) for move in moves]

    def store_block(self, tensor: Tensor, end: int) -> list[Node]:
        """Return a list with the STORE instruction of the block whose last column is ``end - 1``.

        Some tensors are stored in external memory by blocks of columns, each block as soon as it is
        complete. The list is empty if no block ends with this column, or if ``tensor`` is not
        stored in this way.
        """
        if tensor.buffer not in self.leaving:
            return []
        columns = self._columns(tensor, self.leaving[tensor.buffer])
        return [store(*move, tensor.stride) for _, last, move in columns if last == end]

    def _columns(self, tensor: Tensor, piece: Piece) -> Iterator[tuple[int, int, Move]]:
        """Yield first column, end and :data:`Move` of each block of columns."""
        blocks, rows = self.blocks[tensor.buffer], self.row_operand(0, tensor.rows, tensor.rows)
        for first, end in pairwise([*blocks.column_marks, tensor.columns]):
            addr = piece.addr + first * blocks.size
            yield first, end, (blocks.place(0, first), addr, rows, blocks.stride(first))

    def _moves(self, tensor: Tensor, piece: Piece, unit: int = 1) -> Iterator[Move]:
        """Yield the moves of a tensor in blocks of whole rows.

        The bytes of a block, rounded up to a multiple of ``unit``, are divided into the longest
        rows that an instruction can move, so that there are few instructions. However, if the host
        sets the tensor's number of rows, and an instruction can move them, each moved row is a row
        of the tensor.
        """
        blocks, stride = self.blocks[tensor.buffer], tensor.stride
        single = tensor.rows > 1 and stride <= LONGEST_ROW and not stride % self.config.mem_bytes
        skipped = self.model.description.sequence - tensor.rows
        for row, m in cut(tensor.rows, blocks.row_marks):
            place, addr = blocks.place(row, 0), piece.addr + row * stride
            rows = self.row_operand(skipped + row, m, skipped + tensor.rows) if single else m
            if isinstance(rows, Given):
                yield place, addr, rows, stride
                continue
            size = -(-m * stride // unit) * unit
            self.memory.buffer(place.buffer, size)
            for first, count, row_bytes in moved_rows(size, piece.row_bytes):
                yield place.behind(first), addr + first, count, row_bytes

    def lower_parts(
        self, pieces: Sequence[Part], make: Callable[[int, int], list[Node]]
    ) -> list[Node]:
        """Return the instructions of an operation that is divided into parts.

        ``pieces`` has the parts (first, count). ``make(first, count)`` returns the instructions of
        one part. If ``choices.loop_parts`` is true, all parts that are as large as the first one
        are iterations of a loop.
        """
        if not self.choices.loop_parts or len(pieces) == 1:
            return [node for part in pieces for node in make(*part)]
        bodies = []
        for part in pieces:
            self.accumulators.restart()
            bodies.append(make(*part))
        alike = sum(count == pieces[0][1] for _, count in pieces)
        rest = [node for body in bodies[alike:] for node in body]
        return [*repeat(bodies[:alike], int(alike == 1)), *rest]

    def row_groups(self, total: int, most: int, *tensors: tuple[str, int]) -> list[list[Part]]:
        """Divide ``total`` rows into parts, so that no part crosses a block border of a tensor.

        ``tensors`` are pairs (buffer name, offset): row i is row ``i + offset`` of the tensor with
        this buffer. The result has a list of parts (first, count) for each interval between
        borders. A part has at most ``most`` rows; the parts of an interval are equal if possible.
        """
        marks = [mark - row for name, row in tensors for mark in self.blocks[name].row_marks]
        return groups(total, marks, most)

    def column_groups(self, total: int, tiles: int, *tensors: str) -> list[list[Part]]:
        """Divide ``total`` columns into parts, so that no part crosses a block border of a tensor.

        ``tensors`` are the tensors' buffer names. The result has a list of parts (first, count) for
        each interval between borders. A part has at most ``tiles`` tile columns (as wide as the
        array); the parts of an interval are equal if possible.
        """
        marks = [mark for name in tensors for mark in self.blocks[name].column_marks]
        return groups(total, marks, tiles, self.config.array.cols)
