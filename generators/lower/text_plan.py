"""Parts of an integer decoder that stay on the chip: slots, words, tables, buffers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from arch.config import Config
from arch.errors import InputError
from arch.isa import REGISTERS, RING_SLOTS
from generators.fitting import FitError
from generators.graph import Decoder, Linear, Rescale
from generators.lower.text_memory import Cache, Memory, Slots
from generators.lower.text_ops import Block, blocks, final_norm, head
from generators.lower.text_stage import (
    Cut,
    Stage,
    constants,
    cuts,
    load,
    preload,
    stage_size,
)
from generators.program.draft import Draft, Ref
from generators.program.image import LONGEST_ROW, ImageBuilder
from generators.program.layout import element_rows, rows_image
from generators.stored import format_flags, part_rows
from sim.rotary import rotary_places

WORDS_PLACE = REGISTERS - 1
"""The register of the first token's place where several are looked up."""
FFN_PARTS = 2
"""Parts that the MLP is cut into where weights stay on the chip."""
MOST_ROWS = WORDS_PLACE - 1
"""Tokens of a chunk at most: each has a register when it is looked up, from 1 on."""


@dataclass(frozen=True)
class Share:
    """Rows of a matrix that stay on the chip, and are multiplied by one instruction."""

    row: int
    k: int
    slots: Slots


@dataclass(frozen=True)
class Matrix:
    """A projection on the chip, or on its way there."""

    k: int
    n: int
    shares: list[Share]
    """Places of its resident weights; none where they are loaded for each product."""
    cuts: list[Cut]
    """Its parts in external memory."""
    words: int
    """Its first parameter word, in DRAIN's order."""
    flags: frozenset[str]
    """Flags of the instructions that read its weights."""

    @property
    def resident(self) -> bool:
        """The matrix's weights stay on the chip."""
        return bool(self.shares)


@dataclass(frozen=True)
class Table:
    """Rows that stay in the scratchpad, or come to it one by one."""

    place: Ref
    stride: int
    """Bytes from row to row."""
    rows: int
    addr: int
    """External address of the first row."""


