"""Instructions of an encoder's linear layers.

A layer's result is computed in parts: some rows and columns each. The sums of a part fit the
accumulators, and its weights fit a scratchpad buffer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise

from celosia.arch.errors import InputError
from celosia.generators.graph.operations import Linear
from celosia.generators.graph.stored import Stored, stored_rows
from celosia.generators.lower.blocks import Part, cut, turn
from celosia.generators.lower.instructions import (
    View,
    rescale_words,
    table,
    table_bytes,
)
from celosia.generators.lower.lowering import SPARE_WORDS, Lowering
from celosia.generators.lower.products import Matrix, Product, Room
from celosia.generators.lower.residence import WeightHome
from celosia.generators.lower.staging import Blob, Rows
from celosia.generators.lower.weights import WeightRectangle, weights_used
from celosia.generators.program.draft import Draft, Item, Node, Ref, Repeat


class LinearLayer:
    """Makes the instructions of an encoder's linear layer, and of the norms directly after it.

    - ``behind``: instructions of the norms and conversions.
    - ``behind_words``: number of their requantization parameter words.
    - ``early``: true if the layer's input is computed in chunks of rows.
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
        group = op.stored.group if op.stored else 0
        if group and any(first % group for first, _ in self.k_parts):
            raise InputError(
                f"Model {lowering.name} has weights in groups of {group}, but the "
                f"inputs of {label} lie in parts that begin within a group"
            )
        deepest = max(count for _, count in self.k_parts)
        forms: list[Stored | None] = [plane.stored for plane in op.planes]
        longest = sum(stored_rows(form, deepest) for form in forms or [op.stored])
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
        """Return the instructions of the layer as a list of items.

        An item is a group of instructions, with the loads of their data from external memory.
        """
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
            items[-1].body += self.lowering.store_block(self.op.target, sum(part))
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
            blocks = _together(blocks)
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
            end.body += self.lowering.drains_with_norms(self._drains(acc, row, m, part), waiting)
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
            lowering.stage.load(items[0], blob, table_bytes(op.table))
            items[0].body.append(table(Ref(blob)))

        def part(first: int, count: int) -> list[Node]:
            (block,) = _together(self._blocks(self.label, (first, count), first=False))
            nt = -(-count // lowering.config.array.cols)
            nodes = [*block.loads, *block.body, *block.setup]

            def product(row: int, m: int) -> list[Node]:
                acc = lowering.accumulators.take(self._acc_stride(m) * nt)
                drains = self._drains(acc, row, m, (first, count))
                return [*self._products(block, row, m, acc), *drains]

            for group in rows:
                nodes += lowering.lower_parts(group, product)
            return [*nodes, *(lowering.store_block(op.target, first + count) if apart else [])]

        rows, body = self._rows(chunks=False), list[Node]()
        source_rows = lowering.row_groups(op.source.rows, self.height, (op.source.buffer, 0))
        piped = lowering.choices.piped and sum(map(len, source_rows)) == 1
        # Blocks of the target that leave one after another from one place.
        apart = self.target.turns == 1 and all(len(group) == 1 for group in self.groups)
        groups = [[part for group in self.groups for part in group]] if apart else self.groups
        for group in groups:
            made = self._piped(group, apart=apart) if piped else lowering.lower_parts(group, part)
            body += made
            body += [] if apart else lowering.store_block(op.target, sum(group[-1]))
        nodes = self.behind.nodes
        return [*items, Item(body=body), *([Item(self.behind.loads, nodes)] if nodes else [])]

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
            items[-1].body += lowering.store_block(self.op.target, sum(part)) if apart else []
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

    def _drains(self, acc: int, row: int, m: int, part: Part) -> list[Draft]:
        """Return the drains of a product's rows, which are those of the source."""
        sums, rows = View(acc, self._acc_stride(m)), (self.op.row + row, m)
        return self.lowering.requantize(self.op, sums, rows, part, SPARE_WORDS)

    def _blocks(
        self, blob: str, part: Part, *, first: bool, turns: tuple[int, int] | None = None
    ) -> list["_Block"]:
        """Return the loads and preparations of some columns, for each block of the source.

        A correction's product belongs to the last one. If ``turns`` is given, the blocks of as many
        parts as its second number are loaded to two places in turn; its first number is the part's
        index.
        """
        lowering, config, op = self.lowering, self.lowering.config, self.op
        params = rescale_words(config, op.rescale.columns(*part), by_tile=True)
        matrix = Matrix([])
        blocks, tiles = list[_Block](), -(-part[1] // config.array.cols)
        for index, (k, size) in enumerate(self.k_parts):
            name = f"{blob}.{k}" if len(self.k_parts) > 1 else blob
            if turns:
                count = len(self.k_parts)
                name = f"{blob}.{turn(turns[0] * count + index, turns[1] * count)}"
            loads = lowering.reload(op.source, k)
            block = _Block(loads=loads, matrix=matrix, splits=[index], tiles=tiles)
            data = Blob(lowering.stage, block, name)
            # Where blobs take turns, the first one is not there any more at the end.
            if index == (len(self.k_parts) - 1 if turns else 0):
                place = data.put(params.ravel())
                block.setup.append(lowering.bring(place, len(params), SPARE_WORDS))
            if k == 0 and op.table is not None and first:
                block.setup.append(table(data.put(table_bytes(op.table))))
            apart = lowering.choices.home == WeightHome.SLOTS
            weights = Blob(lowering.stage, block, f"{name}.weights") if apart else data
            products, correction = self._stored(block, weights, slice(k, k + size), part)
            matrix.splits.append(products)
            matrix.correction.extend(correction)
            data.load()
            blocks.append(block)
        return blocks

    def _stored(
        self, block: "_Block", data: Blob, rows: slice, part: Part
    ) -> tuple[list[Product], list[Product]]:
        """Store some rows and columns of the weights, and return products as ``Room.layer``."""
        lowering, config, thin = self.lowering, self.lowering.config, list[slice]()
        if self.op.low_rank is not None and rows.stop == len(self.op.weight):
            source = self.op.low_rank.first.target
            marks = lowering.blocks[source.buffer].column_marks
            thin = [slice(row, row + n) for row, n in cut(source.columns, marks)]
        whole = WeightRectangle(rows, slice(part[0], sum(part)))

        def add(draft: Draft) -> None:
            block.body.append(replace(draft, once=True))

        choices = lowering.choices
        room = Room(
            lowering.memory,
            choices.home,
            data.put,
            add,
            data.load,
            height=self.height,
            coded=choices.coded,
            used=self.used,
            ratio=choices.compact,
        )
        products, correction = room.layer(self.op, whole, thin)
        tiles = max(len(self.op.planes), 1) * whole.tiles(config)
        lowering.left_out += tiles - sum(product.held.tiles(config) for product in products)
        return products, correction

    def _products(self, block: "_Block", row: int, m: int, acc: int) -> list[Node]:
        """Return the products of some rows with the weights of a block."""
        sums, part, tiles = View(acc, self._acc_stride(m)), (row, m), (0, block.tiles)
        return [*self.lowering.products(self.op, block.matrix, block.splits, part, sums, tiles)]

    def _acc_stride(self, m: int) -> int:
        """Return the rows between tile columns: an odd number if they may be read alternately."""
        return m | 1 if self.lowering.config.fused and self.behind.chunks else m


@dataclass(kw_only=True)
class _Block(Item):
    """The loads of some weights, and their products."""

    matrix: Matrix
    splits: list[int]
    """Ranges of the matrix's rows."""
    tiles: int
    """Tile columns of the matrix."""
    setup: list[Node] = field(default_factory=list)
    """Instructions that must precede the first drain."""


def _together(blocks: list[_Block]) -> list[_Block]:
    """Return blocks as one, all of whose loads come first."""
    first, *others = blocks
    for block in others:
        first.loads += block.loads
        first.body += block.body
        first.setup += block.setup
        first.splits += block.splits
    return [first]
