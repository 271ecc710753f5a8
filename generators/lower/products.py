"""Matrix products of linear layers, with weights in weight slots or in a memory.

A weight slot is on-chip storage in the array for one tile of weights. Encoders and decoders divide
weights into parts in different ways, but the instructions that multiply by a part are the same.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from celosia.arch.config import Config
from celosia.arch.isa import Opcode
from celosia.generators.graph.operations import Linear
from celosia.generators.graph.stored import format_flags
from celosia.generators.lower.instructions import Count, View, preload, product
from celosia.generators.lower.residence import Memory, WeightHome
from celosia.generators.lower.staging import WEIGHTS
from celosia.generators.lower.weights import Held, slotted, stored_parts
from celosia.generators.program.draft import Draft, Ref
from celosia.generators.program.image import Bytes, Piece
from celosia.generators.program.layout import aligned, aligned_rows


@dataclass(frozen=True)
class Product:
    """The product of rows of activations and a part of a layer's weights.

    It has the address of this part, and the flags of the instruction that multiplies by it.
    """

    op: Linear
    """The operation whose source is read: a layer, one of its planes, or a correction's layer."""
    held: Held
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
        """Return the product's part in tile columns ``first`` to ``end`` - 1, or None if empty.

        Weights in slots are split between tile columns. Weights in memory are never split: all of
        them are in the part if their first tile column is in the range, otherwise none.
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
        """Return the instruction that multiplies ``m`` rows of ``source`` by the product's weights.

        ``source`` and ``sums`` are views (address and stride). The address of ``sums`` is the
        accumulator row of the layer's first tile column, its stride the distance between adjacent
        tile columns (rows). The instruction writes only the tile columns of this product.
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


def product_flags(op: Linear, config: Config, model: str) -> frozenset[str]:
    """Return the names of the instruction flags with which a layer's products are computed.

    The flags depend on the format of the layer's weights, and on whether its source has INT16
    values. Raises :class:`InputError` if the configuration lacks the weight format.
    """
    wide = frozenset({"a_wide"} if op.source.wide else ())
    return format_flags(op.stored, config, model) | wide


@dataclass(frozen=True)
class Room:
    """The memory for weights, and the functions that store weights there.

    The memory is the array's weight slots, the scratchpad or external memory.
    """

    memory: Memory
    home: WeightHome
    put: Callable[[Bytes], Ref | Piece]
    """Stores bytes, and returns their place."""
    add: Callable[[Draft], None]
    """Adds an instruction that copies weights to slots."""
    cut: Callable[[Linear, Held], Iterable[Held]] = lambda op, part: [part]
    """Divides a part of weights into pieces that are copied to slots one by one."""

    def place(
        self, op: Linear, whole: Held, parts: Sequence[Held], height: int = 0, plane: int = 0
    ) -> list[Product]:
        """Store a weight matrix, and return a list of one product for each stored part.

        ``whole`` is the matrix, ``parts`` are its parts, and ``height`` is the number of activation
        rows in a product. If the zero-skip unit multiplies these rows faster than the array does,
        ``whole`` is stored as one sparse matrix, which is the only part. Weights are always dense
        in weight slots (array storage for one weight tile each), for INT16 activations, and if
        ``height`` is 0.

        Nested weights (readable with fewer bits) are stored as bit planes, each by a separate call.
        ``plane`` is the number of planes with higher bits. For other weights, ``plane`` is 0.
        """
        config = self.memory.config
        flags = product_flags(op, config, self.memory.name)
        if self.home == WeightHome.SLOTS:
            return [self._in_slots(op, part, flags) for part in parts]
        # The zero-skip unit takes rows of INT8.
        height = 0 if op.source.wide else height
        stored = stored_parts(op, whole, parts, config, height)
        return [Product(op, part, self.put(data), flags, plane) for part, data in stored]

    def _in_slots(self, op: Linear, part: Held, flags: frozenset[str]) -> Product:
        """Add the instructions that copy a part of weights to slots, and return the product."""
        config, wide = self.memory.config, flags & {"a_wide"}
        slot_op, rows, kept, used = slotted(op, part.rows, config, flags - wide)
        slots = self.memory.take_slots(rows.stop - rows.start, part.n)
        for held in self.cut(slot_op, replace(part, rows=rows, tile=0)):
            data = slot_op.data(held.rows, held.columns)
            above = (held.rows.start - rows.start) // config.array.rows
            slot = slots.first + held.tile * slots.k_tiles + above
            place = self.put(aligned_rows(data, config).ravel())
            assert isinstance(place, Ref)
            source = View(place, aligned(held.n, config))
            self.add(preload(source, held.k, held.n, slot, flags=kept))
        return Product(op, part, slots.first, used | wide, k_tiles=slots.k_tiles)
