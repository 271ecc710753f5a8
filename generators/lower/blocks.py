"""Division of tensors into blocks of rows or of columns, each in a separate scratchpad buffer.

An instruction accesses each operand in one scratchpad bank, so a block should fit a bank.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from celosia.arch.config import Config
from celosia.generators.graph.operations import Attention, Convert, Linear, Norm, Op, Pool
from celosia.generators.graph.quantized import QuantizedModel
from celosia.generators.graph.tensors import Rescale, Tensor
from celosia.generators.lower.instructions import View
from celosia.generators.program.draft import Ref
from celosia.generators.program.image import LONGEST_ROW

Part = tuple[int, int]
"""First and count, of rows or of columns."""


def even(total: int, most: int) -> int:
    """Return the size of a part, if ``total`` elements are divided into equal parts.

    A part has at most ``most`` elements, and the number of parts is as small as possible. The last
    part may be smaller than the others.
    """
    return -(-total // -(-total // most))


def parts(total: int, size: int) -> list[Part]:
    """Divide ``total`` elements into parts of ``size`` elements; the last part may be smaller.

    The result has a pair for each part: the index of its first element, and its number of elements.
    """
    return [(first, min(size, total - first)) for first in range(0, total, size)]


def cut(total: int, marks: Iterable[int]) -> list[Part]:
    """Cut the range from 0 to ``total`` at ``marks``, and return the parts as pairs (first, count).

    For example, the marks 4 and 7 cut a range of 10 into (0, 4), (4, 3) and (7, 3). Marks outside
    the range have no effect.
    """
    edges = sorted({0, total, *(mark for mark in marks if 0 < mark < total)})
    return [(first, last - first) for first, last in itertools.pairwise(edges)]


def groups(total: int, marks: Iterable[int], most: int, unit: int = 1) -> list[list[Part]]:
    """Cut ``total`` elements at the positions ``marks``, and divide each interval into equal parts.

    The result has a list for each interval: its parts (first, count), as few as possible. Their
    size is a multiple of ``unit``, at most ``most * unit``; the last part of an interval may be
    smaller.
    """
    return [
        [(first + begin, n) for begin, n in parts(count, even(-(-count // unit), most) * unit)]
        for first, count in cut(total, marks)
    ]


def turn(index: int, count: int) -> int:
    """Return the number (0, 1 or 2) of the scratchpad buffer into which part ``index`` is loaded.

    Parts 0 to ``count`` - 1 are loaded in order, again and again. Successive parts have different
    buffers: even parts use buffer 0, odd parts buffer 1. If ``count`` is odd, the last part uses
    buffer 2, because part 0 is loaded next.
    """
    return 2 if count % 2 and index == count - 1 else index % 2


@dataclass(frozen=True)
class Blocks:
    """Division of a tensor into blocks of rows or of columns, in separate scratchpad buffers.

    Tensors that use the same buffers one after another have the same division.
    """

    buffer: str
    rows: int
    columns: int
    size: int
    """Bytes of an element."""
    row_step: int
    """Rows of a block; the last one may have fewer."""
    column_step: int
    """Columns of a block; the last one may have fewer."""
    turns: int = 0
    """Places that blocks of columns take in turn; 0 if each block has a place."""
    passes: bool = False
    """True if the blocks may be in external memory between the products that use them."""

    @property
    def row_marks(self) -> range:
        """Index of the first row of each block of the tensor, as a Python range.

        The step of the range is the number of rows of a block. For example, 20 rows in blocks of 8
        rows give ``range(0, 20, 8)``, which has 0, 8 and 16.
        """
        return range(0, self.rows, self.row_step)

    @property
    def column_marks(self) -> range:
        """Index of the first column of each block of the tensor, as a Python range.

        The step of the range is the width of a block. For example, 20 columns in blocks of 8
        columns give ``range(0, 20, 8)``, which has 0, 8 and 16.
        """
        return range(0, self.columns, self.column_step)

    @property
    def bytes(self) -> int:
        """Total size (bytes) of the tensor, which is divided into blocks of rows or of columns."""
        return self.rows * self.columns * self.size

    def stride(self, column: int) -> int:
        """Return the row stride (bytes) of the tensor block that contains column ``column``.

        A block is a part of the tensor with a separate scratchpad buffer. The rows of a block are
        adjacent in the buffer, so the row stride is the size of one row of the block. ``column`` is
        an index in the whole tensor.
        """
        first = column // self.column_step * self.column_step
        return min(self.column_step, self.columns - first) * self.size

    @property
    def in_columns(self) -> bool:
        """True if the columns of the tensor are divided into several blocks."""
        return self.column_step < self.columns

    def place(self, row: int, column: int) -> Ref:
        """Return the scratchpad location of one element of the tensor.

        The tensor is divided into blocks, and each block is stored in a buffer. The location is the
        buffer's name, and the element's byte offset in the buffer. ``row`` and ``column`` are the
        element's indices in the whole tensor.
        """
        block_row, inside_row = divmod(row, self.row_step)
        block_column, inside_column = divmod(column, self.column_step)
        offset = inside_row * self.stride(column) + inside_column * self.size
        return Ref(self._name(block_row, block_column), offset)

    def view(self, row: int, column: int) -> View:
        """Return the scratchpad address and the row stride (bytes) of a part of the tensor.

        The part begins in row ``row`` and column ``column`` of the tensor. It must be inside one
        block.
        """
        return View(self.place(row, column), self.stride(column))

    def sizes(self) -> dict[str, int]:
        """Return the sizes (bytes) of the scratchpad buffers for a tensor's blocks, by buffer name.

        A block is a part of the tensor. If several blocks use one buffer in turn, the buffer has
        the size of the largest of these blocks.
        """
        return {
            self.place(row, column).buffer: min(self.row_step, self.rows - row)
            * self.stride(column)
            for row in self.row_marks
            for column in reversed(self.column_marks)
        }

    def _name(self, row: int, column: int) -> str:
        if self.row_step < self.rows:
            return f"{self.buffer}.{row}"
        if not self.in_columns or self.turns == 1:
            return self.buffer
        place = turn(column, len(self.column_marks)) if self.turns else column
        return f"{self.buffer}.{place}"


def by_rows(tensor: Tensor, most: int, config: Config) -> Blocks:
    """Return the division of a tensor into blocks of whole rows.

    The number of rows of a block, except the last, is a multiple of a unit. The unit is the fewest
    rows that are a multiple of ``scratchpad_align`` and fill whole external words. A block has at
    most ``most`` bytes, but at least one unit.
    """
    unit = config.mem_bytes // math.gcd(config.mem_bytes, tensor.stride)
    unit = math.lcm(unit, config.scratchpad.align)
    step = tensor.rows
    if tensor.bytes > most:
        step = max(most // (tensor.stride * unit), 1) * unit
        step = min(-(-even(tensor.rows, step) // unit) * unit, tensor.rows)
    return _blocks(tensor, step, tensor.columns)


def by_columns(tensor: Tensor, most: int, units: Sequence[int]) -> Blocks:
    """Return the division of a tensor into as few blocks of columns as possible.

    A block has at most ``most`` bytes. The width of all blocks but the last is a multiple of a
    unit. The unit is the first of ``units`` (numbers of columns) that has at most ``most`` bytes.
    If all units are larger, each block is one unit, the last of ``units``.
    """
    step = tensor.columns
    if tensor.bytes > most:
        fitting = most // (tensor.bytes // tensor.columns)
        unit = next((unit for unit in units if unit <= fitting), units[-1])
        count = -(-tensor.columns // unit)
        step = min(even(count, max(fitting // unit, 1)) * unit, tensor.columns)
    return _blocks(tensor, tensor.rows, step)


def _blocks(tensor: Tensor, row_step: int, column_step: int) -> Blocks:
    shape = tensor.rows, tensor.columns, tensor.element
    return Blocks(tensor.buffer, *shape, row_step, column_step)


def column_parts(op: Norm | Convert, blocks: Mapping[str, Blocks]) -> list[Part]:
    """Return the column ranges (first, count) of an operation that need separate instructions.

    The operation's source and target may be divided into blocks of columns, which are stored
    separately. Each range is inside one block of the source and one block of the target.
    """
    source, target = blocks[op.source.buffer], blocks[op.target.buffer]
    return cut(op.target.columns, [*source.column_marks, *target.column_marks])


def row_rescales(op: Op, blocks: Mapping[str, Blocks]) -> list[Rescale]:
    """Return the requantization parameters of ``op``, which is a norm or a conversion.

    The list has an element for each range of columns that :func:`column_parts` returns. If all
    columns have equal parameters, the list has a single element.
    """
    assert isinstance(op, Norm | Convert), "other rowwise operations are part of a drain"
    if op.rescale.per_tensor:
        return [op.rescale]
    return [op.rescale.columns(*part) for part in column_parts(op, blocks)]


@dataclass
class _Buffer:
    """Use of a buffer's tensors by the operations of a model."""

    tensor: Tensor
    """The largest tensor in the buffer."""
    head: int
    """Columns of a head, or of the addresses' alignment, which are never cut."""
    crosses: bool = False
    """True if the buffer is loaded or stored as a whole."""
    products: int = 0
    """Products that read or write the buffer, without adding to it."""
    others: bool = False
    """True if other instructions read or write the buffer as well."""
    whole_rows: bool = False
    """True if an instruction reads or writes whole rows."""
    tile: int = 1
    """Columns that products read or write at once, which are cut only if necessary."""


