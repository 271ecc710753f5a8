"""Lowering of norms and conversions row by row, and of pooling over rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from celosia.arch.config import Config
from celosia.arch.isa import Opcode
from celosia.generators.graph.operations import Convert, Norm, Pool
from celosia.generators.lower.blocks import Part, cut, even
from celosia.generators.lower.instructions import View, product, rescale_words, rowwise
from celosia.generators.lower.lowering import SPARE_WORDS, Lowering
from celosia.generators.program.draft import Draft, Item, Node, Ref
from celosia.generators.program.image import Bytes


@dataclass
class Rows:
    """Rowwise operations that follow each other, cut into chunks of rows."""

    loads: list[Draft] = field(default_factory=list)
    params: list[Node] = field(default_factory=list)
    """Instructions that read their parameters."""
    chunks: list[tuple[int, list[Node]]] = field(default_factory=list)
    """The row after each chunk, and the chunk's instructions."""

    def items(self) -> list[Item]:
        """Return the operations as an item of their program; empty without instructions."""
        nodes = [*self.params, *(node for _, chunk in self.chunks for node in chunk)]
        return [Item(self.loads, nodes)] if nodes else []


def row_words(lowering: Lowering, ops: Sequence[Norm | Convert]) -> int:
    """Return the number of parameter words that the operations need together."""
    return sum(sum(_words(lowering, op)) for op in ops)


def _column_parts(lowering: Lowering, op: Norm | Convert) -> list[Part]:
    """Return the parts of an operation's columns that are in one block."""
    source, target = lowering.blocks[op.source.buffer], lowering.blocks[op.target.buffer]
    return cut(op.target.columns, [*source.column_marks, *target.column_marks])


def _words(lowering: Lowering, op: Norm | Convert) -> list[int]:
    """Return the parameter words of each part of the columns; equal ones have one for all."""
    if op.rescale.per_tensor:
        return [1]
    lanes = lowering.config.vector.lanes
    return [-(-count // lanes) for _, count in _column_parts(lowering, op)]


def lower_rows(
    lowering: Lowering, label: str, ops: Sequence[Norm | Convert], first_word: int = 0
) -> Rows:
    """Lower rowwise operations: all operations on a chunk of rows, then the next chunk.

    Parameters are in the words from ``first_word`` on, counted without the spare words.
    """
    lowered = Rows()
    if not ops:
        return lowered
    words = []
    for index, op in enumerate(ops):
        rescales = [op.rescale]
        if not op.rescale.per_tensor:
            rescales = [op.rescale.columns(*part) for part in _column_parts(lowering, op)]
        params = lowering.params(rescales)
        count = sum(_words(lowering, op))
        lowering.room_for(first_word + count)
        blob = f"{label}.params.{index}"
        item = Item()
        lowering.load(item, blob, params)
        lowered.loads += item.loads
        lowered.params.append(lowering.params_draft(blob, count, first_word))
        words.append(SPARE_WORDS + first_word)
        first_word += count
    rows = ops[0].target.rows
    marks = {
        mark
        for op in ops
        for tensor in (op.source, op.target)
        for mark in lowering.blocks[tensor.buffer].row_marks
    }
    height = lowering.choices.height
    if height:
        marks |= set(range(0, rows, even(rows, height)))
    for first, m in cut(rows, marks):
        nodes = [
            node
            for op, place in zip(ops, words, strict=True)
            for node in _chunk(lowering, op, first, m, place)
        ]
        lowered.chunks.append((first + m, nodes))
    return lowered


def _chunk(lowering: Lowering, op: Norm | Convert, row: int, m: int, params: int) -> list[Node]:
    """Return the instructions of some rows, one for each of the blocks of columns."""
    source, alike = lowering.blocks[op.source.buffer], op.rescale.per_tensor
    nodes: list[Node] = []
    words = _words(lowering, op)
    count, rows = lowering.run_rows(row, m, op.target.rows), (row, m)
    for part, columns in enumerate(_column_parts(lowering, op)):
        source_view, word = source.view(row, columns[0]), params + sum(words[:part]) * (not alike)
        work = lowering.work(source_view, op.target, rows, columns, count, word)
        nodes.append(rowwise(op, work))
    return nodes


def pool_bytes(op: Pool, total: int, rows: int, config: Config) -> Bytes:
    """Return the parameter word and the row of weights for the mean over the first rows."""
    ones = np.arange(total) < rows
    return np.concatenate([rescale_words(op.rescale(rows), config).ravel(), ones.astype(np.uint8)])


def lower_pool(lowering: Lowering, label: str, op: Pool) -> Item:
    """Return the item of a pooling: the product of a row of ones and each sequence's rows."""
    config, batch = lowering.config, lowering.batch
    total = op.source.rows // batch
    source = lowering.blocks[op.source.buffer]
    lowering.room_for(1)
    item = Item()
    piece = lowering.image.add(pool_bytes(op, total, total, config))
    if op.variable:
        lowering.pool = piece
    lowering.load_piece(item, label, piece, once=lowering.keeps and not op.variable)
    item.body.append(lowering.params_draft(label, 1))
    groups = lowering.column_groups(
        op.target.columns, lowering.accumulators.tiles(batch), op.source.buffer, op.target.buffer
    )
    for first, count in (part for group in groups for part in group):
        acc = lowering.accumulators.take(batch * -(-count // config.array.cols))
        marks = {*source.row_marks, *range(0, op.source.rows, total)}
        for row, k in cut(op.source.rows, marks):
            sequence, inside = divmod(row, total)
            item.body.append(
                product(
                    View(Ref(label, lowering.word_bytes + inside), total),
                    source.view(row, first),
                    View(acc + sequence, batch),
                    1,
                    lowering.run_rows(row, k, op.source.rows),
                    count,
                    b_zero=op.source.zero,
                )
            )
        sums, rows, columns = View(acc, batch), (0, batch), (first, count)
        work = lowering.work(sums, op.target, rows, columns, batch, SPARE_WORDS)
        item.body.append(work.requantize(Opcode.DRAIN, "per_tensor", tensor=op.target))
    return item
