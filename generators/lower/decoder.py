"""A decoder's instructions for the tokens of one run: one, or a chunk of a prompt.

Tokens are rows; each program has room for a fixed number of them.
"""

from collections.abc import Sequence
from itertools import pairwise

from arch.isa import Opcode
from generators.lower.cache_attention import AttentionInstructions
from generators.lower.instructions import View, load, requantize, store, table
from generators.lower.layer_ops import Block, blocks, final_norm
from generators.lower.plan import Plan
from generators.lower.projections import BANKS, Instructions
from generators.lower.residence import Register, given
from generators.lower.staging import STAGES, WORDS
from generators.program.draft import Given, Node, Ref, Repeat, Written

HEAD_TILES = 12
"""Tile columns of the head's products that are requantized at once."""


class Layers:
    """Makes the instructions of whole programs."""

    def __init__(self, plan: Plan, rows: int):
        self.make = Instructions(plan, rows)
        self.attention = AttentionInstructions(self.make)
        self.plan, self.rows, self.config = plan, rows, plan.config
        self.decoder, self.model = plan.decoder, plan.decoder.description
        self._nodes: list[Node] = []

    def done(self) -> list[Node]:
        """Return all instructions."""
        return [*self._nodes, *self.make.take()]

    def embed(self, row: int, word: int, place: int) -> None:
        """Look up a token, whose place is ``row`` places behind that in a register."""
        embedding, dim = self.decoder.embedding, self.model.dim
        flags, beside = ["wide_out"], None
        vector = View(self._row("words", word, row, 0), 0)
        (words,) = self.make.params((self.plan.words["embedding"], 0, 0))
        if embedding.positions is not None:
            beside = View(self._row("places", place, row, row), 0)
            flags.append("add")
        if embedding.rescale.per_tensor:
            flags.append("per_tensor")
        target, written = View(Ref("x", 2 * dim * row), 0), Written("embedding")
        self.make.stage.add(
            requantize(Opcode.MAP, vector, target, 1, dim, words, written, *flags, beside=beside)
        )

    def _row(self, name: str, register: int, row: int, behind: int) -> Ref | Given:
        """Return where the row of a table is that a register tells, or load it to its place."""
        table = self.plan.rows_tables[name]
        most = (table.rows - 1 - behind) * table.stride
        if self.plan.resident:
            base = Ref(table.place.buffer, behind * table.stride)
            return given(register, most, base)
        place = Ref(table.place.buffer, row * table.stride)
        addr = given(register, most, table.addr + behind * table.stride)
        self.make.stage.add(load(place, addr, 1, table.stride))
        return place

    def layers(self) -> None:
        """Add all layers; the residual stream is there, and its first norm is not.

        Where nothing is loaded, or parameters too, they are the iterations of a loop: each ends
        with the norm that the next one, or the head, begins with.
        """
        layers, final = blocks(self.decoder), final_norm(self.decoder)
        if self.decoder.rotary is not None and not self.plan.resident:
            self._load_pairs()
        self.make.norm("layers.0.attention_norm", layers[0].attention_norm)
        looped = self.plan.resident or self.plan.passing
        self._nodes += self.make.take() if looped else []
        bodies: list[list[Node]] = []
        for index, layer in enumerate(layers):
            prefix = f"layers.{index}"
            self.attention.add(index, layer)
            self.make.residual(f"{prefix}.output", f"{prefix}.mlp_norm", layer.mlp_norm)
            self._mlp(prefix, layer, self._table(index))
            if index + 1 < len(layers):
                after, step = f"layers.{index + 1}.attention_norm", layers[index + 1].attention_norm
                self.make.residual(f"{prefix}.down", after, step)
            else:
                self.make.residual(f"{prefix}.down", "final_norm", final)
            bodies += [[*self.make.take()]] if looped else []
        self._repeat(bodies)
        if self.plan.passing:
            self.attention.again(len(layers) - 1)

    def _table(self, index: int) -> int:
        """Return the slot of a layer's table, which is brought if it passes."""
        slot = self.plan.tables[index]
        if self.plan.passing:
            place = self.make.stage.piece(self.plan.passing_tables[index], WORDS)
            self.make.stage.add(table(place, slot))
        return slot

    def _repeat(self, bodies: Sequence[Sequence[Node]]) -> None:
        """Add iterations of a loop; the first one apart where it waits for less than others."""
        apart = 1 if self.plan.passing else 0
        self._nodes += [node for body in bodies[:apart] for node in body]
        self._nodes += [Repeat(bodies[apart:])] if bodies[apart:] else []

    def _load_pairs(self) -> None:
        pairs = self.plan.rows_tables["places"]
        most = (pairs.rows - self.rows) * pairs.stride
        addr = given(Register.PLACE, most, pairs.addr)
        self.make.stage.add(load(pairs.place, addr, self.make.m, pairs.stride))

    def _mlp(self, prefix: str, layer: Block, table: int) -> None:
        """Add the MLP part by part, so that one is multiplied while the one before is drained."""
        names = ("up",) if layer.gate is None else ("gate", "up")
        parts = self.plan.ffn_parts
        down, ready = f"{prefix}.down", 0
        for place, (first, end) in enumerate(parts):
            for name in names:
                whole = f"{prefix}.{name}"
                acc = self.make.sums(whole) + first * self.make.stride(whole)
                self.make.linear(whole, "h", acc, tiles=(first, end - first))
            self._hidden(prefix, layer, table, first, end - first)
            # The hidden layer's part before is there by now, and so is a share of the last product.
            if place:
                came = parts[place - 1][1] * self.config.cols
                ready = self.make.shared(down, "hidden", came, ready)
        self.make.shared(down, "hidden", self.model.ffn, ready)

    def _hidden(self, prefix: str, layer: Block, table: int, first: int, count: int) -> None:
        """Add what makes the hidden layer of sums, in some tile columns."""
        column, width, tiles = first * self.config.cols, self.model.ffn, (first, count)
        hidden, gate = View(Ref("hidden", column), width), View(Ref("gate", column), width)

        def sums(name: str) -> int:
            return self.make.sums(name) + first * self.make.stride(name)

        up, active = f"{prefix}.up", f"{prefix}.gate"
        if layer.gate is None:
            self.make.drain(up, sums(up), hidden, "table", table=table, tiles=tiles)
            return
        self.make.drain(active, sums(active), gate, "table", table=table, tiles=tiles)
        zero = layer.gate.target.zero
        self.make.drain(up, sums(up), hidden, "times", beside=gate, table=zero, tiles=tiles)

    def head(self) -> None:
        """Add the scores of all tokens, behind the last row alone."""
        if self.plan.passing:
            self._passing_head()
            return
        parts = self._head_parts()
        most = max(count for _, count in parts)
        for place, (first, count) in enumerate(parts):
            self._scores(place, first, count, most, Ref("logits", 2 * first * self.config.cols))

    def _passing_head(self) -> None:
        """Add the scores in parts, each stored before the next but one."""
        parts, cols = self.plan.head_parts, self.config.cols
        most = max(end - first for first, end in parts)
        bodies = []
        for begin in range(0, len(parts), STAGES):
            for place, (first, end) in enumerate(parts[begin : begin + STAGES]):
                target = Ref(f"logits{place % 2}")
                self._scores(place, first, end - first, most, target)
                size = min(2 * (end - first) * cols, self.plan.logits_bytes - 2 * first * cols)
                addr = self.plan.scores.addr + 2 * first * cols
                self.make.stage.add(store(target, addr, 1, size))
            bodies.append(self.make.take())
        # The last one may have shorter parts.
        self._repeat(bodies[:-1])
        self._nodes += bodies[-1]

    def _scores(self, place: int, first: int, count: int, most: int, target: Ref) -> None:
        """Add the scores of some tile columns, at most so many, in the place-th part."""
        acc = self.make.acc(f"head{place % 2}", most * BANKS) + place % 2
        self.make.linear("head", self._last_row(), acc, tiles=(first, count))
        flags = ("wide_out", "argmax") if self.config.argmax else ("wide_out",)
        index = first * self.config.cols if self.config.argmax else 0
        view, tiles = View(target, 2 * self.model.vocabulary), (first, count)
        self.make.drain("head", acc, view, *flags, tiles=tiles, table=index, row=True)

    def _last_row(self) -> Ref | Given:
        """Return where the last token's normalized row is."""
        if self.rows == 1:
            return Ref("h")
        return given(Register.LAST, self.model.dim * (self.rows - 1), Ref("h"))

    def _head_parts(self) -> list[tuple[int, int]]:
        """Return (first, count) of tile columns of the head that are requantized at once."""
        matrix, cols = self.plan.matrices["head"], self.config.cols
        total = -(-matrix.n // cols)
        starts = sorted({held.tile for held, _ in matrix.cuts})
        if matrix.resident:
            starts = list(range(total))
        parts: list[tuple[int, int]] = []
        for first, end in pairwise([*starts, total]):
            if parts and end - parts[-1][0] <= HEAD_TILES:
                parts[-1] = parts[-1][0], end - parts[-1][0]
            else:
                parts.append((first, end - first))
        return parts
