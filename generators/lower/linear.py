"""Lowering of an encoder's linear layers: columns and rows are cut into parts."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise

import numpy as np

from celosia.arch.errors import InputError
from celosia.generators.graph.operations import Linear
from celosia.generators.graph.stored import stored_rows
from celosia.generators.lower.blocks import Part, cut, turn
from celosia.generators.lower.instructions import (
    View,
    fused,
    rescale_words,
    table,
    table_bytes,
)
from celosia.generators.lower.lowering import SPARE_WORDS, Lowering
from celosia.generators.lower.products import Product, Room
from celosia.generators.lower.residence import WeightHome
from celosia.generators.lower.rows import Rows
from celosia.generators.lower.weights import Held, tiles_held, weights_used
from celosia.generators.program.draft import Draft, Item, Node, Ref, Repeat
from celosia.generators.program.image import Bytes


class LinearLayer:
    """A linear layer of an encoder, with the norms and conversions that directly follow it.

    The layer is lowered to a list of items: groups of instructions and the loads that they need.
    Each item computes some columns of the layer's result. When a row of the result is complete, the
    norms and conversions (``behind``) process the row. Their requantization parameters are the last
    ``behind_words`` words of the parameter memory.

    If ``early`` is true, the previous operation computes the layer's input in chunks of rows. The
    layer's first products are cut into the same chunks, and begin before all rows of the input are
    complete.
    """

    def __init__(
        self,
        lowering: Lowering,
        label: str,
        op: Linear,
        behind: Rows,
        behind_words: int,
        *,
        early: bool,
    ):
        self.lowering, self.label, self.op = lowering, label, op
        self.behind, self.early = behind, early
        config, choices = lowering.config, lowering.choices
        self.source, self.target = (lowering.blocks[t.buffer] for t in (op.source, op.target))
        k, n = op.weight.shape
        # Every block of the source has separate weights and a separate product.
        self.k_parts = cut(k, self.source.column_marks)
        parts = op.parts
        self.correction = None if op.low_rank is None else parts[-1]
        """The product of a correction's thin tensor, which is there."""
        self.own = parts if op.low_rank is None else parts[1:-1]
        group = op.stored.group if op.stored else 0
        if group and any(first % group for first, _ in self.k_parts):
            raise InputError(
                f"Model {lowering.name} has weights in groups of {group}, but the "
                f"inputs of {label} lie in parts that begin within a group"
            )
        deepest = max(count for _, count in self.k_parts)
        longest = sum(stored_rows(part.stored, deepest) for part in self.own)
        longest += 0 if op.low_rank is None else op.low_rank.first.target.columns
        nt = -(-n // config.array.cols)
        lowering.memory.check_at_once(SPARE_WORDS + config.lane_groups)
        self.height = lowering.accumulators.height(op.source.rows)
        looped = choices.loop_layers
        self.used = weights_used(lowering.model, op, looped=looped) if choices.compact else None
        tiles = min(nt, lowering.accumulators.tiles(self.height))
        # The fewer the groups, the seldomer all rows of the stream come and go.
        self.whole = choices.whole and op.residual
        if self.whole:
            tiles = min(nt, config.accumulators.depth // self._acc_stride(self.height))
        words = config.vector.words - SPARE_WORDS - behind_words
        fixed = 0 if op.table is None else 256
        per_tile = config.lane_groups * config.word_bytes + longest * config.array.cols
        loaded = max(1, (choices.blob_bytes - fixed) // per_tile)
        tiles = min(tiles, words // config.lane_groups, loaded)
        self.groups = lowering.column_groups(n, tiles, op.target.buffer)

    def items(self) -> list[Item]:
        """Return the items of the whole layer: instructions, and the loads that precede them."""
        if self.lowering.choices.loop_parts:
            return self._loops()
        columns = [part for group in self.groups for part in group]
        # Chunks behind an inference's end cost something, which only norms are worth.
        worth = bool(self.behind.chunks) or not self.lowering.model.description.variable
        items: list[Item] = []
        for number, part in enumerate(columns):
            first, last = number == 0, number == len(columns) - 1
            chunks = (first and self.early) or (last and worth)
            rows = [row for group in self._rows(chunks=chunks) for row in group]
            blocks = self._blocks(f"{self.label}.{number}", part, first=first)
            if self.lowering.choices.spills and number % 2:
                # What the part before read last is still there.
                blocks.reverse()
            behind = self.behind if last else Rows()
            items += self._part(part, rows, blocks, behind)
            items[-1].body += self.lowering.leave(self.op.target, sum(part))
        return items

    def _part(
        self, part: Part, rows: list[Part], blocks: list["_Block"], behind: Rows
    ) -> list[Item]:
        """Return the items of some columns: one for each block of the source if sums have room."""
        config = self.lowering.config
        nt = -(-part[1] // config.array.cols)
        room = config.accumulators.depth
        occupied = sum(self._acc_stride(m) for _, m in rows) * nt
        if occupied > room or sum(m for _, m in rows) * nt > room // (1 if self.whole else 2):
            blocks = [_together(blocks)]
        # Sums stay in their rows from block to block.
        if len(blocks) > 1 and occupied > room // 2:
            self.lowering.accumulators.restart()
        sums = [
            (row, m, self.lowering.accumulators.take(self._acc_stride(m) * nt)) for row, m in rows
        ]
        for block in blocks[:-1]:
            for row, m, acc in sums:
                block.body += self._products(block, row, m, acc)
        end = blocks[-1]
        end.loads += behind.loads
        # Behind the products, as these must not wait in front of a queue that is full of drains.
        setup = [node for block in blocks for node in block.setup] + behind.params
        waiting = list(behind.chunks)
        products = [self._products(end, row, m, acc) for row, m, acc in sums]
        places = [range(acc, acc + self._acc_stride(m) * nt) for _, m, acc in sums]
        output = self.lowering.model.output
        waited = sum(part) == self.op.weight.shape[1] and self.op.target != output
        end.body += [*products[0], *setup]
        for index, (row, m, acc) in enumerate(sums):
            following = [node for nodes in products[index + 1 : index + 2] for node in nodes]
            # A product must not wait until the drains of the one before have room in their queue,
            # but an operation behind the last part waits for these drains.
            early = not waited and not {*places[index]}.intersection(*places[index + 1 : index + 2])
            end.body += following if early else []
            for drained, last in self._drains(acc, row, m, part):
                nodes: list[Node] = [drained]
                while waiting and waiting[0][0] <= last:
                    nodes += waiting.pop(0)[1]
                # A stream that is normalized itself does not continue unchanged.
                keep = self.lowering.model.description.placement == "pre"
                end.body += fused(nodes, keep=keep) if config.fused else nodes
            end.body += [] if early else following
        end.body += [node for _, nodes in waiting for node in nodes]
        return [*blocks]

    def _loops(self) -> list[Item]:
        """Return the parts of each block of the target as the iterations of a loop."""
        lowering, op = self.lowering, self.op
        items = []
        if op.table is not None:
            items.append(Item())
            blob = f"{self.label}.table"
            lowering.load(items[0], blob, table_bytes(op.table))
            items[0].body.append(table(Ref(blob)))

        def part(first: int, count: int) -> list[Node]:
            block = _together(self._blocks(self.label, (first, count), first=False))
            nt = -(-count // lowering.config.array.cols)
            nodes = [*block.loads, *block.body, *block.setup]

            def product(row: int, m: int) -> list[Node]:
                acc = lowering.accumulators.take(self._acc_stride(m) * nt)
                drains = [drained for drained, _ in self._drains(acc, row, m, (first, count))]
                return [*self._products(block, row, m, acc), *drains]

            for group in rows:
                nodes += lowering.each(group, product)
            return [*nodes, *(lowering.leave(op.target, first + count) if apart else [])]

        rows, body = self._rows(chunks=False), list[Node]()
        source_rows = lowering.row_groups(op.source.rows, self.height, (op.source.buffer, 0))
        piped = lowering.choices.piped and sum(map(len, source_rows)) == 1
        # Blocks of the target that leave one after another from one place.
        apart = self.target.turns == 1 and all(len(group) == 1 for group in self.groups)
        groups = [[part for group in self.groups for part in group]] if apart else self.groups
        for group in groups:
            made = self._piped(group, apart=apart) if piped else lowering.each(group, part)
            body += made
            body += [] if apart else lowering.leave(op.target, sum(group[-1]))
        return [*items, Item(body=body), *self.behind.items()]

    def _piped(self, parts: Sequence[Part], *, apart: bool) -> list[Node]:
        """Return a loop over parts; each block's loads run beside the products before it.

        A part has all rows. If the source is one block, an iteration has two parts. If ``apart`` is
        true, the target's columns leave with each part.
        """
        lowering, count = self.lowering, len(self.k_parts)
        width, rows = 1 if count > 1 else 2, [(0, self.op.source.rows)]
        items = list[Item]()
        for number, part in enumerate(parts):
            if not number % width:
                lowering.accumulators.restart()
            turns = number % width, width
            blocks = self._blocks(self.label, part, first=False, turns=turns)
            items += self._part(part, rows, blocks, Rows())
            assert len(items) == (number + 1) * count, "sums of all rows have room"
            items[-1].body += lowering.leave(self.op.target, sum(part)) if apart else []
        nodes = [[*after.loads, *item.body] for item, after in pairwise([*items, Item()])]
        step = width * count
        bodies = [list(chain(*nodes[at : at + step])) for at in range(0, len(nodes), step)]
        # The loads after the last part may differ from the loads after the others.
        looped = (sum(n == parts[0][1] for _, n in parts) - 1) // width
        loop = [Repeat(bodies[:looped])] if looped > 1 else chain(*bodies[:looped])
        return [*items[0].loads, *loop, *chain(*bodies[looped:])]

    def _rows(self, *, chunks: bool) -> list[list[Part]]:
        """Return the row parts of products, grouped by the blocks that contain them.

        In a loop they are those of the drains as well, so that iterations are alike.
        """
        op, most = self.op, self.height
        chunks = chunks and bool(self.lowering.choices.height)
        if chunks:
            most = min(most, self.lowering.choices.height)
        buffers = [(op.source.buffer, 0)]
        if self.lowering.choices.loop_parts or chunks:
            buffers.append((op.target.buffer, op.row))
        return self.lowering.row_groups(op.source.rows, most, *buffers)

    def _drains(self, acc: int, row: int, m: int, part: Part) -> list[tuple[Draft, int]]:
        """Return the drains of a product, one for each block of rows, and the row after each.

        Rows are those of the source, ends those of the target.
        """
        op, stride, first = self.op, self._acc_stride(m), self.op.row + row
        # Rows before the first one are loaded.
        anew, drains = op.row == 0 and not op.residual, []
        for begin, count in cut(m, [mark - first for mark in self.target.row_marks]):
            sums, rows = View(acc + begin, stride), (first + begin, count)
            drained = self.lowering.requantize(op, sums, rows, part, SPARE_WORDS, anew=anew)
            drains.append((drained, sum(rows)))
        return drains

    def _blocks(
        self, blob: str, part: Part, *, first: bool, turns: tuple[int, int] | None = None
    ) -> list["_Block"]:
        """Return the loads and preparations of some columns, for each block of the source.

        A correction's product belongs to the last one. If ``turns`` is given, the blocks of as many
        parts as its second number are loaded to two places in turn; its first number is the part's
        index.
        """
        lowering, config, op = self.lowering, self.lowering.config, self.op
        rescale = op.rescale.columns(*part)
        params = rescale_words(config, rescale, by_tile=True).ravel()
        blocks = []
        for index, (k, size) in enumerate(self.k_parts):
            name = f"{blob}.{k}" if len(self.k_parts) > 1 else blob
            if turns:
                count = len(self.k_parts)
                name = f"{blob}.{turn(turns[0] * count + index, turns[1] * count)}"
            block = _Block(loads=lowering.reload(op.source, k))
            pieces: list[Bytes] = []
            # Where blobs take turns, the first one is not there any more at the end.
            if index == (len(self.k_parts) - 1 if turns else 0):
                pieces.append(params)
                block.setup.append(
                    lowering.params_draft(name, len(params) // lowering.config.word_bytes)
                )
            if k == 0 and op.table is not None and first:
                block.setup.append(table(Ref(name, params.size)))
                pieces.append(table_bytes(op.table))
            rows = slice(k, k + size)
            wanted = [_Wanted(operation, rows, plane) for plane, operation in enumerate(self.own)]
            if self.correction is not None and k + size == op.weight.shape[0]:
                marks = lowering.blocks[self.correction.source.buffer].column_marks
                parts = cut(self.correction.source.columns, marks)
                wanted += [_Wanted(self.correction, slice(row, row + n)) for row, n in parts]
            if lowering.choices.home == WeightHome.SLOTS:
                self._load(block, f"{name}.weights", wanted, part)
                wanted = []
            self._load(block, name, wanted, part, pieces)
            blocks.append(block)
        return blocks

    def _held(self, wanted: "_Wanted", part: Part) -> tuple[Held, list[Held]]:
        """Return some columns of rows of weights, and the parts of them that are stored."""
        op, rows, columns = wanted.op, wanted.rows, slice(part[0], part[0] + part[1])
        lowering, whole = self.lowering, Held(rows, columns)
        used, ratio = self.used if op is self.op else None, lowering.choices.compact
        return whole, tiles_held(op, whole, lowering.config, used, ratio, self.height)

    def _load(
        self,
        block: "_Block",
        blob: str,
        wanted: Sequence["_Wanted"],
        part: Part,
        before: Sequence[Bytes] = (),
    ) -> None:
        """Load rows of weights after some bytes, each plane below the first separately."""
        lowering, begin, pieces = self.lowering, 0, [*before]

        def put(data: Bytes) -> Ref:
            pieces.append(data)
            return Ref(blob, begin + sum(piece.size for piece in pieces[:-1]))

        def add(draft: Draft) -> None:
            block.body.append(replace(draft, once=True))

        room = Room(lowering.memory, lowering.choices.home, put, add)
        for plane in range(len(self.own)):
            for each in (candidate for candidate in wanted if candidate.plane == plane):
                whole, held = self._held(each, part)
                height = self.height if lowering.choices.coded and each.op is self.op else 0
                products = room.place(each.op, whole, held, height, plane)
                block.products += products
                if not any(product.held.beats for product in products):
                    tiles = [part.tiles(lowering.config) for part in (whole, *held)]
                    lowering.left_out += tiles[0] - sum(tiles[1:])
            if pieces:
                piece = lowering.image.add(np.concatenate(pieces))
                once = lowering.keeps
                lowering.load_piece(block, blob, piece, once=once, place=begin, plane=plane)
                begin, pieces = begin + piece.size, []

    def _products(self, block: "_Block", row: int, m: int, acc: int) -> list[Node]:
        """Return the products of some rows with the weights of a block."""
        sums, first = View(acc, self._acc_stride(m)), self.op.row
        rows = self.lowering.run_rows(first + row, m, first + self.op.source.rows)
        return [*self.lowering.multiply(block.products, row, rows, sums)]

    def _acc_stride(self, m: int) -> int:
        """Return the rows between tile columns: an odd number if they may be read alternately."""
        return m | 1 if self.lowering.config.fused and self.behind.chunks else m


@dataclass
class _Block(Item):
    """The loads of some weights, and their products."""

    setup: list[Node] = field(default_factory=list)
    """Instructions that must precede the first drain."""
    products: list[Product] = field(default_factory=list)


@dataclass(frozen=True)
class _Wanted:
    """Rows of an operation's weights."""

    op: Linear
    rows: slice
    plane: int = 0
    """Planes of nested weights above these rows."""


def _together(blocks: list[_Block]) -> _Block:
    """Return blocks as one, all of whose loads come first."""
    merged = _Block()
    for block in blocks:
        merged.loads += block.loads
        merged.body += block.body
        merged.setup += block.setup
        merged.products += block.products
    return merged
