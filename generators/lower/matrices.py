"""Storage of a decoder's weight matrices in weight slots or in external memory.

Weight slots are storage in the array. Identity matrices, which convert numbers to another scale or
width, stay in the scratchpad.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from celosia.arch.errors import InputError
from celosia.generators.graph.operations import Linear, Plane
from celosia.generators.graph.stored import part_rows
from celosia.generators.graph.tensors import Rescale
from celosia.generators.lower.key_slots import query_places, with_zero_columns
from celosia.generators.lower.plan import HIDDEN, QUERIES, Plan, kind
from celosia.generators.lower.products import Matrix, Product, Room
from celosia.generators.lower.residence import Words, weight_homes
from celosia.generators.lower.staging import STAGES, THIN
from celosia.generators.lower.weights import WeightRectangle, cuts
from celosia.generators.program.draft import Ref
from celosia.generators.program.image import Bytes, Piece
from celosia.generators.program.layout import aligned_rows


def keep_matrix(plan: Plan, op: Linear) -> None:
    """Store a linear layer's weights and parameters, and add their addresses to ``plan``.

    Weights stay in weight slots (storage in the array) if the array has more than two slots.
    Otherwise each run loads the weights. Raises :class:`InputError` if weights that are stored as
    bit planes would have to stay in slots.
    """
    low, (rescale, tiles), (k, n) = op.low_rank, _queries(plan, op), op.weight.shape
    words = [plan.keep(rescale, by_tile=True, for_sums=op.residual)]
    if op.planes:
        if plan.cuts.resident:
            raise InputError(
                f"Nested weights need weights that come from external memory, but weight_depth is "
                f"{plan.config.array.weight_depth}"
            )
        words = [_plane_words(plan, op, plane, words[0]) for plane in op.planes]
    splits, correction = list[list[Product]](), list[Product]()
    room = _room(plan, _bounds(plan, op))
    for row, end in pairwise([0, *(_split_rows(plan, op) if plan.cuts.resident else ()), k]):
        thin = [] if low is None or end < k else [slice(0, len(low.weight))]
        products, correction = room.layer(op, WeightRectangle(slice(row, end), slice(0, n)), thin)
        splits.append(products)
    if low is not None:
        thin_words = [plan.keep(low.first.rescale, by_tile=True)]
        rank = low.first.target.columns
        first, _ = _room(plan, ()).layer(low.first, WeightRectangle(slice(0, k), slice(0, rank)))
        first, correction = (
            [replace(each, stage=THIN) for each in products] for products in (first, correction)
        )
        plan.matrices[low.first.target.name] = Matrix([first], thin_words)
        places = [part.place for part in first + correction]
        for piece in (place for place in places if isinstance(place, Piece)):
            for index in range(STAGES):
                plan.memory.buffer(f"{THIN}{index}", piece.size)
    plan.matrices[op.target.name] = Matrix(splits, words, correction, places=tiles)


def keep_identity(plan: Plan, op: Linear) -> None:
    """Store the identity matrices of a conversion, and add their addresses to ``plan``.

    A product with an identity matrix copies numbers to accumulators, from which they are
    requantized. ``op`` is the conversion as a linear layer, made by
    :func:`celosia.generators.lower.plan.identity_of`. All layers share the matrices.
    """
    cols, size, columns = plan.config.array.cols, len(op.weight), op.target.columns
    products = []
    for first in range(0, columns, size):
        part = WeightRectangle(
            slice(first, end := min(first + size, columns)), slice(first, end), first // cols
        )
        name = f"identity{part.n}"
        if name not in plan.memory.buffers:
            data = aligned_rows(op.weight[: part.n, : part.n].astype(np.uint8), plan.config)
            plan.stage.load(plan.stage.opening, name, data.ravel())
        products.append(Product(op, part, Ref(name), frozenset()))
    rescale, tiles = _queries(plan, op)
    words = [plan.keep(rescale, by_tile=True)]
    plan.matrices[op.target.name] = Matrix([products], words, places=tiles)


def _queries(plan: Plan, op: Linear) -> tuple[Rescale, list[int]]:
    """Return the parameters of a layer, and the places of its tile columns among those drained."""
    if kind(op.target) not in QUERIES:
        return op.rescale, []
    cols = plan.config.array.cols
    tiles = query_places(plan.decoder, plan.data_placement.key_heads, cols, spaced=plan.cuts.spaced)
    return with_zero_columns(op.rescale, tiles, cols) if tiles else op.rescale, tiles


def _plane_words(plan: Plan, op: Linear, plane: Plane, words: Words) -> Words:
    """Return the parameter words of the planes down to one: those of all if they are alike."""
    if np.array_equal(plane.bias, op.rescale.bias):
        return words
    return plan.keep(replace(op.rescale, bias=plane.bias), by_tile=True)


def _room(plan: Plan, bounds: Sequence[int]) -> Room:
    """Return the memory for weights. Streamed weights are always cut at some tile columns."""
    stage, home = plan.stage, weight_homes([], plan.config)[0]

    def bring(data: Bytes) -> Ref:
        return stage.piece(stage.image.add(data))

    put = bring if plan.cuts.resident else plan.image.add
    return Room(
        plan.memory, home, put, stage.add, size=stage.size, bounds=bounds, coded=plan.sparse
    )


def _bounds(plan: Plan, op: Linear) -> Sequence[int]:
    """Return the tile columns at which all planes of a streamed matrix are cut."""
    if plan.cache.recompute and kind(op.target) in ("key", "value"):
        return [0, *(end for _, end in plan.recomputed_parts(op))]
    if op is plan.head and not plan.cuts.resident:
        # Its products are those of the parts that come.
        upper = replace(op, stored=op.planes[0].stored) if op.planes else op
        fixed = [0, *map(sum, plan.head_parts)] if plan.data_placement.passing else ()
        whole = WeightRectangle(slice(0, len(op.weight)), slice(0, op.target.columns))
        parts = cuts(upper, whole, plan.stage.size, plan.config, fixed)
        tiles = -(-op.target.columns // plan.config.array.cols)
        return [*sorted({part.tile for part in parts}), tiles]
    if not plan.data_placement.passing:
        return ()
    return [0, *(end for _, end in plan.cuts.ffn_parts)] if kind(op.target) in HIDDEN else ()


def _split_rows(plan: Plan, op: Linear) -> list[int]:
    """Return the rows at which a matrix is cut whose operand comes part by part.

    A part has as many whole tiles, and groups, as are complete with a part of the operand.
    """
    rows, model, ready = part_rows(op.stored, plan.config), plan.decoder.description, list[int]()
    if op.residual and op.source.name in plan.contexts:
        ready = [end * model.group * model.head_dim for _, end in plan.cuts.key_parts[:-1]]
    elif op.residual:
        ready = [end * plan.config.array.cols for _, end in plan.cuts.ffn_parts[:-1]]
    return sorted({column // rows * rows for column in ready} - {0})