def _by_columns(model: QuantizedModel, buffer: _Buffer, config: Config) -> bool:
    """Return whether a tensor may be loaded or stored in blocks of columns.

    Products alone read or write it, a single one if it is the input or the output. The blocks
    consist of whole external words and of rows that one instruction moves.
    """
    tensor = buffer.tensor
    sizes = tensor.stride, buffer.tile * tensor.stride // tensor.columns
    whole = not any(size % config.mem_bytes for size in sizes)
    whole = whole and config.bank_bytes <= LONGEST_ROW * tensor.rows
    once = buffer.products == 1 and not model.description.variable
    return whole and not (buffer.others or buffer.whole_rows) and (once or not buffer.crosses)


def blocks_of(model: QuantizedModel, most: int, config: Config) -> dict[str, Blocks]:
    """Divide each tensor of an encoder into blocks of at most ``most`` bytes, if possible.

    The result is a dictionary from a tensor's attribute ``buffer`` to its :class:`Blocks`. Tensors
    with the same ``buffer`` use the same scratchpad buffers in turn.
    """
    buffers: dict[str, _Buffer] = {}

    def note(tensor: Tensor) -> _Buffer:
        buffer = buffers.setdefault(tensor.buffer, _Buffer(tensor, head=config.scratchpad.align))
        if not buffer.others and tensor is not buffer.tensor:
            # Blocks of other sizes do not pass.
            buffer.others = tensor.bytes != buffer.tensor.bytes
        if tensor.rows > buffer.tensor.rows:
            buffer.tensor = tensor
        return buffer

    for tensor in (model.input, model.output):
        note(tensor).crosses = True
    whole = [model.stream]
    whole += [] if model.start is None else [model.before[0].target]
    for tensor in whole:
        note(tensor).whole_rows = True
    for op in [*model.before, *(op for layer in model.layers for op in layer), *model.after]:
        if isinstance(op, Attention):
            for tensor in (op.query, op.key, op.value, op.target):
                note(tensor).head, note(tensor).others = op.head_dim, True
            continue
        assert isinstance(op, Linear | Norm | Convert | Pool), "no encoder has others"
        if isinstance(op, Linear) and op.low_rank is not None:
            thin = note(op.low_rank.first.target)
            thin.products, thin.tile = 2, config.array.cols
            note(op.source).others = thin.others = True
        source, target = note(op.source), note(op.target)
        for buffer in (source, target):
            buffer.products += isinstance(op, Linear)
            added = buffer is target or buffer.crosses
            buffer.others |= not isinstance(op, Linear) or (op.residual and added)
        if isinstance(op, Norm):
            source.whole_rows = target.whole_rows = True
        elif isinstance(op, Linear | Pool):
            source.tile = math.lcm(source.tile, config.array.rows)
            target.tile = math.lcm(target.tile, config.array.cols)
    cut_buffers = dict[str, Blocks]()
    for name, buffer in buffers.items():
        passes = _by_columns(model, buffer, config)
        if buffer.whole_rows or (buffer.crosses and not passes):
            cut_buffers[name] = by_rows(buffer.tensor, most, config)
            continue
        units = math.lcm(buffer.head, buffer.tile), buffer.head
        blocks = by_columns(buffer.tensor, most, units)
        cut_buffers[name] = replace(blocks, passes=passes and blocks.in_columns)
    return cut_buffers
