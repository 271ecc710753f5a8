"""Puts the parts of a decoder where they stay: into slots, words, tables and buffers."""

import itertools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.isa import RING_SLOTS
from celosia.generators.graph.network import Home
from celosia.generators.graph.operations import Attention, Convert, Embedding, Linear, Norm, Op
from celosia.generators.graph.quantized import Decoder
from celosia.generators.graph.tensors import rescale_of
from celosia.generators.lower.checks import check_decoder
from celosia.generators.lower.instructions import table_bytes
from celosia.generators.lower.matrices import keep_matrix
from celosia.generators.lower.moves import load
from celosia.generators.lower.plan import (
    INPUTS,
    PAIRS,
    Plan,
    Table,
    context_of,
    makes_input,
    part,
    runs,
)
from celosia.generators.lower.residence import Cache, Kept, Memory, Register, Words
from celosia.generators.lower.staging import STAGES, WORDS, Stage, constants, stage_size
from celosia.generators.program.allocate import across, half_bytes
from celosia.generators.program.draft import Ref
from celosia.generators.program.image import LONGEST_ROW, ImageBuilder
from celosia.generators.program.layout import aligned, element_rows, rows_image
from celosia.generators.quantize.options import NARROW_BITS
from celosia.sim.rotary import rotary_places


def plan(
    decoder: Decoder,
    config: Config,
    cache: Cache,
    rows: int,
    memory_bytes: int,
    *,
    passing: bool,
    sparse: bool,
    rows_stay: bool,
    texts: int = 1,
    key_heads: int = 1,
) -> Plan:
    """Return where everything of a decoder stays on a chip.

    What comes to it comes in pieces of at most ``memory_bytes``; ``passing``, ``sparse``,
    ``rows_stay``, ``texts`` and ``key_heads`` are the plan's. Where either weights or rows stay,
    and not both, what comes once is in the stage's image.

    Raises :class:`InputError` where it does not fit, or lacks a unit that it needs.
    """
    check_decoder(decoder, config, cache, rows)
    memory, image = Memory(decoder.description.name, config), ImageBuilder(config)
    resident = config.weight_depth > RING_SLOTS
    stage = Stage(memory, image if rows_stay == resident else ImageBuilder(config))
    kinds = passing, sparse, rows_stay, texts, key_heads
    found = Plan(decoder, config, cache, rows, memory, image, stage, *kinds)
    taken = _stream_buffers(found)
    tables = _tables(found)
    if found.rows_stay:
        taken += sum(len(data) for data, _ in tables.values())
    stage.begin(stage_size(config, taken, memory_bytes))
    _keep_rows(found, tables, memory_bytes)
    _clear_queries(found)
    _keep_layers(found)
    memory.check_words()
    constants(stage)
    found.setup += stage.take()
    if found.resident:
        memory.check_slots()
    return found


def _stream_buffers(found: Plan) -> int:
    """Take the buffers of what is computed, and return their bytes."""
    decoder, config, cache, rows = found.decoder, found.config, found.cache, found.rows
    model, longest = decoder.description, decoder.description.source_positions
    heads = max(found.texts * model.heads, 2 * rows)
    probabilities = heads * aligned(cache.capacity, config)
    probabilities = max(probabilities, max(model.heads, 2 * longest) * aligned(longest, config))
    rows = max(rows, found.source_rows, found.texts)
    sizes = {
        "x": 2 * rows * model.dim,
        "h": rows * max(op.target.stride for op in decoder.ops if makes_input(op)),
        "query": rows * found.query_stride(decoder.attentions[0]),
        "probabilities": probabilities,
        "context": rows * decoder.attentions[0].target.stride,
        "hidden": rows * model.ffn,
    }
    if model.placement == "post":
        sizes["normed"] = sizes["x"]
    keys = rows * model.kv_heads * decoder.key_dim
    if found.resident:
        sizes |= {"keys": keys, "values": rows * model.kv_width}
        if decoder.kv_bits < NARROW_BITS:
            # The last of an odd number of heads is read with what lies behind it.
            sizes |= {"keys": keys + decoder.key_dim}
            sizes |= {"values": rows * model.kv_width + model.head_dim}
    if cache.recompute:
        sizes |= {"keys": cache.capacity * model.kv_heads * decoder.key_dim}
        sizes |= {"values": cache.capacity * model.kv_width}
    if model.gated:
        sizes["active"] = rows * model.ffn
    if not config.fused:
        sizes["scores"] = 2 * probabilities
    if found.passing:
        sizes |= {name: cache.capacity * size for name, size in found.cache_strides.items()}
        most = max(256, found.most_words * config.param_lines * config.line_bytes)
        sizes |= {f"{WORDS}{index}": most for index in range(STAGES)}
        sizes |= {f"logits{half}": 2 * found.part_tiles * config.cols for half in range(2)}
    else:
        sizes["logits"] = found.logits_bytes
        if cache.recompute:
            sizes |= _inputs(found)
        elif not found.resident:
            for op in _attentions(found):
                for kept in _kept(found, op):
                    for name, size in found.cache_strides.items():
                        sizes[f"{name}{kept.name}"] = kept.capacity * size
    linears = [op for graph in found.graphs for op in graph.ops if isinstance(op, Linear)]
    thins = [op.low_rank.first.target for op in linears if op.low_rank is not None]
    most = max(rows, longest, cache.capacity * cache.recompute)
    sizes |= {thin.buffer: most * thin.columns for thin in thins}
    for name, size in sizes.items():
        found.memory.buffer(name, size)
    return sum(sizes.values())


