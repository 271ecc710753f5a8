"""Instructions of an encoder's pooling, which computes the mean over a sequence's rows."""

import numpy as np

from celosia.arch.config import Config
from celosia.arch.isa import Opcode
from celosia.generators.graph.operations import Pool
from celosia.generators.lower.blocks import cut
from celosia.generators.lower.instructions import View, product, rescale_words
from celosia.generators.lower.lowering import SPARE_WORDS, Lowering
from celosia.generators.lower.walk import Step
from celosia.generators.program.draft import Ref
from celosia.generators.program.image import Bytes


def pool_bytes(op: Pool, total: int, rows: int, config: Config) -> Bytes:
    """Return the constants for the mean of a sequence with ``rows`` rows, as bytes.

    The first bytes are a word of requantization parameters, which divide by ``rows``. Then come
    ``total`` weights of one byte, where ``total`` is the length of the longest sequence. The first
    ``rows`` weights are 1, and the others are 0.
    """
    ones = np.arange(total) < rows
    return np.concatenate([rescale_words(config, op.rescale(rows)).ravel(), ones.astype(np.uint8)])


def lower_pool(lowering: Lowering, step: Step) -> None:
    """Append instructions that compute the mean over the rows of each input sequence.

    ``step.op`` is the :class:`Pool` operation. ``step.label`` is the name for the scratchpad buffer
    of its constants.
    """
    label, op = step.label, step.op
    assert isinstance(op, Pool)
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
                    lowering.row_operand(row, k, op.source.rows),
                    count,
                    b_zero=op.source.zero,
                )
            )
        sums, rows, columns = View(acc, batch), (0, batch), (first, count)
        work = lowering.vector_operands(sums, op.target, rows, columns, batch, SPARE_WORDS)
        stage.add(work.requantize(Opcode.DRAIN, "per_tensor", tensor=op.target))
