"""Assignment of a memory and addresses to each constant and each tensor of a decoder."""

import itertools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.generators.graph.network import Home
from celosia.generators.graph.operations import (
    Attention,
    Convert,
    Embedding,
    Gate,
    Linear,
    Norm,
    Op,
)
from celosia.generators.graph.quantized import Decoder
from celosia.generators.graph.tensors import Tensor, rescale_of
from celosia.generators.lower.blocks import Blocks, by_rows, row_rescales
from celosia.generators.lower.choices import DataPlacement
from celosia.generators.lower.cuts import cuts_of
from celosia.generators.lower.instructions import table_bytes
from celosia.generators.lower.matrices import keep_identity, keep_matrix
from celosia.generators.lower.plan import (
    INPUTS,
    PAIRS,
    Plan,
    Table,
    context_of,
    identity_of,
    part,
    runs,
)
from celosia.generators.lower.residence import Cache, Kept, Memory, Register, Words
from celosia.generators.lower.staging import STAGES, WORDS, Stage, constants, stage_size
from celosia.generators.program.allocate import half_bytes, middle_banks_address
from celosia.generators.program.draft import Ref, flatten
from celosia.generators.program.image import LONGEST_ROW, ImageBuilder
from celosia.generators.program.layout import aligned, element_rows, rows_image
from celosia.generators.quantize.options import NARROW_BITS
from celosia.sim.rotary import rotary_places


def plan(
    decoder: Decoder,
    config: Config,
    cache: Cache,
    placement: DataPlacement,
    memory_bytes: int,
    *,
    sparse: bool,
    texts: int = 1,
) -> Plan:
    """Return a decoder's :class:`Plan`, which has the addresses of weights, caches and parameters.

    The plan includes the instructions that load the data that stay on the chip.

    - ``placement``: selects these data.
    - ``memory_bytes``: most bytes of one load.
    - ``sparse``: true to allow sparse weight matrices.

    Raises :class:`InputError` if a memory is too small.
    """
    memory, image = Memory(decoder.description.name, config), ImageBuilder(config)
    cuts = cuts_of(decoder, config, placement, texts)
    # If only weights or only embeddings stay, setup programs have a separate image.
    stage = Stage(memory, image if placement.rows_stay == cuts.resident else ImageBuilder(config))
    planned = Plan(decoder, config, placement, cuts, cache, memory, image, stage, sparse, texts)
    occupied = _stream_buffers(planned)
    tables = _tables(planned)
    if planned.data_placement.rows_stay:
        occupied += sum(len(data) for data, _ in tables.values())
    stage.begin(stage_size(config, occupied, memory_bytes))
    _keep_rows(planned, tables, memory_bytes)
    _clear_queries(planned)
    _keep_turns(planned, tables)
    # Weights are cut into many pieces if little of the scratchpad is left.
    memory.check_bytes()
    _keep_layers(planned)
    memory.check_words()
    memory.check_bytes()
    constants(stage)
    planned.setup += flatten(stage.take())
    memory.check_slots()
    return planned


def _stream_buffers(planned: Plan) -> int:
    """Allocate the buffers of computed tensors, and return their bytes."""
    decoder, config, cache = planned.decoder, planned.config, planned.cache
    rows = planned.data_placement.rows
    model, longest = decoder.description, decoder.description.source_positions
    heads = max(planned.texts * model.heads, 2 * rows)
    probabilities = heads * aligned(cache.capacity, config)
    probabilities = max(probabilities, max(model.heads, 2 * longest) * aligned(longest, config))
    rows = max(rows, planned.cuts.source_rows, planned.texts)
    planned.blocks = _blocks(planned, rows)
    sizes = {
        "query": rows * planned.query_stride(decoder.attentions[0]),
        "probabilities": probabilities,
    }
    keys = rows * model.kv_heads * decoder.key_dim
    if planned.cuts.resident:
        sizes |= {"keys": keys, "values": rows * model.kv_width}
        if decoder.kv_bits < NARROW_BITS:
            # The last of an odd number of heads is read together with the bytes after it.
            sizes |= {"keys": keys + decoder.key_dim}
            sizes |= {"values": rows * model.kv_width + model.head_dim}
    if cache.recompute:
        sizes |= {"keys": cache.capacity * model.kv_heads * decoder.key_dim}
        sizes |= {"values": cache.capacity * model.kv_width}
    if not config.fused:
        sizes["scores"] = 2 * probabilities
    if planned.data_placement.passing:
        sizes |= {name: cache.capacity * size for name, size in planned.cache_strides.items()}
        most = max(256, planned.cuts.most_words * config.word_bytes)
        sizes |= {f"{WORDS}{index}": most for index in range(STAGES)}
        sizes |= {
            f"logits{half}": 2 * planned.cuts.part_tiles * config.array.cols for half in range(2)
        }
    else:
        sizes["logits"] = planned.logits_bytes
        if cache.recompute:
            sizes |= _inputs(planned)
        elif not planned.cuts.resident:
            for op in decoder.all_ops:
                for kept in _kept(planned, op) if isinstance(op, Attention) else ():
                    for name, size in planned.cache_strides.items():
                        sizes[f"{name}{kept.name}"] = kept.capacity * size
    others = (size for blocks in planned.blocks.values() for size in blocks.sizes().items())
    for name, size in (*sizes.items(), *others):
        planned.memory.buffer(name, size)
    return sum(planned.memory.buffers.values())


