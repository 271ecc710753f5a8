"""Matrix products of linear layers: their instructions, and the storage of their weights.

If the chip has room, weights stay in the scratchpad or in weight slots (array storage). Otherwise
they are in external memory.
"""

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from celosia.arch.config import Config
from celosia.arch.isa import Opcode
from celosia.generators.graph.operations import Linear
from celosia.generators.graph.stored import format_flags
from celosia.generators.lower.instructions import Count, View, preload, product
from celosia.generators.lower.key_slots import even_runs
from celosia.generators.lower.residence import Memory, WeightHome, Words
from celosia.generators.lower.staging import WEIGHTS
from celosia.generators.lower.weights import (
    Mask,
    WeightRectangle,
    cuts,
    slot_form,
    stored_parts,
    tiles_held,
)
from celosia.generators.program.draft import Draft, Ref
from celosia.generators.program.image import Bytes, Piece
from celosia.generators.program.layout import aligned, aligned_rows


@dataclass(frozen=True)
class Product:
    """Multiplication of activations by one stored part of a layer's weights.

    The class has the address of the weights, and the flags of the multiplying instruction.
    """

    op: Linear
    """The operation whose source is read: a layer, one of its planes, or a correction's layer."""
    held: WeightRectangle
    place: int | Ref | Piece
    """First slot, first byte in the scratchpad, or the external piece that comes there."""
    flags: frozenset[str]
    plane: int = 0
    """Planes of nested weights above this one."""
    k_tiles: int = 0
    """Slots of a tile column; 0 for weights that are not in slots."""
    stage: str = WEIGHTS
    """Kind of the buffers that streamed weights are loaded into."""

    def within(self, first: int, end: int, cols: int) -> "Product | None":
        """Return the product with only the tile columns ``first`` to ``end`` - 1, or None.

        A tile column has ``cols`` columns.

        - Weights in weight slots (array storage): the result has these tile columns.
        - Other weights: the result is the whole product if its first tile column is in the range,
          and otherwise None.
        """
        if not self.k_tiles:
            tile = self.held.tile
            if not first <= tile < end:
                return None
            return replace(self, held=replace(self.held, tile=tile - first)) if first else self
        assert isinstance(self.place, int)
        columns = slice(first * cols, min(self.held.n, end * cols))
        place = self.place + first * self.k_tiles
        return replace(self, held=replace(self.held, columns=columns), place=place)

    def draft(self, source: View, sums: View, m: Count, config: Config) -> Draft:
        """Return the instruction that multiplies activations by this product's weights on the chip.

        - ``source``: address and stride of the ``m`` rows of activations, from the column that the
          first weight row multiplies.
        - ``sums``: accumulator row of the layer's tile column 0, and distance between tile columns
          (as wide as the array).
        """
        held, place, zero = self.held, self.place, self.op.source.zero
        assert isinstance(sums.place, int)
        assert not isinstance(place, Piece)
        target = View(sums.place + held.tile * sums.stride, sums.stride)
        if held.beats:
            operands = source.operands("a") | target.operands("acc")
            operands |= {"m": m, "k": held.k, "n": held.n, "a_zero": zero}
            operands |= {"b_addr": place, "beats": held.beats}
            return Draft(Opcode.SPARSE, operands, plane=self.plane)
        other = place if isinstance(place, int) else View(place, aligned(held.n, config))
        made = product(source, other, target, m, held.k, held.n, *self.flags, a_zero=zero)
        return replace(made, plane=self.plane)


@dataclass(frozen=True)
class Matrix:
    """The stored weights of a linear layer, as a list of products with activations.

    Each :class:`Product` has the address of one rectangle of the weight matrix. The address is on
    the chip, or in external memory if each run loads the weights.
    """

    splits: list[list[Product]]
    """The products of its weights, of the rows that are multiplied at once."""
    words: list[Words] = field(default_factory=list)
    """Parameter words of the planes down to each, in DRAIN's order, if they do not come with it."""
    correction: list[Product] = field(default_factory=list)
    """The products that read the thin tensor of a correction."""
    places: Sequence[int] = ()
    """For each tile column, its number among the drained ones, if others are between."""

    def parts(self, split: int, planes: int, tiles: tuple[int, int]) -> list[Product]:
        """Return the products that multiply by some rows and columns of the layer's weights.

        - ``split``: index in :attr:`splits` of a range of weight rows.
        - ``planes``: number of bit planes of the weights (ranges of their bits), from the highest
          on.
        - ``tiles``: range (first, count) of tile columns (as wide as the array).

        If the weights are in weight slots, only ``split`` has an effect.
        """
        held, (first, count) = self.splits[split], tiles
        if held[:1] and held[0].k_tiles:
            return held

        def place(plane: int, tile: int) -> int:
            return bisect_left(held, (plane, tile), key=lambda part: (part.plane, part.held.tile))

        ranges = [(place(plane, first), place(plane, first + count)) for plane in range(planes)]
        return [product for begin, end in ranges for product in held[begin:end]]

    def columns(self, op: Linear, cols: int) -> int:
        """Return the number of columns in a requantized row of the layer ``op``.

        Usually this is the number of the layer's output columns. If the layer computes the queries
        of attention, its requantized row may have additional columns of zeros
        (:func:`query_starts`). The number includes these zeros.
        """
        return (self.places[-1] + 1) * cols if self.places else op.target.columns

    def place(self, tile: int) -> int:
        """Return the index of the layer's tile column ``tile`` in the layer's requantized result.

        A tile column is as wide as the array. The result may have further tile columns of zeros
        between attention queries. For example, it is q0, zeros, q1. Then ``place(1)`` returns 2.
        """
        return self.places[tile] if self.places else tile

    def layer_tiles(self, first: int, count: int) -> tuple[int, int]:
        """Return the tile columns (first, count) of a layer in a range of its requantized result.

        A tile column is as wide as the array. The requantized result may also have tile columns of
        zeros between attention queries. For example, it is q0, zeros, q1. Then ``layer_tiles(1,
        2)`` returns (1, 1).
        """
        if not self.places:
            return first, count
        begin = bisect_left(self.places, first)
        return begin, bisect_left(self.places, first + count) - begin

    def spaced_groups(self, first: int, count: int) -> Iterator[tuple[tuple[int, int], int, int]]:
        """Divide a range of a layer's tile columns into groups whose sums are equally spaced.

        The method yields ((first, count), offset from the range's first sums, distance between
        sums). The unit of both is the accumulators of one tile column. For example, q0, q1, unused,
        q2, unused, q3 give ((0, 2), 0, 1) and ((2, 2), 3, 2).
        """
        places = self.places[first : first + count]
        if not places:
            yield (first, count), 0, 1
        for begin, some, distance in even_runs(places):
            yield (first + begin, some), places[begin] - places[0], distance


