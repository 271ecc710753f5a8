"""Weights of a decoder: in slots for good, or in external memory in the parts that come."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from arch.errors import InputError
from generators.graph import Linear, Plane
from generators.lower.instructions import View, preload
from generators.lower.plan import HIDDEN, Matrix, Plan, kind
from generators.lower.residence import Words
from generators.lower.staging import STAGES, THIN
from generators.lower.weights import Held, cuts, slotted, stored_parts
from generators.program.image import Piece
from generators.stored import format_flags, part_rows


def keep_matrix(found: Plan, one: Linear) -> None:
    """Keep a product's weights, those of its correction, and its parameter words."""
    low, bounds = one.low_rank, _bounds(found, one)
    words = found.keep(one.rescale, by_tile=True, early=one.residual)
    upper = replace(one, stored=one.planes[0].stored) if one.planes else one
    matrix = _kept(found, upper, words, bounds)
    if one is found.head and not found.resident:
        # Its products are those of the parts that come.
        starts = sorted({held.tile for held, _ in matrix.cuts})
        bounds = [*starts, -(-matrix.n // found.config.cols)]
    if one.planes:
        if found.resident:
            raise InputError(
                f"Nested weights need weights that come from external memory, but weight_depth is "
                f"{found.config.weight_depth}"
            )
        places = [_plane_words(found, one, plane, words) for plane in one.planes]
        below = tuple(
            _kept(found, replace(one, stored=plane.stored), place, bounds)
            for plane, place in zip(one.planes[1:], places[1:], strict=True)
        )
        matrix = replace(matrix, words=places[0], below=below)
    if low is not None:
        rescale = low.first.rescale
        made = _kept(found, low.first, found.keep(rescale, by_tile=True), ())
        taken = Linear(low.first.target, one.target, low.weight, one.rescale)
        found.matrices[low.first.target.name] = _thin(found, made)
        correction = _thin(found, _kept(found, taken, words, bounds))
        matrix = replace(matrix, correction=correction)
    found.matrices[one.target.name] = matrix


def _plane_words(found: Plan, one: Linear, plane: Plane, words: Words) -> Words:
    """Return the parameter words of the planes down to one: those of all where they are alike."""
    if np.array_equal(plane.bias, one.rescale.bias):
        return words
    return found.keep(replace(one.rescale, bias=plane.bias), by_tile=True)


def _thin(found: Plan, matrix: Matrix) -> Matrix:
    """Return a matrix whose parts come to buffers of their own, beside those of large ones."""
    size = max((piece.size for _, piece in matrix.cuts), default=0)
    if size:
        for index in range(STAGES):
            found.memory.buffer(f"{THIN}{index}", size)
    return replace(matrix, stage=THIN)


def _kept(found: Plan, one: Linear, words: Words, bounds: Sequence[int]) -> Matrix:
    """Return a product's weights where they are kept, cut at some tile columns in any case."""
    memory, stage, config = found.memory, found.stage, found.config
    k, n = one.weight.shape
    flags = format_flags(one.stored, config, memory.name)
    wide = frozenset({"a_wide"} if one.source.wide else ())
    # The zero-skip unit takes rows of INT8.
    height = int(found.sparse and not found.resident and not one.source.wide)

    def pieces(op: Linear, rows: slice, bounds: Sequence[int] = ()) -> list[tuple[Held, Piece]]:
        return [
            (part, found.image.add(data))
            for held in cuts(op, rows, stage.size, config, bounds)
            for part, data in stored_parts(op, held, [held], config, height)
        ]

    if not found.resident:
        return Matrix(k, n, [], pieces(one, slice(0, k), bounds), words, flags | wide)
    splits = []
    for row, end in pairwise([0, *_split_rows(found, one), k]):
        taken, rows, kept, used = slotted(one, slice(row, end), config, flags)
        slots = memory.take_slots(rows.stop - rows.start, n)
        splits.append((row, slots))
        for held, piece in pieces(taken, rows):
            tile = held.tile * slots.k_tiles + (held.rows.start - rows.start) // config.rows
            source = View(stage.piece(piece), held.n)
            stage.add(preload(source, held.k, held.n, slots.first + tile, flags=kept))
    return Matrix(k, n, splits, [], words, used | wide)


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
