"""Lowering of what works row by row, norms and conversions, and of pooling over rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from arch.config import Config
from arch.instruction import wrap
from arch.isa import Opcode
from generators.graph import Convert, Norm, Pool
from generators.lower.blocks import Part, cut, even
from generators.lower.lowering import SPARE_WORDS, Lowering, Operands, word
from generators.program.draft import Draft, Item, Node, Ref, Written
from generators.program.image import Bytes


@dataclass
class Rows:
    """Operations that follow each other row by row, cut into chunks of rows."""

    loads: list[Draft] = field(default_factory=list)
    params: list[Node] = field(default_factory=list)
    """Instructions that read their parameters."""
    chunks: list[tuple[int, list[Node]]] = field(default_factory=list)
    """The row that each chunk ends before, and its instructions."""

    def items(self) -> list[Item]:
        """Return them as an item of their own, none where there is nothing."""
        nodes = [*self.params, *(node for _, chunk in self.chunks for node in chunk)]
        return [Item(self.loads, nodes)] if nodes else []


def row_words(lowering: Lowering, ops: Sequence[Norm | Convert]) -> int:
    """Return the parameter words that operations need together."""
    return sum(sum(_words(lowering, op)) for op in ops)


def _column_parts(lowering: Lowering, op: Norm | Convert) -> list[Part]:
    """Return the parts of an operation's columns that lie in one block."""
    source, target = lowering.blocks[op.source.buffer], lowering.blocks[op.target.buffer]
    return cut(op.target.columns, [*source.column_marks, *target.column_marks])


def _words(lowering: Lowering, op: Norm | Convert) -> list[int]:
    """Return the parameter words of each part of the columns; alike ones have one for all."""
    if op.rescale.per_tensor:
        return [1]
    lanes = lowering.config.lanes
    return [-(-count // lanes) for _, count in _column_parts(lowering, op)]


def lower_rows(
    lowering: Lowering, label: str, ops: Sequence[Norm | Convert], first_word: int = 0
) -> Rows:
    """Return operations of equally many rows, each chunk through all of them before the next.

    Their parameters are in the words from ``first_word`` on, counted without the spare ones.
    """
    found = Rows()
    if not ops:
        return found
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
        found.loads += item.loads
        found.params.append(lowering.params_draft(blob, count, first_word))
        words.append(SPARE_WORDS + first_word)
        first_word += count
    rows = ops[0].target.rows
    marks = {
        mark
        for op in ops
        for tensor in (op.source, op.target)
        for mark in lowering.blocks[tensor.buffer].row_marks
    }
    height = lowering.limits.height
    if height:
        marks |= set(range(0, rows, even(rows, height)))
    for first, m in cut(rows, marks):
        nodes = [
            node
            for op, place in zip(ops, words, strict=True)
            for node in _chunk(lowering, op, first, m, place)
        ]
        found.chunks.append((first + m, nodes))
    return found


def _chunk(lowering: Lowering, op: Norm | Convert, row: int, m: int, params: int) -> list[Node]:
    """Return the instructions of some rows, one for each of the blocks of columns."""
    source, target = lowering.blocks[op.source.buffer], lowering.blocks[op.target.buffer]
    flags = {"wide_out"} if op.target.wide else set()
    extra: Operands = {}
    if isinstance(op, Norm):
        extra = {"eps_low": wrap(op.eps), "eps_high": op.eps >> 28}
        flags |= {"rms"} if op.rms else set()
    else:
        flags |= {"wide_in"} | ({"per_tensor"} if op.rescale.per_tensor else set())
    nodes: list[Node] = []
    words = _words(lowering, op)
    for part, (column, n) in enumerate(_column_parts(lowering, op)):
        place = target.place(row, column)
        operands: Operands = {
            "i_addr": source.place(row, column),
            "i_stride": source.stride(column),
            "o_addr": place,
            "o_stride": target.stride(column),
            "o_zero": op.target.zero,
            "m": lowering.run_rows(row, m, op.target.rows),
            "n": n,
            "params": params + sum(words[:part]) * (not op.rescale.per_tensor),
        }
        opcode = Opcode.NORM if isinstance(op, Norm) else Opcode.MAP
        written = Written(op.target.name, row, m, column, n)
        defines = lowering.defines(place)
        nodes.append(Draft(opcode, operands | extra, frozenset(flags), defines, written))
    return nodes


def pool_bytes(op: Pool, total: int, rows: int, config: Config) -> Bytes:
    """Return the parameter word and the row of weights that make a mean of the first rows."""
    ones = np.arange(total) < rows
    return np.concatenate([word(op.rescale(rows), config), ones.astype(np.uint8)])


def lower_pool(lowering: Lowering, label: str, op: Pool) -> Item:
    """Return sums over each sequence's rows as the products of a row of ones and the tensor."""
    config, batch = lowering.config, lowering.batch
    total = op.source.rows // batch
    source, target = lowering.blocks[op.source.buffer], lowering.blocks[op.target.buffer]
    lowering.room_for(1)
    item = Item()
    piece = lowering.image.add(pool_bytes(op, total, total, config))
    if op.variable:
        lowering.pool = piece
    lowering.load_piece(item, label, piece)
    item.body.append(lowering.params_draft(label, 1))
    groups = lowering.column_groups(
        op.target.columns, lowering.tiles(batch), op.source.buffer, op.target.buffer
    )
    flags = frozenset({"per_tensor"} | ({"wide_out"} if op.target.wide else set()))
    for first, count in (part for group in groups for part in group):
        acc = lowering.acc(batch * -(-count // config.cols))
        marks = {*source.row_marks, *range(0, op.source.rows, total)}
        for row, k in cut(op.source.rows, marks):
            sequence, inside = divmod(row, total)
            product: Operands = {
                "a_addr": Ref(label, lowering.word_bytes + inside),
                "a_stride": total,
                "b_addr": source.place(row, first),
                "b_stride": source.stride(first),
                "b_zero": op.source.zero,
                "acc_addr": acc + sequence,
                "acc_stride": batch,
                "m": 1,
                "k": lowering.run_rows(row, k, op.source.rows),
                "n": count,
            }
            item.body.append(Draft(Opcode.MATMUL, product))
        place = target.place(0, first)
        drain: Operands = {
            "acc_addr": acc,
            "acc_stride": batch,
            "o_addr": place,
            "o_stride": target.stride(first),
            "o_zero": op.target.zero,
            "m": batch,
            "n": count,
            "params": SPARE_WORDS,
        }
        written = Written(op.target.name, 0, batch, first, count)
        item.body.append(Draft(Opcode.DRAIN, drain, flags, lowering.defines(place), written))
    return item