def _blocks(planned: Plan, rows: int) -> dict[str, Blocks]:
    """Return the place of each tensor of ``rows`` rows that a linear layer or a norm reads.

    Inputs of products follow each other in one buffer. Each tensor is one block. The thin tensor of
    a correction may have a row for each token whose keys and values are computed anew.
    """
    ops = planned.decoder.all_ops
    normed = (op for op in ops if isinstance(op, Norm | Convert) and op.source.home is Home.STREAM)
    inputs = {op.target.name for op in normed}
    moved: dict[str, Tensor] = {}
    for op in ops:
        if not isinstance(op, Linear | Norm | Convert | Gate):
            continue
        tensor, low = op.source, op.low_rank if isinstance(op, Linear) else None
        buffer = "h" if tensor.name in inputs else tensor.buffer
        if tensor.home is Home.STREAM:
            buffer = "x" if tensor.buffer == "stream" else "normed"
        moved[tensor.buffer] = replace(tensor, buffer=buffer, rows=rows)
        if low is not None:
            thin = low.first.target
            most = max(rows, planned.decoder.description.source_positions)
            most = max(most, planned.cache.capacity * planned.cache.recompute)
            moved[thin.buffer] = replace(thin, rows=most)
    return {name: by_rows(each, each.bytes, planned.config) for name, each in moved.items()}


def _inputs(planned: Plan) -> dict[str, int]:
    """Return the bytes of the buffers of all layers' inputs.

    Raises :class:`InputError` if these and one layer's keys and values are not fewer than the keys
    and values of all layers.
    """
    model = planned.decoder.description
    kept = model.kv_heads * planned.decoder.key_dim + model.kv_width
    anew, before = model.layers * model.dim + kept, model.layers * kept
    if not planned.cuts.resident and anew >= before:
        raise InputError(
            f"Keys and values that are made anew save no scratchpad of model {model.name}: inputs "
            f"of {model.layers} layers and keys and values of one are {anew} bytes a token, keys "
            f"and values of all are {before}"
        )
    size = planned.cache.capacity * planned.cache_strides[INPUTS]
    places = [_inputs_place(planned, layer) for layer in range(planned.decoder.description.layers)]
    return {place.buffer: place.offset + size for place in places}


def _inputs_place(planned: Plan, layer: int) -> Ref:
    """Return the place where a layer's inputs are kept, or loaded to.

    The inputs of programs that may be loops are contiguous if a bank has room.
    """
    layers, size = (
        planned.decoder.description.layers,
        planned.cache.capacity * planned.cache_strides[INPUTS],
    )
    if planned.data_placement.passing:
        return Ref(INPUTS)
    if planned.cuts.resident and layers * size <= planned.config.bank_bytes:
        return Ref(INPUTS, layer * size)
    return Ref(f"{INPUTS}{layer}")


