"""Attention as instructions: of one token, whose heads share products, or of a chunk's tokens.

The query heads of one token that share keys are rows of one product, and the scores of all heads
lie below each other, so that few instructions do. Of a chunk each head has products of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from arch.isa import Opcode
from generators.graph import Attention, Convert, Linear
from generators.lower.instructions import (
    Count,
    View,
    load,
    preload,
    product,
    requantize,
    softmax,
    store,
)
from generators.lower.plan import context_of, part, runs
from generators.lower.projections import Instructions
from generators.lower.residence import Register, given
from generators.lower.walk import Product, Rowwise
from generators.program.draft import Given, Ref, Written

Heads = tuple[int, int]
"""The first of some heads, and how many there are."""


class AttentionInstructions:
    """Makes the instructions of attention."""

    def __init__(self, make: Instructions):
        self.make, self.plan, self.rows, self.config = make, make.plan, make.rows, make.config
        self.decoder, self.model = make.decoder, make.model
        # Requantization clamps to INT8; to fewer bits a table does.
        self.kept = () if self.plan.kept_table is None else ("table",)
        self.kept_table = self.plan.kept_table or 0

    def add(self, index: int, op: Attention, waiting: Sequence[Product]) -> None:
        """Add a layer's attention, from normalized rows to what its last product takes.

        Waiting are the products that give its queries, keys and values.
        """
        self._recall(index)
        made = {(one, *behind)[-1].target.name: (one, behind) for one, behind in waiting}
        key, query, value = (made[tensor.name] for tensor in (op.key, op.query, op.value))
        for one, _ in (key, query, value):
            self.make.linear(one, "h", self.make.sums(one))
        self._keys(index, *key)
        self._append_keys(index)
        self._rotated(*query, View(Ref("query"), op.query.columns))
        target = self._cached("values", index, Ref("value"))
        self.make.drain(
            value[0], self.make.sums(value[0]), target, *self.kept, table=self.kept_table
        )
        for addr, place, stride in self._moved(index):
            self.make.stage.add(store(place, addr, self.make.m, stride))
        if self.rows == 1:
            self._attend_step(index, op)
        else:
            self._attend_rows(index, op)

    def _recall(self, index: int) -> None:
        """Load the keys and values of a layer that the tokens attend to, and room for their own."""
        for name, addr in self._outside(index).items():
            stride = self.plan.cache_strides[name]
            self.make.stage.add(load(Ref(name), addr, self.make.count, stride))

    def again(self, index: int) -> None:
        """Load the rows of a layer's new keys and values once more.

        So what comes behind the layers waits for the same instructions as one more layer would.
        """
        for addr, place, stride in self._moved(index):
            self.make.stage.add(load(place, addr, self.make.m, stride))

    def _moved(self, index: int) -> Iterator[tuple[Given, Given, int]]:
        """Yield external address, place and stride of the new tokens' keys and values."""
        for name, addr in self._outside(index).items():
            view = self._cached(name, index, Ref(name))
            assert isinstance(view.place, Given)
            yield replace(view.place, base=addr), view.place, view.stride

    def _outside(self, index: int) -> dict[str, int]:
        """Return the external addresses of a layer's keys and values, where they pass."""
        return self.plan.caches[index] if self.plan.passing else {}

    def _keys(self, index: int, op: Linear, behind: Sequence[Rowwise]) -> None:
        """Drain keys to where they stay, or are appended from, in the bits that are kept."""
        target = self._cached("keys", index, Ref("key"))
        if not behind:
            self.make.drain(op, self.make.sums(op), target, *self.kept, table=self.kept_table)
            return
        converts = [one for one in behind if isinstance(one, Convert)]
        turned = View(Ref("turned"), 2 * op.target.columns) if converts else target
        self._rotated(op, behind, turned, *(["wide_out"] if converts else []))
        for one in converts:
            name, width = one.target.name, one.target.columns
            (words,) = self.make.params((self.plan.words[name], 0, 0))
            m, written, flags = self.make.m, Written(name), ("wide_in", *self.kept)
            kept = requantize(
                Opcode.MAP, turned, target, m, width, words, written, *flags, table=self.kept_table
            )
            self.make.stage.add(kept)

    def _rotated(self, op: Linear, behind: Sequence[Rowwise], target: View, *flags: str) -> None:
        """Drain queries or keys, rotated where positions are."""
        acc = self.make.sums(op)
        if not behind:
            self.make.drain(op, acc, target)
            return
        table = self.plan.rows_tables["places"]
        most = (table.rows - self.rows) * table.stride
        pairs = given(Register.PLACE, most, table.place) if self.plan.resident else table.place
        beside, width = View(pairs, table.stride), self.decoder.key_dim
        flags = ("rotate", *flags)
        self.make.drain(op, acc, target, *flags, beside=beside, table=width, behind=behind)

    def _cached(self, name: str, index: int, place: Ref) -> View:
        """Return where keys or values are drained to: where they stay, if in the scratchpad."""
        keys = name == "keys"
        if self.plan.resident:
            width = self.model.kv_heads * self.decoder.key_dim
            return View(place, width if keys else self.model.kv_width)
        view, register = self._buffer(name, index), Register.KEY if keys else Register.VALUE
        most = (self.make.capacity - self.rows) * view.stride
        assert isinstance(view.place, Ref)
        return View(given(register, most, view.place), view.stride)

    def _buffer(self, name: str, index: int, offset: int = 0) -> View:
        """Return a place in the scratchpad's keys or values, which are one layer's if they pass."""
        buffer = name if self.plan.passing else f"{name}{index}"
        return View(Ref(buffer, offset), self.plan.cache_strides[name])

    def _append_keys(self, index: int) -> None:
        if not self.plan.resident:
            return
        width = self.decoder.key_dim
        flags = frozenset({"append", "b_transpose"})
        for head, slots in enumerate(self.plan.keys[index]):
            key = View(Ref("key", head * width), self.model.kv_heads * width)
            slot, line = given(Register.KEY, 0, slots.first), given(Register.KEY_LINE, 0)
            self.make.stage.add(preload(key, width, self.make.m, slot, line, flags))

    def _append_values(self, index: int) -> None:
        if not self.plan.resident:
            return
        width, cols, flags = self.model.head_dim, self.config.cols, frozenset({"append"})
        line = given(Register.VALUE_LINE, 0)
        for head, columns in enumerate(self.plan.values[index]):
            for tile, slots in enumerate(columns):
                first = tile * cols
                value = View(Ref("value", head * width + first), self.model.kv_width)
                slot = given(Register.VALUE, 0, slots.first)
                count = min(cols, width - first)
                self.make.stage.add(preload(value, self.make.m, count, slot, line, flags))

    def _scores(self, index: int, head: int, query: View, sums: View, m: Count) -> None:
        """Add the product of queries and the keys of a key head."""
        k, resident = self.decoder.key_dim, self.plan.resident
        other: View | int
        if resident:
            other = self.plan.keys[index][head].first
        else:
            other = self._buffer("keys", index, head * k)
        flags = () if resident else ("b_transpose",)
        self.make.stage.add(product(query, other, sums, m, k, self.make.count, *flags))

    def _values(self, index: int, head: int, shares: View, sums: View, m: Count) -> None:
        """Add the product of probabilities and the values of a key head."""
        width, k = self.model.head_dim, self.make.count
        if not self.plan.resident:
            values = self._buffer("values", index, head * width)
            self.make.stage.add(product(shares, values, sums, m, k, width))
            return
        assert isinstance(sums.place, int)
        for tile, slots in enumerate(self.plan.values[index][head]):
            part = View(sums.place + tile * sums.stride, sums.stride)
            n = min(self.config.cols, width - tile * self.config.cols)
            self.make.stage.add(product(shares, slots.first, part, m, k, n))

    def _attend_step(self, index: int, op: Attention) -> None:
        """Add the attention of one token: the heads of a key head are rows of a product."""
        model = self.model
        group, tiles = model.group, -(-self.make.capacity // self.config.cols)
        key_dim, capacity = self.decoder.key_dim, self.make.capacity
        acc = self.make.acc("scores", tiles * model.heads)
        parts = self._share_parts(op)
        for place, (begin, count, followed) in enumerate(parts):
            # Of one head at a time the sums go to one bank, and those before leave the other one.
            together = group if place == 0 else 1
            for head in range(begin, begin + count, together):
                query, sums = (
                    View(Ref("query", head * key_dim), key_dim),
                    View(acc + head, model.heads),
                )
                self._scores(index, head // group, query, sums, together)
            if place == len(parts) - 1:
                self._append_values(index)
            self._probabilities(op, begin, count, followed)
        width = -(-model.head_dim // self.config.cols)
        for place, (first, end) in enumerate(self.plan.key_parts):
            stride = (end - first) * group
            acc = self.make.acc(f"context{place}", width * stride)
            for head in range(first, end):
                shares = View(Ref("shares", head * group * capacity), capacity)
                sums = View(acc + (head - first) * group, stride)
                self._values(index, head, shares, sums, group)
        for place, (first, end) in enumerate(self.plan.key_parts):
            self._context(op, f"context{place}", (first * group, (end - first) * group))
            self.make.came(op.target, end * group * model.head_dim)

    def _attend_rows(self, index: int, op: Attention) -> None:
        """Add the attention of a chunk's tokens, head by head, the next one's scores ahead."""
        model, m = self.model, self.make.m
        self._append_values(index)
        capacity, cols = self.make.capacity, self.config.cols
        tiles, width = -(-capacity // cols), -(-model.head_dim // cols)
        key_dim, query_width = self.decoder.key_dim, model.heads * self.decoder.key_dim

        def scores(head: int) -> None:
            acc = self.make.acc(f"scores{head % 2}", tiles * self.rows)
            query = View(Ref("query", head * key_dim), query_width)
            self._scores(index, head // model.group, query, View(acc, self.rows), m)

        scores(0)
        for head in range(model.heads):
            if head + 1 < model.heads:
                scores(head + 1)
            first = head % 2 * self.rows * capacity
            shares = View(Ref("shares", first), capacity)
            sums = View(self.make.acc(f"scores{head % 2}", 0), self.rows)
            self._softmax(op, head, sums, first, m)
            sums = View(self.make.acc(f"context{head % 2}", width * self.rows), self.rows)
            self._values(index, head // model.group, shares, sums, m)
            self._drain_context(op, head, sums, model.query_width, m)

    def _share_parts(self, op: Attention) -> list[tuple[int, int, bool]]:
        """Return the query heads (first, count) of each softmax of a token, and what is followed.

        Where a softmax takes sums there are two, the first followed: it begins while scores are
        still multiplied, and values are multiplied while the second one ends.
        """
        heads = self.model.heads
        half = -(-self.model.kv_heads // 2) * self.model.group
        alike = len(runs(op.scores, heads)) == 1
        if not self.config.fused or not alike or half == heads:
            return [(0, heads, False)]
        return [(0, half, True), (half, heads - half, False)]

    def _probabilities(self, op: Attention, begin: int, count: int, followed: bool) -> None:
        """Add the softmax of one token's scores of some heads, as many as are alike at once."""
        heads, acc = self.model.heads, self.make.acc("scores", 0)
        flags = ("followed",) if followed else ()
        for first, many in runs(op.scores, heads):
            head, end = max(first, begin), min(first + many, begin + count)
            sums, at = View(acc + head, heads), head * self.make.capacity
            self._softmax(op, head, sums, at, end - head, *flags)

    def _words(self, op: Attention, head: int) -> int:
        """Return the parameter word of a head's scores."""
        found = runs(op.scores, self.model.heads)
        (first,) = (first for first, count in found if first <= head < first + count)
        (word,) = self.make.params((self.plan.words[f"{op.prefix}.scores.{first}"], 0, 0))
        return word

    def _softmax(
        self, op: Attention, head: int, sums: View, at: int, m: Count, *flags: str
    ) -> None:
        """Add the softmax of rows of sums, by way of the scratchpad where it must be.

        It is written ``at`` so many columns behind the first probabilities.
        """
        capacity, n, words = self.make.capacity, self.make.count, self._words(op, head)
        target, written = View(Ref("shares", at), capacity), Written(f"{op.prefix}.shares")
        # The tokens of a chunk attend to one place more each.
        step = int(self.rows > 1)
        limit = given(Register.LIMIT, capacity) if step else n
        if self.config.fused:
            flags, source = ("drain", *flags), sums
        else:
            source = View(Ref("scores", 2 * at), 2 * capacity)
            wide = ("per_tensor", "wide_out")
            self.make.stage.add(requantize(Opcode.DRAIN, sums, source, m, n, words, written, *wide))
            words += 1
        self.make.stage.add(
            softmax(source, target, m, n, words, written, *flags, limit=limit, limit_step=step)
        )

    def _context(self, op: Attention, name: str, heads: Heads) -> None:
        """Add the requantization of one token's context of some heads, which are rows."""
        first, count = heads
        width, acc = self.model.head_dim, self.make.acc(name, 0)
        if self.plan.by_row:
            self._drain_context(op, first, View(acc, count), width, count, "per_row")
            return
        for row in range(count):
            sums = View(acc + row, count)
            self._drain_context(op, first + row, sums, width, 1)

    def _drain_context(
        self, op: Attention, head: int, sums: View, stride: int, m: Count, *flags: str
    ) -> None:
        """Add the requantization of a head's context, or with ``per_row`` of several heads'."""
        name, width = f"{op.prefix}.context", self.model.head_dim
        # Those of the heads behind it follow, of which each row takes one.
        count = m if flags and isinstance(m, int) else 0
        (words,) = self.make.params((self.plan.words[f"{name}.{head}"], 0, count))
        target = View(Ref("context", head * width), stride)
        flags = flags or self._alike(op, head)
        self.make.stage.add(
            requantize(Opcode.DRAIN, sums, target, m, width, words, Written(name), *flags)
        )

    def _alike(self, op: Attention, head: int) -> tuple[str, ...]:
        """Return the flag of a context whose columns have the same parameters."""
        width = self.model.head_dim
        found = part(context_of(op), head * width, width)
        return ("per_tensor",) if found.per_tensor else ()
