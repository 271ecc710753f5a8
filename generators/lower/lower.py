"""Translation of an encoder's operations into instructions.

Each operation is divided into parts whose operands and sums fit the memories.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from celosia.arch.config import Config
from celosia.generators.graph.operations import Linear, Op, Pool
from celosia.generators.graph.quantized import QuantizedModel
from celosia.generators.lower.assembly import check_words
from celosia.generators.lower.blocks import blocks_of
from celosia.generators.lower.choices import MOST_AHEAD, Choices
from celosia.generators.lower.linear import LinearLayer
from celosia.generators.lower.lowering import Lowering
from celosia.generators.lower.pooling import lower_pool
from celosia.generators.lower.residence import Memory
from celosia.generators.lower.sequence_attention import lower_attention
from celosia.generators.lower.staging import Rows
from celosia.generators.lower.walk import Rowwise, Step, ending_ahead
from celosia.generators.program.allocate import live_bytes, uses
from celosia.generators.program.calls import Call
from celosia.generators.program.draft import Item, flatten
from celosia.generators.program.image import Bytes, Piece
from celosia.generators.program.loops import BARRIER, least_words

SAMPLED = 2
"""Layers of the programs that are compared; a sample has more."""


@dataclass(frozen=True)
class Lowered:
    """The instructions of an encoder, before its scratchpad buffers have addresses.

    An :class:`Item` is a group of instructions with the loads that they need.
    """

    before: list[Item]
    """Items before the first layer."""
    layers: list[list[Item]]
    """Items of each layer."""
    after: list[Item]
    """Items after the last layer."""
    memory: Memory
    """Bytes of every buffer, and the number of weight slots in use, with those of streams."""
    blocks: frozenset[str]
    """Buffers of tensors, which no choice of loads changes."""
    missing: int
    """Number of layers that are not lowered, as they are like others in ``layers``."""
    image: Bytes
    """External memory from its first byte on; empty if layers are missing."""
    image_bytes: int
    """Bytes of the whole image."""
    input: Piece
    output: Piece
    call: Call
    """The registers of a run; none if all inferences have the same rows."""
    pool: Piece | None
    """Constants that the host writes for each inference, ``pool_bytes``; None for none."""
    passing_bytes: int
    """Bytes of the image for tensors between products, which no run needs before it."""
    left_out: int
    """Tiles of zeros that are left out of all weights."""


def lower(
    model: QuantizedModel,
    config: Config,
    choices: Choices,
    batch: int = 1,
    *,
    sample: bool = False,
) -> Lowered:
    """Translate an encoder to instructions, which name scratchpad buffers without addresses.

    - ``model``: processes ``batch`` inputs in one run.
    - ``sample``: true to translate only some layers. The other layers must have equal instructions.

    Raises :class:`FitError` if the model does not fit.
    """
    blocks, place = blocks_of(model, choices.block_bytes, config), model.output.buffer
    ends, parts = {model.input.buffer, place}, choices.loop_parts
    inner = [each for each in blocks.values() if each.passes and each.buffer not in ends]
    # In a loop over a product's parts, each part has all rows.
    inner = [each for each in inner if not parts or 2 * each.rows <= config.accumulators.depth]
    passing = inner if choices.reloads else []
    blocks |= {each.buffer: replace(each, turns=2 * parts) for each in passing}
    blocks[place] = replace(blocks[place], turns=int(parts))
    lowering = _Sections(model, config, choices, blocks, batch)
    source = lowering.image.reserve(model.input.bytes)
    output = lowering.image.reserve(model.output.bytes)
    outside = {each.buffer: lowering.image.reserve(each.bytes) for each in passing}
    lowering.arriving |= outside
    lowering.leaving |= outside
    if blocks[place].in_columns:
        lowering.leaving[place] = output
    if blocks[model.input.buffer].in_columns and choices.reloads:
        lowering.arriving[model.input.buffer] = source
    if choices.ends_ahead:
        opening, *inside, ending = ending_ahead(model)
    else:
        opening, *inside, ending = model.before, *model.layers, model.after
    before = lowering.section("before", opening)
    first = Item()
    if choices.loops:
        lowering.stage.load(first, BARRIER, np.zeros(config.word_bytes, np.uint8))
    if model.start is not None:
        # It is added to the first product, whose operands come before it.
        piece = lowering.image.add(model.start.astype("<i2").view(np.uint8).ravel())
        lowering.load_tensor(before[0], opening[0].target, piece)
    entering = Item() if choices.input_last else first
    lowering.load_tensor(entering, model.input, source)
    # The scratchpad keeps one layer's tensors; the next layer's take the same places.
    names = [
        f"layer.{index}" if lowering.stage.keeps else "layer" for index in range(len(model.layers))
    ]
    sizes, layers = [lowering.image.size], list[list[Item]]()
    for name, ops in zip(names, inside, strict=True):
        layers.append(lowering.section(name, ops))
        sizes.append(lowering.image.size)
        if sample and len(layers) == 1:
            count = 1 if choices.loop_layers else len(model.layers)
            _check_layer(lowering.memory, layers[0], count, _tensors(lowering))
        if sample and len(layers) > SAMPLED and sum(map(len, layers[:-2])) >= 2 * MOST_AHEAD:
            break
    missing = len(inside) - len(layers)
    if missing and choices.ends_ahead:
        # It ends with another tensor than the layers before it.
        layers.append(lowering.section(names[-1], inside[-1]))
        missing -= 1
    lowering.image.skip(missing * (sizes[-1] - sizes[-2]) if missing else 0)
    if choices.input_last:
        earliest = [*before, *([] if choices.loop_layers else layers[0]), first][0]
        earliest.loads += entering.loads
    after = lowering.section("after", ending)
    lowering.image.check(lowering.name)
    last = Item()
    if not blocks[place].in_columns:
        last.body = lowering.store_tensor(model.output, output)
    return Lowered(
        [first, *before],
        layers,
        [*after, last],
        lowering.memory,
        _tensors(lowering),
        missing,
        np.zeros(0, np.uint8) if missing else lowering.image.finish(lowering.name),
        lowering.image.size,
        source,
        output,
        lowering.call,
        lowering.pool,
        sum(piece.size for piece in outside.values()),
        lowering.left_out,
    )


def _tensors(lowering: Lowering) -> frozenset[str]:
    """Return the names of the buffers of tensors that no load brings again."""
    blocks = lowering.blocks
    names = {name for tensor in blocks.values() for name in tensor.sizes()}
    arriving = {name for buffer in lowering.arriving for name in blocks[buffer].sizes()}
    return frozenset(names - arriving)


def _check_layer(
    memory: Memory, layer: Sequence[Item], count: int, tensors: frozenset[str]
) -> None:
    """Raise :class:`FitError` if ``count`` layers like ``layer`` alone are too long a program.

    ``tensors`` are the names of the buffers whose bytes the error may propose for the scratchpad.
    """
    nodes = [node for item in layer for node in (*item.loads, *item.body)]
    words = count * least_words(nodes)
    if words > memory.config.control.program_depth:
        used = {name: use for name, use in uses([*flatten(nodes)]).items() if name in tensors}
        size = live_bytes(used, memory.buffers)
        check_words(memory, words, least=True, tensor_bytes=size)


class _Sections(Lowering):
    """Lowers the sections of an encoder, each to the items of its operations.

    Row by row operations are cut into the same chunks as the operation before them, and done as
    soon as its rows are there, if the parameters of both fit.
    """

    def section(self, name: str, ops: Sequence[Op]) -> list[Item]:
        """Return the items of operations, whose buffers begin with a name."""
        self.accumulators.restart()
        self.lower_section(ops, name)
        return self.stage.section()

    def rules(self) -> dict[type[Op], Callable[[Step], None]]:
        """Return the function that adds a step's items, by the type of the step's operation."""
        return super().rules() | {Pool: partial(lower_pool, self)}

    def lower_attention(self, step: Step) -> None:
        """Add the item of an attention."""
        lower_attention(self, step)

    def lower_linear(self, step: Step) -> None:
        """Add the items of a linear layer and the operations after it."""
        assert isinstance(step.op, Linear)
        label, op, before = step.label, step.op, self.previous
        chunks = before is not None and (bool(before.behind) or not self.model.description.variable)
        kinds = Linear | Rowwise if chunks else Rowwise
        # The rows of the previous operation come in chunks.
        early = before is not None and isinstance(before.op, kinds)
        words = self.words_together(step.behind)
        rows = self.rowwise(label, step.behind, self.room - words)
        if op.low_rank is not None:
            thin = f"{label}.thin", op.low_rank.first, Rows(), 0
            self.stage.items += LinearLayer(self, *thin, early=early).items()
        self.stage.items += LinearLayer(self, label, op, rows, words, early=early).items()
