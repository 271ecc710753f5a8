"""Lowering of linear layers: parts of columns, blocks of the source, rows, one drain each."""

import numpy as np

from arch.isa import Opcode
from generators.blocks import Part, cut
from generators.draft import Draft, Item, Node, Ref, Written
from generators.graph import Ints, Linear
from generators.image import Bytes
from generators.layout import param_words
from generators.lower_rows import Rows
from generators.lowering import SPARE_WORDS, Lowering, Operands


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
        # Every block of the source starts a K tile of its own.
        self.k_parts = cut(k, self.source.column_marks)
        kt = sum(-(-count // config.rows) for _, count in self.k_parts)
        lowering.room_for(config.lane_groups)
        self.height = lowering.height(op.source.rows)
        tiles = lowering.tiles(self.height)
        words = config.param_depth - SPARE_WORDS - behind_words
        tiles = min(tiles, words // config.lane_groups)
        self.masked = limits.skip_zero_tiles and 2 * kt <= config.mask_depth
        if self.masked:
            tiles = min(tiles, config.mask_depth // 2 // kt)
        fixed = 0 if op.table is None else 256
        per_tile = config.lane_groups * lowering.word_bytes + kt * self.masked + k * config.cols
        tiles = min(tiles, max(1, (limits.blob_bytes - fixed) // per_tile))
        self.groups = lowering.column_groups(n, tiles, op.target.buffer)
        self.early = early

    def items(self) -> list[Item]:
        """Return the items of the whole layer."""
        if self.lowering.limits.loop_parts:
            return self._loops()
        columns = [part for group in self.groups for part in group]
        items = []
        for number, part in enumerate(columns):
            first, last = number == 0, number == len(columns) - 1
            chunks = (first and self.early) or (last and bool(self.behind.chunks))
            item, before, products = self._columns(
                f"{self.label}.{number}", part, table=first, chunks=chunks
            )
            item.body += before
            if last:
                item.loads += self.behind.loads
                item.body += self.behind.params
                item.body += _interleave(products, self.behind.chunks)
            else:
                item.body += [node for _, nodes in products for node in nodes]
            items.append(item)
        return items

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
            lowering.mask_half = 0
            item, before, products = self._columns(
                self.label, (first, count), table=False, chunks=False
            )
            return [*item.loads, *before, *(node for _, nodes in products for node in nodes)]

        body = [node for group in self.groups for node in lowering.each(group, part)]
        return [*items, Item(body=body), *self.behind.items()]

    def _columns(
        self, blob: str, part: Part, *, table: bool, chunks: bool
    ) -> tuple[Item, list[Node], list[tuple[int, list[Node]]]]:
        """Return the columns of a part (first, count): loads, preparation, products.

        Each product comes with the target's row that it ends before.
        """
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
        pieces = [params]
        before: list[Node] = [lowering.params_draft(blob, len(params) // lowering.word_bytes)]
        if op.table is not None and table:
            before.append(_table(Ref(blob, params.size)))
            pieces.append(op.table.astype(np.int8).view(np.uint8))
        weight = op.weight[:, columns]
        mask_addr = lowering.mask_half * (config.mask_depth // 2)
        if self.masked:
            lowering.mask_half ^= 1
            mask = np.concatenate([self._mask(weight[k : k + size]) for k, size in self.k_parts])
            place = Ref(blob, sum(piece.size for piece in pieces))
            operands: Operands = {"i_addr": place, "n": mask.size, "mask": mask_addr}
            before.append(Draft(Opcode.MASK, operands, written=Written("mask")))
            pieces.append(mask)
        weights = Ref(blob, sum(piece.size for piece in pieces))
        pieces.append(weight.astype(np.int8).view(np.uint8).ravel())
        item = Item()
        lowering.load(item, blob, np.concatenate(pieces))
        most = self.height
        if chunks and lowering.limits.height:
            most = min(most, lowering.limits.height)
        products: list[tuple[int, list[Node]]] = []
        groups = lowering.row_groups(
            op.source.rows, most, (op.source.buffer, 0), (op.target.buffer, op.row)
        )
        for group in groups:
            if lowering.limits.loop_parts:
                nodes = lowering.each(
                    group, lambda row, m: self._product(weights, mask_addr, part, row, m)
                )
                products.append((op.row + sum(group[-1]), nodes))
                continue
            for row, m in group:
                nodes = self._product(weights, mask_addr, part, row, m)
                products.append((op.row + row + m, nodes))
        return item, before, products

    def _product(self, weights: Ref, mask_addr: int, part: Part, row: int, m: int) -> list[Node]:
        """Return the product of some rows, block by block of the source, and its drain."""
        lowering, op, (first, count) = self.lowering, self.op, part
        nt = -(-count // lowering.config.cols)
        acc = lowering.acc(m * nt)
        flags = frozenset({"b_masked"} if self.masked else ())
        nodes: list[Node] = []
        for k, size in self.k_parts:
            operands: Operands = {
                "a_addr": self.source.place(row, k),
                "a_stride": self.source.stride(k),
                "b_addr": Ref(weights.buffer, weights.offset + k * count),
                "b_stride": count,
                "acc_addr": acc,
                "acc_stride": m,
                "m": m,
                "k": size,
                "n": count,
                "a_zero": op.source.zero,
                "b_mask": mask_addr,
            }
            nodes.append(Draft(Opcode.MATMUL, operands, flags))
            mask_addr += nt * -(-size // lowering.config.rows)
        return [*nodes, self._drain(acc, op.row + row, m, first, count)]

    def _drain(self, acc: int, row: int, m: int, first: int, count: int) -> Draft:
        op, target = self.op, self.op.target
        place, stride = self.target.place(row, first), self.target.stride(first)
        operands: Operands = {
            "acc_addr": acc,
            "acc_stride": m,
            "o_addr": place,
            "o_stride": stride,
            "o_zero": 0 if op.table is not None else target.zero,
            "m": m,
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

    def _mask(self, weight: Ints) -> Bytes:
        """Return one byte per tile, in order (nt, kt): whether any weight is other than zero."""
        config, (k, n) = self.lowering.config, weight.shape
        kt, nt = -(-k // config.rows), -(-n // config.cols)
        padded = np.zeros((kt * config.rows, nt * config.cols), np.bool_)
        padded[:k, :n] = weight != 0
        tiles = padded.reshape(kt, config.rows, nt, config.cols).any(axis=(1, 3))  # [kt, nt]
        return tiles.T.astype(np.uint8).ravel()


def _table(place: Ref) -> Draft:
    return Draft(Opcode.TABLE, {"i_addr": place}, written=Written("table"))


def _interleave(
    products: list[tuple[int, list[Node]]], chunks: list[tuple[int, list[Node]]]
) -> list[Node]:
    """Return products and, behind each, the chunks whose rows are complete by then."""
    nodes: list[Node] = []
    waiting = list(chunks)
    for end, product in products:
        nodes += product
        while waiting and waiting[0][0] <= end:
            nodes += waiting.pop(0)[1]
    return [*nodes, *(node for _, chunk in waiting for node in chunk)]
