"""Attention as instructions: of one token, whose heads share products, or of a chunk's tokens.

The query heads of one token that share keys are rows of one product, and the scores of all heads
lie below each other, so that few instructions do. Of a chunk each head has products of its own.
"""

from arch.isa import Opcode
from generators.lower.lowering import Operands
from generators.lower.text_engine import Instructions
from generators.lower.text_memory import Register, given
from generators.lower.text_ops import Block
from generators.lower.text_plan import part, runs
from generators.program.draft import Draft, Given, Ref

Heads = tuple[int, int]
"""The first of some heads, and how many there are."""


class AttentionInstructions:
    """Makes the instructions of attention."""

    def __init__(self, make: Instructions):
        self.make, self.plan, self.rows, self.config = make, make.plan, make.rows, make.config
        self.decoder, self.model = make.decoder, make.model

    def add(self, index: int, layer: Block) -> None:
        """Add a layer's attention, from normalized rows to what its last product takes."""
        prefix = f"layers.{index}"
        self._recall(index)
        for name in ("key", "query", "value"):
            self.make.product(f"{prefix}.{name}", "h", self.make.sums(f"{prefix}.{name}"))
        self._keys(index, layer)
        self._append_keys(index)
        self._turned(prefix, "query", Ref("query"))
        value, target = f"{prefix}.value", self._cached("values", index, Ref("value"))
        stride = self._stride("values", self.model.kv_width)
        self.make.drain(
            value, self.make.sums(value), target, *self._kept, o_stride=stride, **self._kept
        )
        self._move(Opcode.STORE, index)
        if self.rows == 1:
            self._attend_step(index, layer)
        else:
            self._attend_rows(index, layer)

    def _recall(self, index: int) -> None:
        """Load the keys and values of a layer that the tokens attend to, and room for their own."""
        for name, addr in self._outside(index).items():
            operands: Operands = {
                "dram_addr": addr,
                "dram_stride": self.plan.cache_strides[name],
                "sp_addr": Ref(name),
                "sp_stride": self.plan.cache_strides[name],
                "m": self.make.count,
                "row_bytes": self.plan.cache_strides[name],
            }
            self.make.stage.add(Draft(Opcode.LOAD, operands))

    def again(self, index: int) -> None:
        """Load the rows of a layer's new keys and values once more.

        So what comes behind the layers waits for the same instructions as one more layer would.
        """
        self._move(Opcode.LOAD, index)

    def _move(self, opcode: Opcode, index: int) -> None:
        """Store or load the new tokens' keys and values of a layer."""
        for name, addr in self._outside(index).items():
            stride = self.plan.cache_strides[name]
            most = (self.make.capacity - self.rows) * stride
            place = self._cached(name, index, Ref(name))
            assert isinstance(place, Given)
            operands: Operands = {
                "dram_addr": given(place.register, most, addr),
                "dram_stride": stride,
                "sp_addr": place,
                "sp_stride": stride,
                "m": self.make.m,
                "row_bytes": stride,
            }
            self.make.stage.add(Draft(opcode, operands))

    def _outside(self, index: int) -> dict[str, int]:
        """Return the external addresses of a layer's keys and values, where they pass."""
        return self.plan.caches[index] if self.plan.passing else {}

    def _stride(self, name: str, width: int) -> int:
        """Return the bytes from a token's drained keys or values to the next one's."""
        return width if self.plan.resident else self.plan.cache_strides[name]

    @property
    def _kept(self) -> dict[str, int]:
        """The flag, and its operand of the same name, that clamps to the bits of keys and values.

        There is none for INT8, as requantization clamps to that.
        """
        return {} if self.plan.kept_table is None else {"table": self.plan.kept_table}

    def _keys(self, index: int, layer: Block) -> None:
        """Drain keys to where they stay, or are appended from, in the bits that are kept."""
        prefix, target = f"layers.{index}", self._cached("keys", index, Ref("key"))
        width = self.model.kv_heads * self.decoder.key_dim
        stride = self._stride("keys", width)
        if self.decoder.rotary is None:
            key = f"{prefix}.key"
            self.make.drain(
                key, self.make.sums(key), target, *self._kept, o_stride=stride, **self._kept
            )
            return
        if layer.kept_key is None:
            self._turned(prefix, "key", target, o_stride=stride)
            return
        self._turned(prefix, "key", Ref("turned"), "wide_out")
        (words,) = self.make.params((self.plan.words[f"{prefix}.kept_key"], 0, 0))
        operands: Operands = {
            "i_addr": Ref("turned"),
            "i_stride": 2 * width,
            "o_addr": target,
            "o_stride": stride,
            "m": self.make.m,
            "n": width,
            "params": words,
        }
        self.make.vector(
            Opcode.MAP, f"{prefix}.key", operands | self._kept, ("wide_in", *self._kept)
        )

    def _turned(
        self, prefix: str, name: str, target: Ref | Given, *flags: str, **more: int
    ) -> None:
        """Drain queries or keys, rotated where positions are."""
        acc = self.make.sums(f"{prefix}.{name}")
        if self.decoder.rotary is None:
            self.make.drain(f"{prefix}.{name}", acc, target, **more)
            return
        table = self.plan.rows_tables["places"]
        most = (table.rows - self.rows) * table.stride
        pairs = given(Register.PLACE, most, table.place) if self.plan.resident else table.place
        self.make.drain(
            f"{prefix}.{name}",
            acc,
            target,
            "rotate",
            *flags,
            r_addr=pairs,
            r_stride=table.stride,
            table=self.decoder.key_dim,
            **more,
        )

    def _cached(self, name: str, index: int, place: Ref) -> Ref | Given:
        """Return where keys or values are drained to: where they stay, if in the scratchpad."""
        if self.plan.resident:
            return place
        register = Register.KEY if name == "keys" else Register.VALUE
        most = (self.make.capacity - self.rows) * self.plan.cache_strides[name]
        return given(register, most, self._buffer(name, index))

    def _buffer(self, name: str, index: int, offset: int = 0) -> Ref:
        """Return a place in the scratchpad's keys or values, which are one layer's if they pass."""
        return Ref(name if self.plan.passing else f"{name}{index}", offset)

    def _append_keys(self, index: int) -> None:
        if not self.plan.resident:
            return
        width = self.decoder.key_dim
        for head, slots in enumerate(self.plan.keys[index]):
            operands: Operands = {
                "b_addr": Ref("key", head * width),
                "b_stride": self.model.kv_heads * width,
                "k": width,
                "n": self.make.m,
                "slot": given(Register.KEY, 0, slots.first),
                "line": given(Register.KEY_LINE, 0),
            }
            flags = frozenset({"append", "b_transpose"})
            self.make.stage.add(Draft(Opcode.PRELOAD, operands, flags))

    def _append_values(self, index: int) -> None:
        if not self.plan.resident:
            return
        width, stride = self.model.head_dim, self.model.kv_width
        for head, columns in enumerate(self.plan.values[index]):
            for tile, slots in enumerate(columns):
                first = tile * self.config.cols
                operands: Operands = {
                    "b_addr": Ref("value", head * width + first),
                    "b_stride": stride,
                    "k": self.make.m,
                    "n": min(self.config.cols, width - first),
                    "slot": given(Register.VALUE, 0, slots.first),
                    "line": given(Register.VALUE_LINE, 0),
                }
                self.make.stage.add(Draft(Opcode.PRELOAD, operands, frozenset({"append"})))

    def _scores(self, index: int, head: int, operands: Operands) -> None:
        """Add the product of queries and the keys of a key head."""
        operands = operands | {"k": self.decoder.key_dim, "n": self.make.count}
        if self.plan.resident:
            operands["slot"] = self.plan.keys[index][head].first
            self.make.stage.add(Draft(Opcode.MATMUL, operands, frozenset({"resident"})))
            return
        operands["b_addr"] = self._buffer("keys", index, head * self.decoder.key_dim)
        operands["b_stride"] = self.plan.cache_strides["keys"]
        self.make.stage.add(Draft(Opcode.MATMUL, operands, frozenset({"b_transpose"})))

    def _mixed(self, index: int, head: int, acc: int, operands: Operands) -> None:
        """Add the product of probabilities and the values of a key head."""
        operands = operands | {"k": self.make.count}
        if not self.plan.resident:
            operands |= {
                "acc_addr": acc,
                "b_addr": self._buffer("values", index, head * self.model.head_dim),
                "b_stride": self.plan.cache_strides["values"],
                "n": self.model.head_dim,
            }
            self.make.stage.add(Draft(Opcode.MATMUL, operands))
            return
        stride, cols = operands["acc_stride"], self.config.cols
        assert isinstance(stride, int)
        for tile, slots in enumerate(self.plan.values[index][head]):
            one = operands | {
                "acc_addr": acc + tile * stride,
                "n": min(cols, self.model.head_dim - tile * cols),
                "slot": slots.first,
            }
            self.make.stage.add(Draft(Opcode.MATMUL, one, frozenset({"resident"})))

    def _attend_step(self, index: int, layer: Block) -> None:
        """Add the attention of one token: the heads of a key head are rows of a product."""
        model, prefix = self.model, f"layers.{index}"
        group, tiles = model.group, -(-self.make.capacity // self.config.cols)
        acc = self.make.acc("scores", tiles * model.heads)
        parts = self._share_parts(layer)
        for place, (begin, count, followed) in enumerate(parts):
            # Of one head at a time the sums go to one bank, and those before leave the other one.
            alone = place > 0
            for head in range(begin, begin + count, 1 if alone else group):
                operands: Operands = {
                    "a_addr": Ref("query", head * self.decoder.key_dim),
                    "a_stride": self.decoder.key_dim,
                    "acc_addr": acc + head,
                    "acc_stride": model.heads,
                    "m": 1 if alone else group,
                }
                self._scores(index, head // group, operands)
            if place == len(parts) - 1:
                self._append_values(index)
            self._shares(prefix, layer, begin, count, followed)
        width = -(-model.head_dim // self.config.cols)
        for place, (first, end) in enumerate(self.plan.key_parts):
            stride = (end - first) * group
            acc = self.make.acc(f"context{place}", width * stride)
            for head in range(first, end):
                operands = {
                    "a_addr": Ref("shares", head * group * self.make.capacity),
                    "a_stride": self.make.capacity,
                    "acc_stride": stride,
                    "m": group,
                }
                self._mixed(index, head, acc + (head - first) * group, operands)
        ready = 0
        for place, (first, end) in enumerate(self.plan.key_parts):
            heads = (first * group, (end - first) * group)
            self._context(prefix, layer, f"context{place}", heads)
            came = end * group * model.head_dim
            ready = self.make.shared(f"{prefix}.output", "context", came, ready)

    def _attend_rows(self, index: int, layer: Block) -> None:
        """Add the attention of a chunk's tokens, head by head, the next one's scores ahead."""
        model, prefix = self.model, f"layers.{index}"
        self._append_values(index)
        tiles = -(-self.make.capacity // self.config.cols)
        width = -(-model.head_dim // self.config.cols)

        def scores(head: int) -> None:
            operands: Operands = {
                "a_addr": Ref("query", head * self.decoder.key_dim),
                "a_stride": model.heads * self.decoder.key_dim,
                "acc_addr": self.make.acc(f"scores{head % 2}", tiles * self.rows),
                "acc_stride": self.rows,
                "m": self.make.m,
            }
            self._scores(index, head // model.group, operands)

        scores(0)
        for head in range(model.heads):
            if head + 1 < model.heads:
                scores(head + 1)
            self._shares_rows(prefix, layer, head)
            operands: Operands = {
                "a_addr": Ref("shares", head % 2 * self.rows * self.make.capacity),
                "a_stride": self.make.capacity,
                "acc_stride": self.rows,
                "m": self.make.m,
            }
            acc = self.make.acc(f"context{head % 2}", width * self.rows)
            self._mixed(index, head // model.group, acc, operands)
            self._context_rows(prefix, layer, head, acc)
        self.make.shared(f"{prefix}.output", "context", model.query_width)

    def _share_parts(self, layer: Block) -> list[tuple[int, int, bool]]:
        """Return the query heads (first, count) of each softmax of a token, and what is followed.

        Where a softmax takes sums there are two, the first followed: it begins while scores are
        still multiplied, and values are multiplied while the second one ends.
        """
        heads = self.model.heads
        half = -(-self.model.kv_heads // 2) * self.model.group
        alike = len(runs(layer.attention.scores, 1, heads)) == 1
        if not self.config.fused or not alike or half == heads:
            return [(0, heads, False)]
        return [(0, half, True), (half, heads - half, False)]

    def _shares(self, prefix: str, layer: Block, begin: int, count: int, followed: bool) -> None:
        """Add the softmax of one token's scores of some heads, as many as are alike at once."""
        model = self.model
        for first, many in runs(layer.attention.scores, 1, model.heads):
            head, end = max(first, begin), min(first + many, begin + count)
            self._softmax(
                f"{prefix}.shares",
                self._words(prefix, layer, head),
                self.make.acc("scores", 0) + head,
                model.heads,
                Ref("scores", 2 * head * self.make.capacity),
                Ref("shares", head * self.make.capacity),
                end - head,
                0,
                ("followed",) if followed else (),
            )

    def _shares_rows(self, prefix: str, layer: Block, head: int) -> None:
        """Add the softmax of a chunk's scores of one head."""
        first = head % 2 * self.rows * self.make.capacity
        self._softmax(
            f"{prefix}.shares",
            self._words(prefix, layer, head),
            self.make.acc(f"scores{head % 2}", 0),
            self.rows,
            Ref("scores", 2 * first),
            Ref("shares", first),
            self.make.m,
            1,
        )

    def _words(self, prefix: str, layer: Block, head: int) -> int:
        """Return the parameter word of a head's scores."""
        found = runs(layer.attention.scores, 1, self.model.heads)
        (first,) = (first for first, count in found if first <= head < first + count)
        (word,) = self.make.params((self.plan.words[f"{prefix}.scores.{first}"], 0, 0))
        return word

    def _softmax(
        self,
        name: str,
        words: int,
        acc: int,
        stride: int,
        between: Ref,
        target: Ref,
        m: int | Given,
        limit_step: int,
        flags: tuple[str, ...] = (),
    ) -> None:
        """Add the softmax of rows of sums, by way of the scratchpad where it must be."""
        limit = given(Register.LIMIT, self.make.capacity) if limit_step else self.make.count
        operands: Operands = {
            "o_addr": target,
            "o_stride": self.make.capacity,
            "m": m,
            "n": self.make.count,
            "limit": limit,
            "limit_step": limit_step,
        }
        if self.config.fused:
            operands |= {"i_addr": acc, "i_stride": stride, "params": words}
            self.make.vector(Opcode.SOFTMAX, name, operands, ("per_tensor", "drain", *flags))
            return
        drained: Operands = {
            "acc_addr": acc,
            "acc_stride": stride,
            "o_addr": between,
            "o_stride": 2 * self.make.capacity,
            "m": m,
            "n": self.make.count,
            "params": words,
        }
        self.make.vector(Opcode.DRAIN, name, drained, ("per_tensor", "wide_out"))
        operands |= {"i_addr": between, "i_stride": 2 * self.make.capacity, "params": words + 1}
        self.make.vector(Opcode.SOFTMAX, name, operands, ("per_tensor",))

    def _context(self, prefix: str, layer: Block, name: str, heads: Heads) -> None:
        """Add the requantization of one token's context of some heads, which are rows."""
        width, (first, count) = self.model.head_dim, heads
        by_row = self.plan.by_row
        for head, many in [heads] if by_row else [(first + row, 1) for row in range(count)]:
            kept = self.plan.words[f"{prefix}.context.{head}"]
            # Those of the heads behind it follow, of which each row takes one.
            (words,) = self.make.params((kept, 0, many if by_row else 0))
            operands: Operands = {
                "acc_addr": self.make.acc(name, 0) + head - first,
                "acc_stride": count,
                "o_addr": Ref("context", head * width),
                "o_stride": width,
                "m": many,
                "n": width,
                "params": words,
            }
            flags = ("per_row",) if by_row else self._alike(layer, head)
            self.make.vector(Opcode.DRAIN, f"{prefix}.context", operands, flags)

    def _context_rows(self, prefix: str, layer: Block, head: int, acc: int) -> None:
        """Add the requantization of a chunk's context of one head."""
        operands: Operands = {
            "acc_addr": acc,
            "acc_stride": self.rows,
            "o_addr": Ref("context", head * self.model.head_dim),
            "o_stride": self.model.query_width,
            "m": self.make.m,
            "n": self.model.head_dim,
            "params": self.make.params((self.plan.words[f"{prefix}.context.{head}"], 0, 0))[0],
        }
        self.make.vector(Opcode.DRAIN, f"{prefix}.context", operands, self._alike(layer, head))

    def _alike(self, layer: Block, head: int) -> tuple[str, ...]:
        """Return the flag of a context whose columns have the same parameters."""
        width = self.model.head_dim
        found = part(layer.context, head * width, width)
        return ("per_tensor",) if found.per_tensor else ()
