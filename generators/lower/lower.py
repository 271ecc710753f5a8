"""From a quantized model to instructions: cuts operations into what the memories hold."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arch.config import Config
from generators.graph import Attention, Convert, Linear, Norm, Op, Pool, QuantizedModel
from generators.lower.attention import lower_attention
from generators.lower.blocks import blocks_of
from generators.lower.checks import check_encoder
from generators.lower.linear import lower_linear
from generators.lower.lowering import SPARE_WORDS, Limits, Lowering
from generators.lower.rows import lower_pool, lower_rows, row_words
from generators.program.draft import Item, Rows
from generators.program.image import Bytes, Piece
from generators.program.loops import BARRIER


@dataclass(frozen=True)
class Lowered:
    """A model's items by section, and what lies in external memory."""

    before: list[Item]
    layers: list[list[Item]]
    after: list[Item]
    sizes: dict[str, int]
    """Bytes of every buffer."""
    image: Bytes
    input: Piece
    output: Piece
    rows: Rows
    """The rows that the host counts in registers; none where all inferences have the same."""
    pool: Piece | None
    """Constants that the host writes for each inference, ``pool_bytes``; None for none."""


def lower(model: QuantizedModel, config: Config, limits: Limits, batch: int = 1) -> Lowered:
    """Return a model's instructions with buffers that have no addresses yet.

    ``model`` is for ``batch`` inputs at once (:func:`generators.lower.batch.batched`).

    Raises :class:`FitError` where an operation cannot be done on the configuration at all.
    """
    check_encoder(model, config)
    lowering = Lowering(model, config, limits, blocks_of(model, limits.block_bytes, config), batch)
    source = lowering.image.reserve(model.input.bytes)
    output = lowering.image.reserve(model.output.bytes)
    lowering.leaving = model.output, output
    before = _section(lowering, "before", model.before)
    first = Item()
    if limits.barriers:
        lowering.load(first, BARRIER, np.zeros(lowering.word_bytes, np.uint8))
    if model.start is not None:
        # It is added to the first product, whose operands come before it.
        piece = lowering.image.add(model.start.astype("<i2").view(np.uint8).ravel())
        lowering.load_tensor(before[0], model.before[0].target, piece)
    lowering.load_tensor(first, model.input, source)
    layers = [_section(lowering, "layer", layer) for layer in model.layers]
    after = _section(lowering, "after", model.after)
    last = Item()
    if not lowering.in_columns(model.output):
        last.body = lowering.store_tensor(model.output, output)
    return Lowered(
        [first, *before],
        layers,
        [*after, last],
        lowering.sizes,
        lowering.image.finish(lowering.name),
        source,
        output,
        dict(lowering.row_registers),
        lowering.pool,
    )


def _section(lowering: Lowering, name: str, ops: Sequence[Op]) -> list[Item]:
    """Return the items of operations.

    What works row by row is cut into the same chunks as what it follows, and done as soon as
    its rows are there, if the parameters of both fit.
    """
    lowering.restart()
    model = lowering.model.description
    items: list[Item] = []
    index, early = 0, False
    while index < len(ops):
        op, label = ops[index], f"{name}.{index}"
        index += 1
        lowering.begin()
        if isinstance(op, Attention):
            items.append(lower_attention(lowering, label, op))
            early = False
        elif isinstance(op, Pool):
            items.append(lower_pool(lowering, label, op))
            early = False
        else:
            assert isinstance(op, Linear | Norm | Convert), "no encoder has others"
            space = lowering.config.param_depth - SPARE_WORDS
            rows: list[Norm | Convert] = []
            if isinstance(op, Linear):
                space -= lowering.config.lane_groups
            else:
                rows.append(op)
            while index < len(ops) and _follows(op, ops[index]):
                following = ops[index]
                assert isinstance(following, Norm | Convert)
                if row_words(lowering, [*rows, following]) > space:
                    break
                rows.append(following)
                index += 1
            words = row_words(lowering, rows)
            if isinstance(op, Linear):
                first = lowering.config.param_depth - SPARE_WORDS - words
                behind = lower_rows(lowering, label, rows, first)
                items += lower_linear(lowering, label, op, behind, words, early=early)
            else:
                items += lower_rows(lowering, label, rows).items()
            early = bool(rows) or not model.variable
    return items


def _follows(op: Op, following: Op) -> bool:
    """Return whether an operation works on the rows of one before, row by row."""
    return isinstance(following, Norm | Convert) and following.target.rows == op.target.rows
