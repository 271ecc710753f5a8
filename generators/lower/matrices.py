"""Weights of a decoder: in slots for good, or in external memory in the parts that come."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from celosia.arch.errors import InputError
from celosia.generators.graph.operations import Linear, Plane
from celosia.generators.graph.stored import part_rows
from celosia.generators.lower.key_slots import query_places, spread
from celosia.generators.lower.plan import HIDDEN, QUERIES, Matrix, Plan, kind
from celosia.generators.lower.products import Product, kept_in_slots, product_flags
from celosia.generators.lower.residence import Words
from celosia.generators.lower.staging import STAGES, THIN
from celosia.generators.lower.weights import Held, cuts, stored_parts
from celosia.generators.program.draft import Ref
from celosia.generators.program.image import Bytes, Piece


def keep_matrix(found: Plan, one: Linear) -> None:
    """Keep a product's weights, those of its correction, and its parameter words."""
    low, bounds, rescale, tiles = one.low_rank, _bounds(found, one), one.rescale, list[int]()
    if kind(one.target) in QUERIES:
        tiles = query_places(found.decoder, found.key_heads, found.config.cols, spaced=found.spaced)
        rescale = spread(rescale, tiles, found.config.cols) if tiles else rescale
    words = [found.keep(rescale, by_tile=True, early=one.residual)]
    upper = replace(one, stored=one.planes[0].stored) if one.planes else one
    splits = _kept(found, upper, bounds)
    if one is found.head and not found.resident:
        # Its products are those of the parts that come.
        starts = sorted({part.held.tile for part in splits[0]})
        bounds = [*starts, -(-one.target.columns // found.config.cols)]
    if one.planes:
        if found.resident:
            raise InputError(
                f"Nested weights need weights that come from external memory, but weight_depth is "
                f"{found.config.weight_depth}"
            )
        words = [_plane_words(found, one, plane, words[0]) for plane in one.planes]
        for number, plane in enumerate(one.planes[1:], 1):
            (below,) = _kept(found, replace(one, stored=plane.stored), bounds)
            splits[0] += [replace(part, plane=number) for part in below]
    correction: list[Product] = []
    if low is not None:
        thin = [found.keep(low.first.rescale, by_tile=True)]
        made = Matrix(_kept(found, low.first, ()), thin, stage=THIN)
        found.matrices[low.first.target.name] = made
        (correction,) = _kept(found, one.parts[-1], bounds)
        places = [part.place for part in made.splits[0] + correction]
        for piece in (place for place in places if isinstance(place, Piece)):
            for index in range(STAGES):
                found.memory.buffer(f"{THIN}{index}", piece.size)
    found.matrices[one.target.name] = Matrix(splits, words, correction, places=tiles)


def _plane_words(found: Plan, one: Linear, plane: Plane, words: Words) -> Words:
    """Return the parameter words of the planes down to one: those of all where they are alike."""
    if np.array_equal(plane.bias, one.rescale.bias):
        return words
    return found.keep(replace(one.rescale, bias=plane.bias), by_tile=True)


def _kept(found: Plan, one: Linear, bounds: Sequence[int]) -> list[list[Product]]:
    """Return the products with an operation's weights, which are kept, split by split.

    Those that come are cut at some tile columns in any case.
    """
    memory, stage, config = found.memory, found.stage, found.config
    k, n = one.weight.shape
    if not found.resident:
        flags = product_flags(one, config, memory.name)
        # The zero-skip unit takes rows of INT8.
        height = int(found.sparse and not one.source.wide)
        parts = [
            Product(one, part, found.image.add(data), flags)
            for held in cuts(one, slice(0, k), stage.size, config, bounds)
            for part, data in stored_parts(one, held, [held], config, height)
        ]
        return [parts]

    def bring(data: Bytes) -> Ref:
        return stage.piece(stage.image.add(data))

    def cut(taken: Linear, part: Held) -> Iterator[Held]:
        return cuts(taken, part.rows, stage.size, config)

    ends = pairwise([0, *_split_rows(found, one), k])
    splits = [Held(slice(row, end), slice(0, n)) for row, end in ends]
    return [[kept_in_slots(one, split, memory, cut, bring, stage.add)] for split in splits]


def _bounds(found: Plan, op: Linear) -> Sequence[int]:
    """Return the tile columns at which a matrix that comes to the chip is cut in any case."""
    if found.cache.recompute and kind(op.target) in ("key", "value"):
        return [0, *(end for _, end in found.made_parts(op))]
    if not found.passing:
        return ()
    if op is found.head:
        return [0, *(end for _, end in found.head_parts)]
    return [0, *(end for _, end in found.ffn_parts)] if kind(op.target) in HIDDEN else ()


def _split_rows(found: Plan, op: Linear) -> list[int]:
    """Return the rows at which a matrix is cut whose operand comes part by part.

    A part has whole tiles, and groups, as many as are there when the operand's part is.
    """
    rows, model, ready = part_rows(op.stored, found.config), found.decoder.description, list[int]()
    if op.residual and op.source.name in found.contexts:
        ready = [end * model.group * model.head_dim for _, end in found.key_parts[:-1]]
    elif op.residual:
        ready = [end * found.config.cols for _, end in found.ffn_parts[:-1]]
    return sorted({column // rows * rows for column in ready} - {0})
