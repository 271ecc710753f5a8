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
        """Return the part of the product that computes the tile columns ``first`` to ``end`` - 1.

        A tile column is a range of ``cols`` columns, as wide as the array. In the result, tile
        columns are counted from ``first`` on.

        - If the weights are in weight slots (array storage), the result multiplies only by these
          tile columns.
        - If the weights are in another memory, a product is not divided. If its first tile column
          is in the range, the result is the whole product. Otherwise the result is None.
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
        """Return the instruction that multiplies rows of activations by this product's weights.

        The weights are a rectangle of a layer's weight matrix: a range of rows and a range of tile
        columns. A tile column is as wide as the array. The weights must be on the chip.

        - ``source``: the scratchpad address and row stride of the activations. The caller adds the
          rectangle's offset to the address. For example, if the rectangle begins at weight row 64,
          the address is that of activation column 64.
        - ``sums``: the accumulator row for tile column 0 of the layer, and the number of
          accumulator rows from one tile column to the next. The method adds the rectangle's offset.
          For example, if the rectangle begins at tile column 3, its sums begin 3 strides after
          ``sums.place``.
        - ``m``: the number of rows of activations.
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

    The weight matrix is divided into rectangles of rows and columns, which are stored separately.
    Each :class:`Product` describes the multiplication of activations by one rectangle, and has the
    address of the rectangle. The address is on the chip, or in external memory if each run loads
    the weights. A decoder's matrix also has the location of the layer's requantization parameters
    (:attr:`words`).
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

        The weights [input columns, output columns] are stored as rectangles. A :class:`Product`
        multiplies activations by one rectangle.

        - ``split`` selects the rows. It is the index of a range of weight rows in :attr:`splits`.
        - ``tiles`` (first, count) selects the columns. It is a range of tile columns, each as wide
          as the array. A rectangle is selected if its first tile column is in the range.
        - ``planes`` is the number of bit planes to multiply by, from the highest bits on. Only
          nested weights (INT8 weights that can be read with fewer bits) have several planes.

        If the weights are in the array's weight slots, ``tiles`` and ``planes`` have no effect. The
        result then has all products of the rows that ``split`` selects.
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

        A tile column is a range of columns as wide as the array. Tile columns are counted from 0.

        Usually the result is ``tile``. If the layer computes the queries of attention, its
        requantized result may have additional tile columns of zeros (:func:`query_starts`). For
        example, the layer computes the tile columns q0 and q1, and the requantized result is q0,
        zeros, q1. Then ``place(1)`` returns 2.
        """
        return self.places[tile] if self.places else tile

    def layer_tiles(self, first: int, count: int) -> tuple[int, int]:
        """Return the tile columns of a layer that are in a range of the layer's requantized result.

        A tile column is a range of columns as wide as the array. If the layer computes the queries
        of attention, its requantized result may have additional tile columns of zeros
        (:func:`query_starts`).

        For example, a layer computes the tile columns q0 and q1, and its requantized result is q0,
        zeros, q1:

        - ``layer_tiles(0, 3)`` is for q0, zeros and q1. It returns (0, 2): the layer's tile columns
          q0 and q1.
        - ``layer_tiles(1, 2)`` is for zeros and q1. It returns (1, 1): the layer's tile column q1.

        The argument ``first`` is the index of a tile column in the requantized result, and
        ``count`` is a number of tile columns there. The result is (index of a tile column in the
        layer, number of tile columns of the layer). Without additional zeros, the result is
        (``first``, ``count``).
        """
        if not self.places:
            return first, count
        begin = bisect_left(self.places, first)
        return begin, bisect_left(self.places, first + count) - begin

    def spaced_groups(self, first: int, count: int) -> Iterator[tuple[tuple[int, int], int, int]]:
        """Divide a range of a layer's tile columns into groups whose sums are equally spaced.

        A tile column is a range of columns as wide as the array. If the layer computes the queries
        of attention, some accumulators between its sums may be unused, for tile columns of zeros
        (:func:`query_starts`).

        For example, the accumulators contain q0, q1, unused, q2, unused, q3, where q0 to q3 are the
        layer's tile columns. ``spaced_groups(0, 4)`` yields two groups ((first, count), offset,
        distance):

        - ((0, 2), 0, 1): the group begins with q0 and has 2 tile columns. The distance from q0 to
          q1 is 1.
        - ((2, 2), 3, 2): the group begins with q2 and has 2 tile columns. The offset from q0 to q2
          is 3, and the distance from q2 to q3 is 2.

        The offset is from the first tile column of the whole range to the first tile column of the
        group. The distance is from each tile column of the group to the next one, or 1 if there is
        only one. The unit of the offset and of the distance is the accumulators of one tile column.
        If all sums are adjacent, the only group is ((``first``, ``count``), 0, 1).
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
        """Store a rectangle of a layer's weight matrix, and return the weights' addresses.

        The method writes the weights to a memory image, at addresses that it chooses. If
        :attr:`home` is the array's weight slots, the method also adds instructions that copy the
        weights to slots.

        - ``op``: the linear layer.
        - ``part``: the rectangle, as rows and columns of the weight matrix [k, n].
        - ``thin``: only for a layer with a low-rank correction, which is the product of two
          matrices, [k, rank] and [rank, n]. The method also stores some rows of the second
          matrix, in the columns of ``part``. ``thin`` has the ranges of these rows. The first
          matrix needs a separate call, with the first matrix as ``op``.

        The result is a pair of lists: for the weights, and for the second matrix of the correction.
        Each element is a :class:`Product`. It has the address of some of the stored weights, and
        the flags of the instruction that multiplies by these weights.
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