def _keep_rows(planned: Plan, tables: Mapping[str, tuple[bytes, int]], most: int) -> None:
    """Keep the vocabulary and the tables of positions, or store them row by row.

    They are loaded in pieces of at most ``most`` bytes.
    """
    for name, (data, stride) in tables.items():
        rows, held = len(data) // stride, np.frombuffer(data, np.uint8)
        if not planned.data_placement.rows_stay:
            here = max(planned.data_placement.rows, planned.cuts.lookups, planned.texts)
            if name == "places" and planned.rotates_keys:
                here = planned.cache.capacity
            place = planned.memory.buffer(name, here * stride)
            planned.rows_tables[name] = Table(place, stride, rows, planned.image.add(held).addr)
            continue
        place = planned.memory.buffer(name, rows * stride)
        planned.rows_tables[name] = Table(place, stride, rows, 0)
        step = min(rows, LONGEST_ROW // stride, most // stride) * stride
        half = half_bytes(rows, stride, planned.config)
        if middle_banks_address(rows, stride, planned.config) is None:
            half = 0
        for first in [*range(0, half, step), *range(half, len(data), step)]:
            end = half if first < half < first + step else first + step
            planned.stage.load(planned.stage.opening, name, held[first:end], first)


def _clear_queries(planned: Plan) -> None:
    """Clear the zeros before queries that are drained without them."""
    if planned.cuts.spaced:
        size = planned.texts * planned.query_stride(planned.decoder.attentions[0])
        planned.stage.load(planned.stage.opening, "query", np.zeros(size, np.uint8))


def _keep_turns(planned: Plan, tables: Mapping[str, tuple[bytes, int]]) -> None:
    """Keep room for each layer's rotations, and those of layers without: the first place's."""
    if not planned.turning:
        return
    data, stride = tables["places"]
    rows = max(planned.data_placement.rows, planned.texts)
    planned.memory.buffer(PAIRS, planned.decoder.description.layers * rows * stride)
    for first, rotates, count in planned.turning:
        if not rotates:
            held = np.tile(np.frombuffer(data[:stride], np.uint8), count * rows)
            planned.stage.load(planned.stage.opening, PAIRS, held, planned.turned(first).offset)


def _tables(planned: Plan) -> dict[str, tuple[bytes, int]]:
    """Return the rows, and their stride, of the vocabulary and of each place's data.

    There are places for a chunk that begins at the last one, and for whole runs of lookups.
    """
    decoder, config, rows = planned.decoder, planned.config, planned.data_placement.rows
    tables = {"words": rows_image(element_rows(decoder.embedding.words, "i1"), config)}
    places = decoder.embedding.positions
    if decoder.rotary is not None:
        width = planned.cuts.query_starts[-1]
        reach = (
            rotary_places(width, decoder.key_dim, config.vector.lanes, config.array.cols).max() + 1
        )
        places = np.tile(decoder.rotary, (1, -(-int(reach) // decoder.key_dim)))[:, :reach]
    assert places is not None
    behind = np.zeros((rows, places.shape[1]), np.int64)
    tables["places"] = rows_image(element_rows(np.concatenate((places, behind)), "<i2"), config)
    if decoder.source is not None:
        places = decoder.source.embedding.positions
        assert places is not None
        behind = np.zeros((planned.cuts.source_rows - len(places), places.shape[1]), np.int64)
        held = element_rows(np.concatenate((places, behind)), "<i2")
        tables["source.places"] = rows_image(held, config)
        if decoder.description.source_words:
            own = element_rows(decoder.source.embedding.words, "i1")
            tables["source.words"] = rows_image(own, config)
    return tables


def _keep_layers(planned: Plan) -> None:
    """Keep weights, cache, words and tables: a layer's together, alike in every layer.

    So programs may have the layers as iterations of a loop. The words of the last norm are at the
    place of another layer's first norm.
    """
    decoder = planned.decoder
    _keep_tables(planned)
    if planned.cache.recompute:
        planned.words[INPUTS] = planned.keep(rescale_of(0, 1.0))
    turns = planned.texts > 1 or bool(planned.turning)
    if turns and planned.data_placement.rows_stay and decoder.rotary is not None:
        planned.words[PAIRS] = planned.keep(rescale_of(0, 1.0))
        planned.memory.buffer(PAIRS, planned.texts * planned.rows_tables["places"].stride)
    for graph in decoder.graphs:
        if graph is not decoder or planned.cache.recompute:
            # All layers have the same places, which no layer is to lie around.
            for op in graph.ops:
                if isinstance(op, Attention):
                    _keep_cache(planned, op)
        for op in graph.ops:
            _keep(planned, op)


def _keep_tables(planned: Plan) -> None:
    """Keep the activations' tables, or one of them if they are loaded for each layer."""
    linears = [op for op in planned.decoder.all_ops if isinstance(op, Linear)]
    active = {op.target.name: op.table for op in linears if op.table is not None}
    tables = [*active.values()][: 1 if planned.data_placement.passing else None]
    slots = planned.memory.take_tables(tables)
    planned.tables = dict(zip(active, slots * (len(active) // len(slots)), strict=True))


def _keep(planned: Plan, op: Op) -> None:
    """Keep an operation's data."""
    match op:
        case Convert() if op.product:
            head_dim = planned.decoder.description.head_dim
            keep_identity(planned, identity_of(op, head_dim, planned.config))
        case Embedding():
            planned.words[op.target.name] = planned.keep(op.rescale)
        case Norm() | Convert():
            planned.words[op.target.name] = planned.keep(*row_rescales(op, planned.blocks))
        case Linear():
            if planned.data_placement.passing and op.table is not None:
                planned.passing_tables[op.target.name] = planned.image.add(table_bytes(op.table))
            keep_matrix(planned, op)
        case Attention():
            _keep_words(planned, op)
            _keep_cache(planned, op)


def _keep_words(planned: Plan, op: Attention) -> None:
    """Keep the words of an attention's scores and context."""
    words, model = planned.words, planned.decoder.description
    shared: dict[tuple[int, int, int], Words] = {}
    for first, count in runs(op.scores, model.heads):
        rescale = part(op.scores, first, 1)
        values = int(rescale.bias[0]), int(rescale.multiplier[0]), int(rescale.shift[0])
        if values not in shared:
            # Behind it, as a softmax that takes sums expects it.
            shared[values] = planned.keep(rescale, op.heads[0].probabilities, for_sums=True)
        for head in range(first, first + count):
            words[f"{op.prefix}.scores.{head}"] = shared[values]
    context = context_of(op)
    for index in range(model.heads):
        columns = part(context, index * model.head_dim, model.head_dim)
        words[f"{op.target.name}.{index}"] = planned.keep(columns, by_tile=True)


def _keep_cache(planned: Plan, op: Attention) -> None:
    """Keep slots, or external memory, for the keys and values of an attention, once."""
    if op.key.name not in planned.kept:
        planned.kept[op.key.name] = [_kept_cache(planned, kept) for kept in _kept(planned, op)]


def _kept_cache(planned: Plan, cached: Kept) -> Kept:
    """Return keys and values with slots, or external memory, to keep them."""
    model, config = planned.decoder.description, planned.config
    memory, heads = planned.memory, range(model.kv_heads)
    if planned.data_placement.passing:
        sizes = {name: cached.capacity * size for name, size in planned.cache_strides.items()}
        outside = {name: planned.image.reserve(size).addr for name, size in sizes.items()}
        cached = replace(cached, outside=outside)
    others = [kept for each in planned.kept.values() for kept in each]
    same = next((kept for kept in others if kept.name == cached.name), None)
    if same is not None:
        return same
    if planned.cuts.resident and cached.inputs is not None and others:
        return replace(cached, keys=others[0].keys, values=others[0].values)
    if planned.cuts.resident:
        starts = range(0, model.head_dim, config.array.cols)
        each = 1 + planned.paired(cached)  # tiles of a slot
        both = 1 + (each > 1 and planned.decoder.key_bits < NARROW_BITS)
        both = max(both, planned.data_placement.key_heads)
        keys = [memory.take_slots(planned.decoder.key_dim, cached.capacity) for _ in heads[::both]]
        tiles = [
            memory.take_slots(cached.capacity, min(config.array.cols, model.head_dim - column))
            for _, column in [*itertools.product(heads, starts)][::each]
        ]
        count = len(starts)
        values = tuple(
            tuple(tiles[(head * count + tile) // each] for tile in range(count)) for head in heads
        )
        return replace(cached, keys=tuple(keys[head // both] for head in heads), values=values)
    return cached


def _kept(planned: Plan, op: Attention) -> list[Kept]:
    """Return the keys and values that an attention reads for each text, without places yet.

    Those of a source's encoder are needed by their layer alone, so all layers share them.
    """
    longest, layer = planned.decoder.description.source_positions, op.prefix.split(".")[1]
    match op.key.home:
        case Home.CACHE:
            cache = planned.cache
            inputs = _inputs_place(planned, int(layer)) if cache.recompute else None
            return [
                Kept(name, cache.capacity, Register.COUNT, inputs=inputs, text=text)
                for text, name in enumerate([layer, f"{layer}_other"][: planned.texts])
            ]
        case Home.SOURCE:
            return [Kept(f"{layer}_source", longest, Register.SOURCE, grows=False)]
    return [Kept("_encoder", longest, Register.SOURCE, grows=False)]
