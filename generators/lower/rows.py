"""Instructions of an encoder's norms, conversions and pooling.

A conversion changes the scale or the width of numbers. Successive norms and conversions process one
chunk of rows before the next chunk begins. Pooling computes the mean over a sequence's rows.
"""

from collections.abc import Sequence

import numpy as np

from celosia.arch.config import Config
from celosia.arch.isa import Opcode
from celosia.generators.graph.operations import Pool
from celosia.generators.lower.blocks import cut, even
from celosia.generators.lower.instructions import View, product, rescale_words
from celosia.generators.lower.lowering import SPARE_WORDS, Lowering
from celosia.generators.lower.staging import Rows
from celosia.generators.lower.walk import Rowwise
from celosia.generators.program.draft import Item, Ref
from celosia.generators.program.image import Bytes


def row_words(lowering: Lowering, ops: Sequence[Rowwise]) -> int:
    """Return the number of parameter words that the operations ``ops`` need together.

    The operations are norms and conversions (changes of scale or width). A parameter word is a word
    of the parameter memory. It has the requantization parameters of several columns.
    """
    rescales = [rescale for op in ops for rescale in lowering.row_rescales(op)]
    return sum(-(-len(rescale.bias) // lowering.config.vector.lanes) for rescale in rescales)


def lower_rows(lowering: Lowering, label: str, ops: Sequence[Rowwise], first_word: int = 0) -> Rows:
    """Return the instructions of successive norms and conversions, as :class:`Rows`.

    A conversion changes the scale or the width of numbers. All operations process one chunk of rows
    before the next chunk begins. Their requantization parameters are loaded into scratchpad
    buffers, and are copied to the parameter memory.

    - ``ops``: the operations in order.
    - ``label``: the beginning of the buffers' names.
    - ``first_word``: the first parameter word of the operations, counted from word
      :data:`SPARE_WORDS` on.
    """
    lowered = Rows()
    if not ops:
        return lowered
    words = []
    for index, op in enumerate(ops):
        params = rescale_words(lowering.config, *lowering.row_rescales(op))
        count = len(params)
        blob = f"{label}.params.{index}"
        item = Item()
        lowering.stage.load(item, blob, params.ravel())
        lowered.loads += item.loads
        words.append(SPARE_WORDS + first_word)
        lowered.params.append(lowering.bring(Ref(blob), count, words[-1]))
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
    lowered.chunks = lowering.chunks(ops, words, cut(rows, marks))
    return lowered


def pool_bytes(op: Pool, total: int, rows: int, config: Config) -> Bytes:
    """Return constants with which the machine computes the mean of a sequence's first rows.

    - ``total`` is the number of rows of the longest sequence.
    - ``rows`` is the number of rows in the mean.

    The result has one word of requantization parameters, and then ``total`` weights of one byte.
    The first ``rows`` weights are 1, and the others are 0. The product of weights and sequence is
    the sum of the first rows. Its requantization divides this sum by ``rows``.
    """
    ones = np.arange(total) < rows
    return np.concatenate([rescale_words(config, op.rescale(rows)).ravel(), ones.astype(np.uint8)])


def lower_pool(lowering: Lowering, label: str, op: Pool) -> None:
    """Append instructions that compute the mean over the rows of each input sequence.

    The array multiplies a row of ones by the sequence's rows, which gives their sum. The
    requantization of the sum also divides it by the number of rows.

    ``label`` is the name of a scratchpad buffer. The row of ones and the requantization parameters
    are loaded into this buffer.
    """
    config, batch = lowering.config, lowering.batch
    total = op.source.rows // batch
    source = lowering.blocks[op.source.buffer]
    stage, piece = lowering.stage, lowering.image.add(pool_bytes(op, total, total, config))
    if op.variable:
        lowering.pool = piece
    once = stage.keeps and not op.variable
    stage.load_piece(stage.begin_item(), label, piece, once=once)
    stage.add(lowering.bring(Ref(label), 1, SPARE_WORDS))
    groups = lowering.column_groups(
        op.target.columns, lowering.accumulators.tiles(batch), op.source.buffer, op.target.buffer
    )
    for first, count in (part for group in groups for part in group):
        acc = lowering.accumulators.take(batch * -(-count // config.array.cols))
        marks = {*source.row_marks, *range(0, op.source.rows, total)}
        for row, k in cut(op.source.rows, marks):
            sequence, inside = divmod(row, total)
            stage.add(
                product(
                    View(Ref(label, lowering.config.word_bytes + inside), total),
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
        stage.add(work.requantize(Opcode.DRAIN, "per_tensor", tensor=op.target))
