"""Lowering of linear layers: parts of columns, blocks of the source, rows, one drain each."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arch.errors import InputError
from arch.isa import DEFINITIONS, Opcode
from arch.sparse import HEADER_BEATS, LEAST_K, beat_bytes
from generators.graph import Ints, Linear
from generators.lower.blocks import Part, cut
from generators.lower.lowering import SPARE_WORDS, Lowering, Operands
from generators.lower.rows import Rows
from generators.program.draft import Draft, Given, Item, Node, Ref, Written
from generators.program.image import Bytes
from generators.program.layout import param_words
from generators.stored import format_flags, stored_data, stored_rows
from hdl.sparse.sparse import sparse_cycles
from sim.sparse import encode


def lower_linear(
    lowering: Lowering, label: str, op: Linear, behind: Rows, behind_words: int, *, early: bool
) -> list[Item]:
    """Return a linear layer as items, each with the weights of some columns, and what is behind it.

    ``behind`` works on rows of the target as soon as they are complete; its parameters take the
    last ``behind_words`` words. ``early`` says that the source's rows come in chunks as well.
    """
    return _Linear(lowering, label, op, behind, behind_words, early).items()


class _Linear:
    def __init__(
        self,
        lowering: Lowering,
        label: str,
        op: Linear,
        behind: Rows,
        behind_words: int,
        early: bool,
    ):
        self.lowering, self.label, self.op, self.behind = lowering, label, op, behind
        config, limits = lowering.config, lowering.limits
        self.source = lowering.blocks[op.source.buffer]
        self.target = lowering.blocks[op.target.buffer]
        k, n = op.weight.shape
        # Every block of the source has weights, and a product, of its own.
        self.k_parts = cut(k, self.source.column_marks)
        self.flags = format_flags(op.stored, config, lowering.name)
        group = op.stored.group if op.stored else 0
        if group and any(first % group for first, _ in self.k_parts):
            raise InputError(
                f"Model {lowering.name} has weights in groups of {group}, but the "
                f"inputs of {label} lie in parts that begin within a group"
            )
        longest = max(count for _, count in self.k_parts)
        nt = -(-n // config.cols)
        lowering.room_for(config.lane_groups)
        self.height = lowering.height(op.source.rows)
        tiles = min(nt, lowering.tiles(self.height))
        words = config.param_depth - SPARE_WORDS - behind_words
        tiles = min(tiles, words // config.lane_groups)
        fixed = 0 if op.table is None else 256
        longest = stored_rows(op.stored, longest)
        per_tile = config.lane_groups * lowering.word_bytes + longest * config.cols
        tiles = min(tiles, max(1, (limits.blob_bytes - fixed) // per_tile))
        self.groups = lowering.column_groups(n, tiles, op.target.buffer)
        # Chunks behind an inference's end cost something, which only norms are worth.
        self.fixed = not lowering.model.description.variable
        self.early = early

    def items(self) -> list[Item]:
        """Return the items of the whole layer."""
        if self.lowering.limits.loop_parts:
            return self._loops()
        columns = [part for group in self.groups for part in group]
        items: list[Item] = []
        for number, part in enumerate(columns):
            first, last = number == 0, number == len(columns) - 1
            chunks = (first and self.early) or (last and (bool(self.behind.chunks) or self.fixed))
            rows = [row for group in self._rows(chunks=chunks) for row in group]
            blocks = self._blocks(f"{self.label}.{number}", part, table=first)
            behind = self.behind if last else Rows()
            items += self._part(part, rows, blocks, behind)
        return items

    def _part(
        self, part: Part, rows: list[Part], blocks: list["_Block"], behind: Rows
    ) -> list[Item]:
        """Return the items of some columns: one for each block of the source if sums have room."""
        config = self.lowering.config
        nt = -(-part[1] // config.cols)
        if sum(m for _, m in rows) * nt > config.acc_depth // 2:
            blocks = [_together(blocks)]
        # Sums stay in their rows from block to block.
        sums = [(row, m, self.lowering.acc(self._acc_stride(m) * nt)) for row, m in rows]
        for block in blocks[:-1]:
            for row, m, acc in sums:
                block.item.body += self._products(block, row, m, acc)
        end = blocks[-1]
        end.item.loads += behind.loads
        # Behind the products, as these must not wait in front of a queue that is full of drains.
        setup = [node for block in blocks for node in block.setup] + behind.params
        waiting = list(behind.chunks)
        for index, (row, m, acc) in enumerate(sums):
            end.item.body += self._products(end, row, m, acc)
            end.item.body += [] if index else setup
            for drain, last in self._drains(acc, row, m, part):
                nodes: list[Node] = [drain]
                while waiting and waiting[0][0] <= last:
                    nodes += waiting.pop(0)[1]
                # A stream that is normalized itself does not go on as it was.
                keep = self.lowering.model.description.placement == "pre"
                end.item.body += _fused(nodes, keep=keep) if config.fused else nodes
        end.item.body += [node for _, nodes in waiting for node in nodes]
        return [block.item for block in blocks]

    def _loops(self) -> list[Item]:
        """Return the parts of each block of the target as the iterations of a loop."""
        lowering, op = self.lowering, self.op
        items = []
        if op.table is not None:
            items.append(Item())
            blob = f"{self.label}.table"
            lowering.load(items[0], blob, op.table.astype(np.int8).view(np.uint8))
            items[0].body.append(_table(Ref(blob)))

        def part(first: int, count: int) -> list[Node]:
            block = _together(self._blocks(self.label, (first, count), table=False))
            nodes = [*block.item.loads, *block.item.body, *block.setup]
            nt = -(-count // lowering.config.cols)

            def product(row: int, m: int) -> list[Node]:
                acc = lowering.acc(self._acc_stride(m) * nt)
                drains = [drain for drain, _ in self._drains(acc, row, m, (first, count))]
                return [*self._products(block, row, m, acc), *drains]

            for group in self._rows(chunks=False):
                nodes += lowering.each(group, product)
            return nodes

        body = [node for group in self.groups for node in lowering.each(group, part)]
        return [*items, Item(body=body), *self.behind.items()]

    def _rows(self, *, chunks: bool) -> list[list[Part]]:
        """Return the row parts of products, grouped by the blocks that they lie in.

        In a loop they are those of the drains as well, so that iterations are alike.
        """
        op, most = self.op, self.height
        chunks = chunks and bool(self.lowering.limits.height)
        if chunks:
            most = min(most, self.lowering.limits.height)
        buffers = [(op.source.buffer, 0)]
        if self.lowering.limits.loop_parts or chunks:
            buffers.append((op.target.buffer, op.row))
        return self.lowering.row_groups(op.source.rows, most, *buffers)

    def _drains(self, acc: int, row: int, m: int, part: Part) -> list[tuple[Draft, int]]:
        """Return the drains of a product, one for each block of rows, and the row each ends before.

        Rows are those of the source, ends those of the target.
        """
        stride = self._acc_stride(m)
        first = self.op.row + row
        marks = [mark - first for mark in self.target.row_marks]
        return [
            (self._drain(acc + begin, stride, first + begin, count, *part), first + begin + count)
            for begin, count in cut(m, marks)
        ]

    def _blocks(self, blob: str, part: Part, *, table: bool) -> list["_Block"]:
        """Return what loads and prepares some columns, for each block of the source."""
        lowering, config, op = self.lowering, self.lowering.config, self.op
        columns = slice(part[0], part[0] + part[1])
        rescale = op.rescale
        params = param_words(
            rescale.bias[columns],
            rescale.multiplier[columns],
            rescale.shift[columns],
            config,
            by_tile=True,
        ).ravel()
        blocks = []
        for k, size in self.k_parts:
            name = f"{blob}.{k}" if len(self.k_parts) > 1 else blob
            item = Item()
            setup: list[Node] = []
            pieces: list[Bytes] = []
            if k == 0:
                pieces.append(params)
                setup.append(lowering.params_draft(name, len(params) // lowering.word_bytes))
            if k == 0 and op.table is not None and table:
                setup.append(_table(Ref(name, params.size)))
                pieces.append(op.table.astype(np.int8).view(np.uint8))
            products = []
            held = self._held(k, k + size, columns)
            weight = op.weight[k : k + size, columns]
            code = self._code(weight, held)
            if code is not None:
                place = Ref(name, sum(piece.size for piece in pieces))
                beats = code.size // beat_bytes(config.sparse_lanes) - HEADER_BEATS
                products.append(_Product(k, 0, weight.shape, place, beats))
                pieces.append(code)
                held = []
            for begin, end, tile, first, last in held:
                place = Ref(name, sum(piece.size for piece in pieces))
                products.append(_Product(begin, tile, (end - begin, last - first), place))
                rows, taken = slice(begin, end), slice(first, last)
                pieces.append(stored_data(op.weight, op.stored, rows, taken).ravel())
            lowering.load(item, name, np.concatenate(pieces))
            blocks.append(_Block(item, setup, products))
        return blocks

    def _products(self, block: "_Block", row: int, m: int, acc: int) -> list[Node]:
        """Return the products of some rows with the weights of a block."""
        nodes: list[Node] = []
        for product in block.products:
            size, count = product.shape
            operands: Operands = {
                "a_addr": self.source.place(row, product.k),
                "a_stride": self.source.stride(product.k),
                "b_addr": product.weights,
                "b_stride": count,
                "acc_addr": acc + product.tile * self._acc_stride(m),
                "acc_stride": self._acc_stride(m),
                "m": self._run_rows(row, m),
                "k": size,
                "n": count,
                "a_zero": self.op.source.zero,
            }
            if product.beats:
                del operands["b_stride"]
                operands["beats"] = product.beats
                nodes.append(Draft(Opcode.SPARSE, operands))
                continue
            nodes.append(Draft(Opcode.MATMUL, operands, self.flags))
        return nodes

    def _run_rows(self, row: int, m: int) -> int | Given:
        """Return how many rows of a part of the source an inference has."""
        first = self.op.row
        return self.lowering.run_rows(first + row, m, first + self.op.source.rows)

    def _acc_stride(self, m: int) -> int:
        """Return the rows between tile columns: where they may be read in turns, an odd number."""
        return m | 1 if self.lowering.config.fused and self.behind.chunks else m

    def _drain(self, acc: int, acc_stride: int, row: int, m: int, first: int, count: int) -> Draft:
        op, target = self.op, self.op.target
        place, stride = self.target.place(row, first), self.target.stride(first)
        operands: Operands = {
            "acc_addr": acc,
            "acc_stride": acc_stride,
            "o_addr": place,
            "o_stride": stride,
            "o_zero": 0 if op.table is not None else target.zero,
            "m": self._run_rows(row - op.row, m),
            "n": count,
            "params": SPARE_WORDS,
        }
        flags = {
            "wide_out": target.wide,
            "relu": op.relu,
            "table": op.table is not None,
            "add": op.residual,
        }
        if op.residual:
            operands |= {"r_addr": place, "r_stride": stride}
        # Rows before the first one are loaded.
        defines = self.lowering.defines(place, anew=not op.residual and op.row == 0)
        on = frozenset(name for name, given in flags.items() if given)
        written = Written(target.name, row, m, first, count)
        return Draft(Opcode.DRAIN, operands, on, defines, written)

    def _held(self, start: int, stop: int, columns: slice) -> list[tuple[int, int, int, int, int]]:
        """Return the parts that are stored of some rows and columns of the weights.

        Each is first row and end, first tile column of the given, first column and end.

        All of it is one, unless zero tiles are left out. Tile columns that lack the same tiles are
        together. A column without any tile keeps its first, whose product defines the sums. Zero
        tiles stay where their products take no longer than the words of one more instruction.
        """
        rows, cols = self.lowering.config.rows, self.lowering.config.cols
        if not self.lowering.limits.compact or (self.op.stored and self.op.stored.group):
            return [(start, stop, 0, columns.start, columns.stop)]
        weight = self.op.weight[start:stop, columns]
        worth = -(-DEFINITIONS[Opcode.MATMUL].words // max(self.height, rows))
        spans = [_spans(column, worth) for column in tiles_used(weight, rows, cols).T]
        held = []
        first = 0
        for tile, found in enumerate(spans):
            if tile + 1 < len(spans) and spans[tile + 1] == found:
                continue
            left = columns.start + first * cols
            right = min(columns.start + (tile + 1) * cols, columns.stop)
            for begin, end in found:
                last = min(start + end * rows, stop)
                held.append((start + begin * rows, last, first, left, right))
            first = tile + 1
        return held

    def _code(self, weight: Ints, held: list[tuple[int, int, int, int, int]]) -> Bytes | None:
        """Return the code of a weight [k, n] if the zero-skip unit is predicted to be faster.

        That is, than the tiles that are held, by what limits each: bytes loaded, or products.
        """
        config, (k, n) = self.lowering.config, weight.shape
        usable = self.lowering.limits.sparse and self.op.stored is None
        if not usable or not LEAST_K <= k <= config.sparse_depth:
            return None
        code = encode(weight, config.sparse_lanes, config.cols)
        beats = code.size // beat_bytes(config.sparse_lanes) - HEADER_BEATS
        dense = stored = 0
        for begin, end, _, first, last in held:
            tiles = -(-(end - begin) // config.rows) * -(-(last - first) // config.cols)
            dense += tiles * max(self.height, config.rows)
            stored += (end - begin) * (last - first)
        sparse = sparse_cycles(config, config.sparse_lanes, self.height, k, n, beats)
        faster = max(sparse, code.size // config.mem_bytes) < max(dense, stored // config.mem_bytes)
        return code if faster and code.size <= stored else None


def tiles_used(weight: Ints, rows: int, cols: int) -> NDArray[np.bool_]:
    """Return for each tile of a weight [k, n] whether it has others than zeros, [kt, nt]."""
    (k, n) = weight.shape
    kt, nt = -(-k // rows), -(-n // cols)
    padded = np.zeros((kt * rows, nt * cols), np.bool_)
    padded[:k, :n] = weight != 0
    used = np.asarray(padded.reshape(kt, rows, nt, cols).any(axis=(1, 3)), np.bool_)
    return used


def _spans(used: NDArray[np.bool_], worth: int) -> list[Part]:
    """Return the (begin, end) of tiles [kt] to keep, without ``worth`` or more unused in a row."""
    spans: list[Part] = []
    for tile in np.flatnonzero(used):
        if spans and tile - spans[-1][1] < worth:
            spans[-1] = spans[-1][0], int(tile) + 1
        else:
            spans.append((int(tile), int(tile) + 1))
    return spans or [(0, 1)]


def _fused(nodes: list[Node], *, keep: bool) -> list[Node]:
    """Return a drain and what is behind it, as one where that normalizes what is drained.

    With ``keep`` the sums are written as well.
    """
    drain, *rest = nodes
    if not rest:
        return nodes
    norm = rest[0]
    assert isinstance(drain, Draft)
    if not isinstance(norm, Draft) or norm.opcode != Opcode.NORM or drain.defines:
        return nodes
    given, taken = drain.operands, norm.operands
    same = (("o_addr", "i_addr"), ("o_stride", "i_stride"), ("m", "m"), ("n", "n"))
    if drain.flags - {"wide_out", "add"} or any(given[a] != taken[b] for a, b in same):
        return nodes
    source, target = given["o_addr"], taken["o_addr"]
    operands: Operands = {**taken, "i_addr": given["acc_addr"], "i_stride": given["acc_stride"]}
    operands |= {"pre": given["params"]}
    flags = norm.flags | {"drain"}
    if "add" in drain.flags:
        flags |= {"add"}
        operands |= {name: given[name] for name in ("r_addr", "r_stride")}
    if keep and source != target:
        flags |= {"write_sum"}
        operands |= {"s_addr": source, "s_stride": given["o_stride"]}
    return [Draft(Opcode.NORM, operands, flags, norm.defines, norm.written), *rest[1:]]


def _table(place: Ref) -> Draft:
    return Draft(Opcode.TABLE, {"i_addr": place}, written=Written("table"))


@dataclass
class _Product:
    """A product with weights that are stored together."""

    k: int
    """First column of the source."""
    tile: int
    """First tile column of the target's part."""
    shape: tuple[int, int]
    """Rows and columns of the weights."""
    weights: Ref
    beats: int = 0
    """Entries of each lane where the weights are coded as a sparse matrix; 0 where they are not."""


@dataclass
class _Block:
    """Instructions that load and prepare products, and the products."""

    item: Item
    setup: list[Node]
    """Instructions that must precede the first drain."""
    products: list[_Product]


def _together(blocks: list[_Block]) -> _Block:
    """Return blocks as one, all of whose loads come first."""
    item = Item()
    for block in blocks:
        item.loads += block.item.loads
        item.body += block.item.body
    setup = [node for block in blocks for node in block.setup]
    return _Block(item, setup, [product for block in blocks for product in block.products])