def _inputs(found: Plan) -> dict[str, int]:
    """Return the bytes of the buffers of all layers' inputs.

    Raises :class:`InputError` where these and one layer's keys and values are no fewer than those
    of all layers would be in their place.
    """
    model = found.decoder.description
    kept = model.kv_heads * found.decoder.key_dim + model.kv_width
    anew, before = model.layers * model.dim + kept, model.layers * kept
    if not found.resident and anew >= before:
        raise InputError(
            f"Keys and values that are made anew save no scratchpad of model {model.name}: inputs "
            f"of {model.layers} layers and keys and values of one are {anew} bytes a token, keys "
            f"and values of all are {before}"
        )
    size = found.cache.capacity * found.cache_strides[INPUTS]
    places = [_inputs_place(found, layer) for layer in range(found.decoder.description.layers)]
    return {place.buffer: place.offset + size for place in places}


def _inputs_place(found: Plan, layer: int) -> Ref:
    """Return where a layer's inputs are kept, or come to.

    Those of programs that may be loops are one behind the other if a bank has room.
    """
    layers, size = (
        found.decoder.description.layers,
        found.cache.capacity * found.cache_strides[INPUTS],
    )
    if found.passing:
        return Ref(INPUTS)
    if found.resident and layers * size <= found.config.bank_bytes:
        return Ref(INPUTS, layer * size)
    return Ref(f"{INPUTS}{layer}")


def _attentions(found: Plan) -> list[Attention]:
    return [op for graph in found.graphs for op in graph.ops if isinstance(op, Attention)]


