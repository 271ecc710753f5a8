"""Lowering of an encoder: cuts operations into parts that fit the memories."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from celosia.arch.config import Config
from celosia.generators.graph.operations import Attention, Convert, Linear, Norm, Op, Pool
from celosia.generators.graph.quantized import QuantizedModel
from celosia.generators.lower.blocks import blocks_of
from celosia.generators.lower.checks import check_encoder
from celosia.generators.lower.choices import MOST_AHEAD, Choices
from celosia.generators.lower.linear import LinearLayer
from celosia.generators.lower.lowering import SPARE_WORDS, Lowering
from celosia.generators.lower.rows import lower_pool, lower_rows, row_words
from celosia.generators.lower.sequence_attention import lower_attention
from celosia.generators.lower.walk import Rowwise, steps
from celosia.generators.program.draft import Item, Rows
from celosia.generators.program.image import Bytes, Piece
from celosia.generators.program.loops import BARRIER

SAMPLED = 2
"""Layers of the programs that are compared; a sample has more."""


@dataclass(frozen=True)
class Lowered:
    """A lowered encoder: items by section, buffer sizes, and the memory image."""

    before: list[Item]
    layers: list[list[Item]]
    after: list[Item]
    sizes: dict[str, int]
    """Bytes of every buffer."""
    blocks: frozenset[str]
    """Buffers of tensors, which no choice of loads changes."""
    missing: int
    """Number of layers after those in ``layers`` that are not lowered, as they are like the last
    one."""
    image: Bytes
    """External memory from its first byte on; empty if layers are missing."""
    image_bytes: int
    """Bytes of the whole image."""
    input: Piece
    output: Piece
    rows: Rows
    """The rows that the host counts in registers; none if all inferences have the same."""
    pool: Piece | None
    """Constants that the host writes for each inference, ``pool_bytes``; None for none."""
    slots: int
    """Number of weight slots in use, including those of streamed weights."""


def lower(
    model: QuantizedModel,
    config: Config,
    choices: Choices,
    batch: int = 1,
    *,
    sample: bool = False,
) -> Lowered:
    """Return an encoder's instructions, with buffers that have no addresses yet.

    ``model`` is for ``batch`` inputs at once (:func:`celosia.generators.lower.batch.batched`). With
    ``sample`` only the first of equal layers are lowered, until a layer has the same loads before
    it as all following layers.

    Raises :class:`FitError` if the configuration does not support an operation.
    """
    check_encoder(model, config)
    lowering = Lowering(
        model, config, choices, blocks_of(model, choices.block_bytes, config), batch
    )
    source = lowering.image.reserve(model.input.bytes)
    output = lowering.image.reserve(model.output.bytes)
    lowering.leaving = model.output, output
    before = _section(lowering, "before", model.before)
    first = Item()
    if choices.loops:
        lowering.load(first, BARRIER, np.zeros(lowering.word_bytes, np.uint8))
    if model.start is not None:
        # It is added to the first product, whose operands come before it.
        piece = lowering.image.add(model.start.astype("<i2").view(np.uint8).ravel())
        lowering.load_tensor(before[0], model.before[0].target, piece)
    lowering.load_tensor(first, model.input, source)
    # The scratchpad keeps one layer's tensors; the next layer's take the same places.
    names = [f"layer.{index}" if lowering.keeps else "layer" for index in range(len(model.layers))]
    sizes, layers = [lowering.image.size], list[list[Item]]()
    for name, ops in zip(names, model.layers, strict=True):
        layers.append(_section(lowering, name, ops))
        sizes.append(lowering.image.size)
        if sample and len(layers) > SAMPLED and sum(map(len, layers[:-2])) >= 2 * MOST_AHEAD:
            break
    missing = len(model.layers) - len(layers)
    lowering.image.skip(missing * (sizes[-1] - sizes[len(layers) - 1]))
    after = _section(lowering, "after", model.after)
    lowering.image.check(lowering.name)
    last = Item()
    if not lowering.in_columns(model.output):
        last.body = lowering.store_tensor(model.output, output)
    return Lowered(
        [first, *before],
        layers,
        [*after, last],
        lowering.sizes,
        frozenset(name for tensor in lowering.blocks.values() for name in tensor.sizes()),
        missing,
        np.zeros(0, np.uint8) if missing else lowering.image.finish(lowering.name),
        lowering.image.size,
        source,
        output,
        dict(lowering.row_registers),
        lowering.pool,
        lowering.memory.slots,
    )


def _section(lowering: Lowering, name: str, ops: Sequence[Op]) -> list[Item]:
    """Return the items of operations.

    Row by row operations are cut into the same chunks as the operation before them, and done as
    soon as its rows are there, if the parameters of both fit.
    """
    lowering.accumulators.restart()
    items: list[Item] = []
    early, space = False, lowering.config.vector.words - SPARE_WORDS

    def fits(op: Op, behind: Sequence[Rowwise]) -> bool:
        own = [op] if isinstance(op, Rowwise) else []
        words = row_words(lowering, _requantized([*own, *behind]))
        words += lowering.config.lane_groups if isinstance(op, Linear) else 0
        return isinstance(op, Linear | Rowwise) and words <= space

    for step in steps(ops, fits):
        label, op, behind = f"{name}.{step.place}", step.op, _requantized(step.behind)
        lowering.begin()
        match op:
            case Attention():
                items.append(lower_attention(lowering, label, op))
            case Pool():
                items.append(lower_pool(lowering, label, op))
            case Linear():
                words = row_words(lowering, behind)
                rows = lower_rows(lowering, label, behind, space - words)
                if op.low_rank is not None:
                    thin, first = f"{label}.thin", op.low_rank.first
                    nothing = lower_rows(lowering, thin, [])
                    items += LinearLayer(lowering, thin, first, nothing, 0, early=early).items()
                items += LinearLayer(lowering, label, op, rows, words, early=early).items()
            case _:
                items += lower_rows(lowering, label, [*_requantized([op]), *behind]).items()
        alone = isinstance(op, Linear) and not behind
        early = not isinstance(op, Attention | Pool)
        early = early and not (alone and lowering.model.description.variable)
    return items


def _requantized(ops: Sequence[Op]) -> list[Norm | Convert]:
    """Return row by row operations, after a check that encoders have no other kinds."""
    rowwise = [op for op in ops if isinstance(op, Norm | Convert)]
    assert len(rowwise) == len(ops), "no encoder has others"
    return rowwise