@dataclass
class Plan:
    """Places of everything that stays on the chip, and the program that puts it there."""

    decoder: Decoder
    config: Config
    cache: Cache
    rows: int
    """Tokens of a chunk."""
    memory: Memory
    image: ImageBuilder
    stage: Stage
    matrices: dict[str, Matrix] = field(default_factory=dict)
    words: dict[str, int] = field(default_factory=dict)
    tables: list[int] = field(default_factory=list)
    kept_table: int | None = None
    """Slot of the table that clamps to the bits of keys and values; None where these are INT8."""
    keys: list[list[Slots]] = field(default_factory=list)
    """Of each layer, of each key head: slots of its keys [key_dim, capacity]."""
    values: list[list[list[Slots]]] = field(default_factory=list)
    """Of each layer and key head: slots of each tile column of its values [capacity, head_dim]."""
    rows_tables: dict[str, Table] = field(default_factory=dict)
    setup: list[Draft] = field(default_factory=list)

    @property
    def resident(self) -> bool:
        """Weights, keys and values stay in weight slots."""
        return self.config.weight_depth > RING_SLOTS

    @property
    def key_parts(self) -> list[tuple[int, int]]:
        """Key heads (first, end) whose values are multiplied while the next ones are divided.

        The first half is that of the first softmax, and the last one is alone, as nothing is left
        to do beside it.
        """
        heads = self.decoder.description.kv_heads
        bounds = sorted({0, -(-heads // 2), heads - 1, heads})
        return list(pairwise(bounds))

    @property
    def by_row(self) -> bool:
        """The context of a token's heads is drained with parameters for each head."""
        return self.decoder.description.head_dim <= min(self.config.lanes, self.config.cols)

    @property
    def ffn_parts(self) -> list[tuple[int, int]]:
        """Tile columns (first, end) of the MLP that go on while the next ones are multiplied."""
        tiles = -(-self.decoder.description.ffn // self.config.cols)
        return _even(tiles, FFN_PARTS if self.resident else 1)


def plan(decoder: Decoder, config: Config, cache: Cache, rows: int, memory_bytes: int) -> Plan:
    """Return where everything of a decoder stays on a chip.

    What comes to it comes in pieces of at most ``memory_bytes``.

    Raises :class:`InputError` where it does not fit, or lacks a unit that it needs.
    """
    model = decoder.description
    _check(decoder, config, cache, rows)
    memory, image = Memory(model.name, config), ImageBuilder(config)
    taken = _stream_buffers(decoder, config, cache, rows, memory)
    tables = _tables(decoder, config, rows)
    if config.weight_depth > RING_SLOTS:
        taken += sum(len(data) for data, _ in tables.values())
    stage = Stage(memory, image, stage_size(config, taken, memory_bytes))
    found = Plan(decoder, config, cache, rows, memory, image, stage)
    _keep_rows(found, tables, memory_bytes)
    _keep_layers(found)
    constants(stage)
    found.setup += stage.take()
    if found.resident:
        memory.check_slots()
    return found


def _check(decoder: Decoder, config: Config, cache: Cache, rows: int) -> None:
    model = decoder.description
    needs = {
        "softmax": True,
        "norm": True,
        "b_transpose": True,
        "activation": True,
        "rotary": model.gated or model.position == "rotary",
    }
    for name, needed in needs.items():
        if needed and not getattr(config, name):
            raise FitError(
                f"Model {model.name} needs the unit {name}, but {name} is false", {name: True}
            )
    if config.operand_width != 8:
        raise InputError(
            f"Model {model.name} has operands of 8 bits, but operand_width is "
            f"{config.operand_width}"
        )
    if not 1 <= rows <= MOST_ROWS:
        raise InputError(f"Tokens of a chunk must be from 1 to {MOST_ROWS}, not {rows}")
    if cache.capacity > decoder.places:
        raise InputError(
            f"Context must be at most the {decoder.places} tokens that model {model.name} was "
            f"made for, not {cache.capacity}"
        )
    if cache.capacity > config.max_row:
        raise FitError(
            f"Context of {cache.capacity} tokens makes rows of scores that long, but max_row is "
            f"{config.max_row}",
            {"max_row": cache.capacity},
        )
    for name, k in (("ffn", model.ffn), ("dim", model.dim), ("context", cache.capacity)):
        if k > config.max_k:
            raise FitError(
                f"Model {model.name} sums {name} = {k} products, but max_k is {config.max_k}",
                {"max_k": max(model.ffn, model.dim, cache.capacity)},
            )


def _stream_buffers(
    decoder: Decoder, config: Config, cache: Cache, rows: int, memory: Memory
) -> int:
    """Take the buffers of what is computed, and return their bytes."""
    model = decoder.description
    shares = max(model.heads, 2 * rows) * cache.capacity
    sizes = {
        "x": 2 * rows * model.dim,
        "h": rows * model.dim,
        "query": rows * model.heads * decoder.key_dim,
        "key": rows * model.kv_heads * decoder.key_dim,
        "value": rows * model.kv_width,
        "shares": shares,
        "context": rows * model.query_width,
        "hidden": rows * model.ffn,
        "logits": -(-2 * model.vocabulary // config.mem_bytes) * config.mem_bytes,
    }
    if any(block.kept_key is not None for block in blocks(decoder)):
        sizes["turned"] = 2 * sizes["key"]
    if model.gated:
        sizes["gate"] = rows * model.ffn
    if not config.fused:
        sizes["scores"] = 2 * shares
    if config.weight_depth == RING_SLOTS:
        for layer in range(model.layers):
            sizes[f"keys{layer}"] = cache.capacity * model.kv_heads * decoder.key_dim
            sizes[f"values{layer}"] = cache.capacity * model.kv_width
    for name, size in sizes.items():
        memory.buffer(name, size)
    return sum(sizes.values())


def _keep_rows(found: Plan, tables: Mapping[str, tuple[bytes, int]], most: int) -> None:
    """Keep the vocabulary and the tables of positions, or lay them out row by row.

    They come in pieces of at most so many bytes.
    """
    for name, (data, stride) in tables.items():
        rows, held = len(data) // stride, np.frombuffer(data, np.uint8)
        if not found.resident:
            place = found.memory.buffer(name, found.rows * stride)
            found.rows_tables[name] = Table(place, stride, rows, found.image.add(held).addr)
            continue
        place = found.memory.buffer(name, rows * stride)
        found.rows_tables[name] = Table(place, stride, rows, 0)
        step = min(rows, LONGEST_ROW // stride, most // stride) * stride
        for first in range(0, len(data), step):
            piece = found.image.add(held[first : first + step])
            found.setup.append(load(Ref(name, first), piece))


def _tables(decoder: Decoder, config: Config, rows: int) -> dict[str, tuple[bytes, int]]:
    """Return the rows, and their stride, of the vocabulary and of what belongs to each place.

    There are places for a chunk that begins at the last one.
    """
    found = {"words": rows_image(element_rows(decoder.embedding.words, "i1"), config)}
    places = decoder.embedding.positions
    if decoder.rotary is not None:
        width = decoder.description.heads * decoder.key_dim
        reach = rotary_places(width, decoder.key_dim, config.lanes, config.cols).max() + 1
        places = np.tile(decoder.rotary, (1, -(-int(reach) // decoder.key_dim)))[:, :reach]
    assert places is not None
    behind = np.zeros((rows, places.shape[1]), np.int64)
    found["places"] = rows_image(element_rows(np.concatenate((places, behind)), "<i2"), config)
    return found


def _keep_layers(found: Plan) -> None:
    """Keep weights, cache, words and tables: a layer's together, alike in every layer.

    So programs may have the layers as iterations of a loop. The words of the last norm lie where
    those of another layer's first norm would.
    """
    decoder, memory, words = found.decoder, found.memory, found.words
    layers = blocks(decoder)
    narrow = decoder.kv_bits < found.config.operand_width
    found.tables = memory.take_tables([layer.table for layer in layers], int(narrow))
    words["embedding"] = memory.take_words(decoder.embedding.rescale)
    for index, layer in enumerate(layers):
        name = f"layers.{index}"
        _keep_words(found, name, layer)
        for kind, one in layer.linears.items():
            _keep_matrix(found, f"{name}.{kind}", one)
        if found.resident:
            _keep_cache(found)
    words["final_norm"] = memory.take_words(final_norm(decoder).rescale)
    _keep_matrix(found, "head", head(decoder))
    if narrow:
        half = 1 << (decoder.kv_bits - 1)
        found.kept_table = memory.take_table(np.arange(-128, 128).clip(-half, half - 1))


def _keep_matrix(found: Plan, name: str, one: Linear) -> None:
    memory, stage, config = found.memory, found.stage, found.config
    k, n = one.weight.shape
    words = memory.take_words(one.rescale, by_tile=True)
    flags = format_flags(one.stored, config, memory.name)
    if not found.resident:
        parts = cuts(one, range(k), found.image, stage.size, config)
        found.matrices[name] = Matrix(k, n, [], parts, words, flags)
        return
    shares = []
    for row, end in pairwise([0, *_share_rows(found, name, part_rows(one.stored, config)), k]):
        slots = memory.take_slots(end - row, n)
        shares.append(Share(row, end - row, slots))
        for part in cuts(one, range(row, end), found.image, stage.size, config):
            stage.add(preload(part, stage.piece(part.piece), slots, config, flags))
    found.matrices[name] = Matrix(k, n, shares, [], words, flags)


def _share_rows(found: Plan, name: str, rows: int) -> list[int]:
    """Return the rows at which a matrix is cut whose operand comes part by part.

    A share has a multiple of ``rows`` rows, as many as have come when the operand's part has.
    """
    kind = name.rpartition(".")[2]
    if kind == "output":
        model = found.decoder.description
        came = [end * model.group * model.head_dim for _, end in found.key_parts[:-1]]
    elif kind == "down":
        came = [end * found.config.cols for _, end in found.ffn_parts[:-1]]
    else:
        return []
    return sorted({column // rows * rows for column in came} - {0})


def _keep_words(found: Plan, name: str, layer: Block) -> None:
    """Keep the words of a layer but for those of its linear layers, first its first norm's."""
    memory, words, model = found.memory, found.words, found.decoder.description
    shared: dict[tuple[int, int, int], int] = {}
    words[f"{name}.attention_norm"] = memory.take_words(layer.attention_norm.rescale)
    words[f"{name}.mlp_norm"] = memory.take_words(layer.mlp_norm.rescale)
    scores, context = layer.attention.scores, layer.context
    if layer.kept_key is not None:
        words[f"{name}.kept_key"] = memory.take_words(layer.kept_key.rescale)
    for first, _ in runs(scores, 1, model.heads):
        one = part(scores, first, 1)
        values = int(one.bias[0]), int(one.multiplier[0]), int(one.shift[0])
        if values not in shared:
            shared[values] = memory.take_words(one)
            # Behind it, as a softmax that takes sums expects it.
            memory.take_words(layer.attention.heads[0].probabilities)
        words[f"{name}.scores.{first}"] = shared[values]
    for index in range(model.heads):
        columns = part(context, index * model.head_dim, model.head_dim)
        words[f"{name}.context.{index}"] = memory.take_words(columns, by_tile=True)


def _keep_cache(found: Plan) -> None:
    """Keep slots for the keys and values of another layer."""
    model, config, capacity = found.decoder.description, found.config, found.cache.capacity
    memory, heads = found.memory, range(model.kv_heads)
    starts = range(0, model.head_dim, config.cols)
    widths = [min(config.cols, model.head_dim - column) for column in starts]
    found.keys.append([memory.take_slots(found.decoder.key_dim, capacity) for _ in heads])
    found.values.append([[memory.take_slots(capacity, width) for width in widths] for _ in heads])


def part(rescale: Rescale, first: int, count: int) -> Rescale:
    """Return the parameters of some columns, as one word where they are alike."""
    found = rescale if rescale.per_tensor else rescale.columns(first, count)
    values = np.stack((found.bias, found.multiplier, found.shift))
    return found.columns(0, 1) if np.all(values == values[:, :1]) else found


def runs(rescale: Rescale, width: int, total: int) -> list[tuple[int, int]]:
    """Return (first, count) of runs of columns, ``width`` by ``width``, with the same parameters.

    There are ``total`` columns.
    """
    if rescale.per_tensor:
        return [(0, total)]
    values = np.stack((rescale.bias, rescale.multiplier, rescale.shift))  # [3, total]
    blocks = values.reshape(3, -1, width)
    found: list[tuple[int, int]] = []
    for index in range(blocks.shape[1]):
        if found and np.array_equal(blocks[:, index], blocks[:, index - 1]):
            found[-1] = found[-1][0], found[-1][1] + width
        else:
            found.append((index * width, width))
    return found


def _even(total: int, parts: int) -> list[tuple[int, int]]:
    """Return (first, end) of at most so many parts of about the same size."""
    parts = min(parts, total)
    bounds = [total * part // parts for part in range(parts + 1)]
    return list(pairwise(bounds))