def _keep_rows(found: Plan, tables: Mapping[str, tuple[bytes, int]], most: int) -> None:
    """Keep the vocabulary and the tables of positions, or lay them out row by row.

    They come in pieces of at most so many bytes.
    """
    for name, (data, stride) in tables.items():
        rows, held = len(data) // stride, np.frombuffer(data, np.uint8)
        if not found.rows_stay:
            here = max(found.rows, found.lookups, found.texts)
            if name == "places" and found.rotates_keys:
                here = found.cache.capacity
            place = found.memory.buffer(name, here * stride)
            found.rows_tables[name] = Table(place, stride, rows, found.image.add(held).addr)
            continue
        place = found.memory.buffer(name, rows * stride)
        found.rows_tables[name] = Table(place, stride, rows, 0)
        step = min(rows, LONGEST_ROW // stride, most // stride) * stride
        half = half_bytes(rows, stride, found.config)
        if across(rows, stride, found.config) is None:
            half = 0
        for first in [*range(0, half, step), *range(half, len(data), step)]:
            end = half if first < half < first + step else first + step
            piece = found.stage.image.add(held[first:end])
            found.setup.append(load(Ref(name, first), piece.addr, piece.m, piece.row_bytes))


def _clear_queries(found: Plan) -> None:
    """Begin with the zeros ahead of queries that are drained without them."""
    if found.spaced:
        size = found.texts * found.query_stride(found.decoder.attentions[0])
        piece = found.stage.image.add(np.zeros(size, np.uint8))
        found.setup.append(load(Ref("query"), piece.addr, piece.m, piece.row_bytes))


def _tables(planned: Plan) -> dict[str, tuple[bytes, int]]:
    """Return the rows, and their stride, of the vocabulary and of what belongs to each place.

    There are places for a chunk that begins at the last one, and for whole runs of lookups.
    """
    decoder, config, rows = planned.decoder, planned.config, planned.rows
    found = {"words": rows_image(element_rows(decoder.embedding.words, "i1"), config)}
    places = decoder.embedding.positions
    if decoder.rotary is not None:
        width = planned.query_starts[-1]
        reach = rotary_places(width, decoder.key_dim, config.lanes, config.cols).max() + 1
        places = np.tile(decoder.rotary, (1, -(-int(reach) // decoder.key_dim)))[:, :reach]
    assert places is not None
    behind = np.zeros((rows, places.shape[1]), np.int64)
    found["places"] = rows_image(element_rows(np.concatenate((places, behind)), "<i2"), config)
    if decoder.source is not None:
        places = decoder.source.embedding.positions
        assert places is not None
        behind = np.zeros((planned.source_rows - len(places), places.shape[1]), np.int64)
        held = element_rows(np.concatenate((places, behind)), "<i2")
        found["source.places"] = rows_image(held, config)
    return found


def _keep_layers(found: Plan) -> None:
    """Keep weights, cache, words and tables: a layer's together, alike in every layer.

    So programs may have the layers as iterations of a loop. The words of the last norm lie where
    those of another layer's first norm would.
    """
    decoder = found.decoder
    _keep_tables(found)
    if found.cache.recompute:
        found.words[INPUTS] = found.keep(rescale_of(0, 1.0))
    if found.texts > 1 and found.rows_stay and decoder.rotary is not None:
        found.words[PAIRS] = found.keep(rescale_of(0, 1.0))
        found.memory.buffer(PAIRS, found.texts * found.rows_tables["places"].stride)
    for graph in found.graphs:
        if graph is not decoder or found.cache.recompute:
            # All layers have the same places, which no layer is to lie around.
            for op in graph.ops:
                if isinstance(op, Attention):
                    _keep_cache(found, op)
        for op in graph.ops:
            _keep(found, op)


def _keep_tables(found: Plan) -> None:
    """Keep the activations' tables, or one of them where they come for each layer."""
    linears = [op for graph in found.graphs for op in graph.ops if isinstance(op, Linear)]
    active = {op.target.name: op.table for op in linears if op.table is not None}
    tables = [*active.values()][: 1 if found.passing else None]
    slots = found.memory.take_tables(tables)
    found.tables = dict(zip(active, slots * (len(active) // len(slots)), strict=True))


def _keep(found: Plan, op: Op) -> None:
    """Keep what an operation needs."""
    match op:
        case Embedding() | Norm() | Convert():
            found.words[op.target.name] = found.keep(op.rescale)
        case Linear():
            if found.passing and op.table is not None:
                found.passing_tables[op.target.name] = found.image.add(table_bytes(op.table))
            keep_matrix(found, op)
        case Attention():
            _keep_words(found, op)
            _keep_cache(found, op)


def _keep_words(found: Plan, op: Attention) -> None:
    """Keep the words of an attention's scores and context."""
    words, model = found.words, found.decoder.description
    shared: dict[tuple[int, int, int], Words] = {}
    for first, _ in runs(op.scores, model.heads):
        one = part(op.scores, first, 1)
        values = int(one.bias[0]), int(one.multiplier[0]), int(one.shift[0])
        if values not in shared:
            # Behind it, as a softmax that takes sums expects it.
            shared[values] = found.keep(one, op.heads[0].probabilities, early=True)
        words[f"{op.prefix}.scores.{first}"] = shared[values]
    context = context_of(op)
    for index in range(model.heads):
        columns = part(context, index * model.head_dim, model.head_dim)
        words[f"{op.target.name}.{index}"] = found.keep(columns, by_tile=True)


def _keep_cache(found: Plan, op: Attention) -> None:
    """Keep slots, or external memory, for the keys and values of an attention, once."""
    if op.key.name not in found.kept:
        found.kept[op.key.name] = [_kept_cache(found, one) for one in _kept(found, op)]


def _kept_cache(found: Plan, one: Kept) -> Kept:
    """Return keys and values with slots, or external memory, that they are kept in."""
    model, config = found.decoder.description, found.config
    memory, heads = found.memory, range(model.kv_heads)
    if found.passing:
        sizes = {name: one.capacity * size for name, size in found.cache_strides.items()}
        outside = {name: found.image.reserve(size).addr for name, size in sizes.items()}
        one = replace(one, outside=outside)
    others = [kept for each in found.kept.values() for kept in each]
    same = next((kept for kept in others if kept.name == one.name), None)
    if same is not None:
        return same
    if found.resident and one.inputs is not None and others:
        return replace(one, keys=others[0].keys, values=others[0].values)
    if found.resident:
        starts = range(0, model.head_dim, config.cols)
        each = 1 + found.paired(one)  # tiles of a slot
        both = 1 + (each > 1 and found.decoder.key_bits < NARROW_BITS)
        both = max(both, found.key_heads)
        keys = [memory.take_slots(found.decoder.key_dim, one.capacity) for _ in heads[::both]]
        tiles = [
            memory.take_slots(one.capacity, min(config.cols, model.head_dim - column))
            for _, column in [*itertools.product(heads, starts)][::each]
        ]
        count = len(starts)
        values = tuple(
            tuple(tiles[(head * count + tile) // each] for tile in range(count)) for head in heads
        )
        return replace(one, keys=tuple(keys[head // both] for head in heads), values=values)
    return one


def _kept(found: Plan, op: Attention) -> list[Kept]:
    """Return which keys and values an attention reads for each text, before they have places.

    Those of a source's encoder are needed by their own layer alone, so all layers have the same.
    """
    longest, layer = found.decoder.description.source_positions, op.prefix.split(".")[1]
    match op.key.home:
        case Home.CACHE:
            cache = found.cache
            inputs = _inputs_place(found, int(layer)) if cache.recompute else None
            return [
                Kept(name, cache.capacity, Register.COUNT, inputs=inputs, text=text)
                for text, name in enumerate([layer, f"{layer}_other"][: found.texts])
            ]
        case Home.SOURCE:
            return [Kept(f"{layer}_source", longest, Register.SOURCE, grows=False)]
    return [Kept("_encoder", longest, Register.SOURCE, grows=False)]
