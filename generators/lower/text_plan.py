"""Parts of an integer decoder that stay on the chip: slots, words, tables, buffers."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from arch.config import Config
from arch.errors import InputError
from arch.isa import REGISTERS, RING_SLOTS
from generators.fitting import FitError
from generators.graph import Decoder, Linear, Rescale
from generators.lower.text_memory import Cache, Memory, Slots, Words, words_of
from generators.lower.text_ops import Block, blocks, final_norm, head
from generators.lower.text_stage import (
    STAGES,
    WORDS,
    Cut,
    Stage,
    constants,
    cuts,
    even,
    load,
    preload,
    stage_size,
)
from generators.program.draft import Draft, Ref
from generators.program.image import LONGEST_ROW, ImageBuilder, Piece, piece_of
from generators.program.layout import PARAM_BYTES, element_rows, rows_image
from generators.stored import format_flags, in_pairs, part_rows, stored_rows
from sim.matmul import pairs
from sim.rotary import rotary_places

WORDS_PLACE = REGISTERS - 1
"""The register of the first token's place where several are looked up."""
FFN_PARTS = 2
"""Parts that the MLP is cut into where weights stay on the chip."""
MOST_TILES = 16
"""Tile columns of a passing matrix that are requantized at once, at most."""
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
    words: Words
    """Its parameter words, in DRAIN's order."""
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
    passing: bool
    """Parameter words, keys and values lie in external memory, and come for each use."""
    matrices: dict[str, Matrix] = field(default_factory=dict)
    words: dict[str, Words] = field(default_factory=dict)
    tables: list[int] = field(default_factory=list)
    passing_tables: list[Piece] = field(default_factory=list)
    """Tables of the layers where parameters pass; all come to the same slot."""
    kept_table: int | None = None
    """Slot of the table that clamps to the bits of keys and values; None where these are INT8."""
    keys: list[list[Slots]] = field(default_factory=list)
    """Of each layer, of each key head: slots of its keys [key_dim, capacity]."""
    values: list[list[list[Slots]]] = field(default_factory=list)
    """Of each layer and key head: slots of each tile column of its values [capacity, head_dim]."""
    caches: list[dict[str, int]] = field(default_factory=list)
    """Of each layer: external addresses of its ``keys`` and ``values``, where they come."""
    rows_tables: dict[str, Table] = field(default_factory=dict)
    setup: list[Draft] = field(default_factory=list)

    @property
    def resident(self) -> bool:
        """Weights, keys and values stay in weight slots."""
        return self.config.weight_depth > RING_SLOTS

    @property
    def most_words(self) -> int:
        """Parameter words that pass at once, at most."""
        model, cols = self.decoder.description, self.config.cols
        tiles = -(-max(model.dim, model.query_width, model.kv_width) // cols)
        return max(tiles, self.part_tiles) * self.config.lane_groups

    @property
    def part_tiles(self) -> int:
        """Tile columns at most of a passing matrix that are requantized at once.

        Those before may still have their words, and gate and up have theirs at the same time.
        """
        words = min(MOST_TILES * self.config.lane_groups, self.config.param_depth // 4)
        return max(self.score_tiles, words // self.config.lane_groups)

    @property
    def score_tiles(self) -> int:
        """Tile columns whose scores are whole external words."""
        width = 2 * self.config.cols
        return self.config.mem_bytes // math.gcd(width, self.config.mem_bytes)

    @property
    def head_parts(self) -> list[tuple[int, int]]:
        """Tile columns (first, end) of a passing head, in groups of ``STAGES`` that look alike."""
        one = head(self.decoder)
        step, total = self.score_tiles, -(-one.weight.shape[1] // self.config.cols)
        column = stored_rows(one.stored, one.weight.shape[0]) * self.config.cols
        units = -(-total // step)
        width = max(1, min(self.stage.size // column, self.part_tiles) // step)
        while width > 1 and 0 < units % (STAGES * width) < STAGES:
            width -= 1
        whole = units - units % (STAGES * width)
        starts = [*range(0, whole, width)]
        starts += [whole + first for first, _ in even(units - whole, STAGES)]
        return list(pairwise([*(start * step for start in starts), total]))

    def keep(self, *rescales: Rescale, by_tile: bool = False) -> Words:
        """Keep the parameter words of some rescales, one behind the other."""
        words = np.concatenate([words_of(one, self.config, by_tile=by_tile) for one in rescales])
        if not self.passing:
            return self.memory.take_words(words)
        used = self.config.lanes * PARAM_BYTES
        packed = words[:, : -(-used // self.config.mem_bytes) * self.config.mem_bytes]
        return Words(self.image.add(packed.ravel()).addr, len(words), packed.shape[1])

    @functools.cached_property
    def scores(self) -> Piece:
        """External place of the scores of all tokens; what fills a chip is not needed any more."""
        size = self.logits_bytes
        return piece_of(0, size, self.config) if self.resident else self.image.reserve(size)

    @property
    def logits_bytes(self) -> int:
        """Bytes of the scores of all tokens, in whole external words."""
        words = -(-2 * self.decoder.description.vocabulary // self.config.mem_bytes)
        return words * self.config.mem_bytes

    @property
    def cache_strides(self) -> dict[str, int]:
        """Bytes of a token's ``keys`` and ``values`` of a layer, where these are no slots."""
        model, least = self.decoder.description, self.config.mem_bytes
        widths = {"keys": model.kv_heads * self.decoder.key_dim, "values": model.kv_width}
        return {name: -(-width // least) * least for name, width in widths.items()}

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
        parts = FFN_PARTS if self.resident else 1
        if self.passing:
            parts = -(-tiles // self.part_tiles)
        return even(tiles, parts)


def plan(
    decoder: Decoder, config: Config, cache: Cache, rows: int, memory_bytes: int, *, passing: bool
) -> Plan:
    """Return where everything of a decoder stays on a chip.

    What comes to it comes in pieces of at most ``memory_bytes``; ``passing`` is the plan's.

    Raises :class:`InputError` where it does not fit, or lacks a unit that it needs.
    """
    _check(decoder, config, cache, rows)
    memory, image = Memory(decoder.description.name, config), ImageBuilder(config)
    stage = Stage(memory, image)
    found = Plan(decoder, config, cache, rows, memory, image, stage, passing)
    taken = _stream_buffers(found)
    tables = _tables(decoder, config, rows)
    if found.resident:
        taken += sum(len(data) for data, _ in tables.values())
    stage.begin(stage_size(config, taken, memory_bytes))
    _keep_rows(found, tables, memory_bytes)
    _keep_layers(found)
    memory.check_words()
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


def _stream_buffers(found: Plan) -> int:
    """Take the buffers of what is computed, and return their bytes."""
    decoder, config, cache, rows = found.decoder, found.config, found.cache, found.rows
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
    }
    if any(block.kept_key is not None for block in blocks(decoder)):
        sizes["turned"] = 2 * sizes["key"]
    if model.gated:
        sizes["gate"] = rows * model.ffn
    if not config.fused:
        sizes["scores"] = 2 * shares
    if found.passing:
        sizes |= {name: cache.capacity * size for name, size in found.cache_strides.items()}
        most = max(256, found.most_words * config.param_lines * config.line_bytes)
        sizes |= {f"{WORDS}{index}": most for index in range(STAGES)}
        sizes |= {f"logits{half}": 2 * found.part_tiles * config.cols for half in range(2)}
    else:
        sizes["logits"] = found.logits_bytes
        if not found.resident:
            for layer in range(model.layers):
                for name, size in found.cache_strides.items():
                    sizes[f"{name}{layer}"] = cache.capacity * size
    for name, size in sizes.items():
        found.memory.buffer(name, size)
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
    if narrow:
        half = 1 << (decoder.kv_bits - 1)
        found.kept_table = memory.take_table(np.arange(-128, 128).clip(-half, half - 1))
    if found.passing:
        found.tables = [memory.take_table(layers[0].table)] * len(layers)
    else:
        found.tables = memory.take_tables([layer.table for layer in layers])
    words["embedding"] = found.keep(decoder.embedding.rescale)
    for index, layer in enumerate(layers):
        name = f"layers.{index}"
        _keep_words(found, name, layer)
        if found.passing:
            codes = layer.table.astype(np.int8).view(np.uint8)
            found.passing_tables.append(found.image.add(codes))
        for kind, one in layer.linears.items():
            _keep_matrix(found, f"{name}.{kind}", one)
        if found.resident:
            _keep_cache(found)
        if found.passing:
            sizes = {
                name: found.cache.capacity * size for name, size in found.cache_strides.items()
            }
            found.caches.append({n: found.image.reserve(size).addr for n, size in sizes.items()})
    words["final_norm"] = found.keep(final_norm(decoder).rescale)
    _keep_matrix(found, "head", head(decoder))


def _keep_matrix(found: Plan, name: str, one: Linear) -> None:
    memory, stage, config = found.memory, found.stage, found.config
    k, n = one.weight.shape
    words = found.keep(one.rescale, by_tile=True)
    flags = format_flags(one.stored, config, memory.name)
    if not found.resident:
        parts = cuts(one, range(k), found.image, stage.size, config, _bounds(found, name))
        found.matrices[name] = Matrix(k, n, [], parts, words, flags)
        return
    shares = []
    for row, end in pairwise([0, *_share_rows(found, name, part_rows(one.stored, config)), k]):
        held, rows = one, range(row, end)
        if in_pairs(one.stored, config):
            held = replace(one, weight=pairs(one.weight[row:end], config.rows), stored=None)
            rows = range(len(held.weight))
        slots = memory.take_slots(len(rows), n)
        shares.append(Share(row, end - row, slots))
        kept = flags if held is one else frozenset()
        for part in cuts(held, rows, found.image, stage.size, config):
            stage.add(preload(part, stage.piece(part.piece), slots, config, kept))
    found.matrices[name] = Matrix(k, n, shares, [], words, flags - kept)


def _bounds(found: Plan, name: str) -> Sequence[int]:
    """Return the tile columns at which a matrix that comes to the chip is cut in any case."""
    if not found.passing:
        return ()
    if name == "head":
        return [0, *(end for _, end in found.head_parts)]
    if name.endswith((".gate", ".up")):
        return [0, *(end for _, end in found.ffn_parts)]
    return ()


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
    words, model = found.words, found.decoder.description
    shared: dict[tuple[int, int, int], Words] = {}
    words[f"{name}.attention_norm"] = found.keep(layer.attention_norm.rescale)
    words[f"{name}.mlp_norm"] = found.keep(layer.mlp_norm.rescale)
    scores, context = layer.attention.scores, layer.context
    if layer.kept_key is not None:
        words[f"{name}.kept_key"] = found.keep(layer.kept_key.rescale)
    for first, _ in runs(scores, 1, model.heads):
        one = part(scores, first, 1)
        values = int(one.bias[0]), int(one.multiplier[0]), int(one.shift[0])
        if values not in shared:
            # Behind it, as a softmax that takes sums expects it.
            shared[values] = found.keep(one, layer.attention.heads[0].probabilities)
        words[f"{name}.scores.{first}"] = shared[values]
    for index in range(model.heads):
        columns = part(context, index * model.head_dim, model.head_dim)
        words[f"{name}.context.{index}"] = found.keep(columns, by_tile=True)


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