@dataclass(frozen=True)
class Room:
    """A memory for weights, and the functions that store weights there.

    :attr:`home` selects the memory: the array's weight slots, the scratchpad or external memory.
    """

    memory: Memory
    home: WeightHome
    put: Callable[[Bytes], Ref | Piece]
    """Stores bytes, and returns their place."""
    add: Callable[[Draft], None]
    """Adds an instruction that copies weights to slots."""
    complete: Callable[[int], None] = lambda plane: None
    """Called after each plane's weights are stored."""
    size: int = sys.maxsize
    """Most bytes of a piece of weights that is loaded at once."""
    bounds: Sequence[int] = ()
    """Tile columns that no piece extends across (:func:`cuts`)."""
    height: int = 1
    """Rows of a product."""
    coded: bool = False
    """True if a matrix of INT8 is stored as a sparse one if this is faster."""
    used: Mask | None = None
    """False for each weight of the layer that is zero; None if all weights are stored."""
    ratio: int = 0
    """Fewest cycles for a program word that leaves out zeros (:func:`tiles_held`)."""

    def layer(
        self, op: Linear, part: WeightRectangle, thin: Iterable[slice] = ()
    ) -> tuple[list[Product], list[Product]]:
        """Store a rectangle of a layer's weights, and return the products that multiply by them.

        ``part`` is the rectangle. The result is a pair of lists: the products with the rectangle,
        and the products with the second matrix of a low-rank correction (empty without a
        correction). ``thin`` has the ranges of rows of this second matrix to store.
        """
        products, correction = list[Product](), list[Product]()
        planes = [replace(op, stored=plane.stored) for plane in op.planes] or [op]
        for plane, stored in enumerate(planes):
            products += self._part(stored, part, self.used, plane)
            # A correction follows the first bit plane of nested weights.
            if op.correction is not None and not plane:
                parts = [replace(part, rows=rows) for rows in thin]
                correction = [each for own in parts for each in self._part(op.correction, own)]
            self.complete(plane)
        return products, correction

    def _part(
        self, op: Linear, whole: WeightRectangle, used: Mask | None = None, plane: int = 0
    ) -> list[Product]:
        """Store a part of weights, with ``plane`` bit planes above them; return products."""
        config, products = self.memory.config, list[Product]()
        flags = format_flags(op.stored, config, self.memory.name)
        flags |= {"a_wide"} if op.source.wide else set()
        slots = self.home == WeightHome.SLOTS
        # The zero-skip unit takes rows of INT8.
        height = self.height if self.coded and not op.source.wide else 0
        for piece in [whole] if slots else cuts(op, whole, self.size, config, self.bounds):
            parts = tiles_held(op, piece, config, used, self.ratio, self.height)
            if slots:
                products += [self._in_slots(op, part, flags) for part in parts]
                continue
            stored = stored_parts(op, piece, parts, config, height)
            products += [Product(op, part, self.put(data), flags, plane) for part, data in stored]
        return products

    def _in_slots(self, op: Linear, part: WeightRectangle, flags: frozenset[str]) -> Product:
        """Add the instructions that copy a part of weights to slots, and return the product."""
        config, wide = self.memory.config, flags & {"a_wide"}
        slot_op, rows, kept, used = slot_form(op, part.rows, config, flags - wide)
        slots = self.memory.take_slots(rows.stop - rows.start, part.n)
        for held in cuts(slot_op, replace(part, rows=rows, tile=0), self.size, config):
            data = slot_op.data(held.rows, held.columns)
            above = (held.rows.start - rows.start) // config.array.rows
            slot = slots.first + held.tile * slots.k_tiles + above
            place = self.put(aligned_rows(data, config).ravel())
            assert isinstance(place, Ref)
            source = View(place, aligned(held.n, config))
            self.add(preload(source, held.k, held.n, slot, flags=kept))
        return Product(op, part, slots.first, used | wide, k_tiles=slots.k_tiles)
