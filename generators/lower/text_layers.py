"""A decoder's instructions for the tokens of one run: one, or a chunk of a prompt.

Tokens are rows; each program has room for a fixed number of them.
"""

from collections.abc import Sequence
from itertools import pairwise

from arch.isa import Opcode
from generators.lower.lowering import Operands
from generators.lower.text_attention import AttentionInstructions
from generators.lower.text_engine import BANKS, Instructions
from generators.lower.text_memory import Register, given
from generators.lower.text_ops import Block, blocks, final_norm
from generators.lower.text_plan import Plan
from generators.lower.text_stage import STAGES, WORDS
from generators.program.draft import Draft, Given, Node, Ref, Repeat

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
        plan, dim = self.plan, self.model.dim
        flags = ["wide_out"]
        operands: Operands = {
            "i_addr": self._row("words", word, row, 0),
            "o_addr": Ref("x", 2 * dim * row),
            "m": 1,
            "n": dim,
            "params": self.make.params((plan.words["embedding"], 0, 0))[0],
        }
        if self.decoder.embedding.positions is not None:
            operands["r_addr"] = self._row("places", place, row, row)
            flags.append("add")
        if self.decoder.embedding.rescale.per_tensor:
            flags.append("per_tensor")
        self.make.vector(Opcode.MAP, "embedding", operands, flags)

    def _row(self, name: str, register: int, row: int, behind: int) -> Ref | Given:
        """Return where the row of a table is that a register tells, or load it to its place."""
        table = self.plan.rows_tables[name]
        most = (table.rows - 1 - behind) * table.stride
        if self.plan.resident:
            base = Ref(table.place.buffer, behind * table.stride)
            return given(register, most, base)
        place = Ref(table.place.buffer, row * table.stride)
        operands: Operands = {
            "dram_addr": given(register, most, table.addr + behind * table.stride),
            "sp_addr": place,
            "m": 1,
            "row_bytes": table.stride,
        }
        self.make.stage.add(Draft(Opcode.LOAD, operands))
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
            self.make.vector(Opcode.TABLE, "table", {"i_addr": place, "table": slot})
        return slot

    def _repeat(self, bodies: Sequence[Sequence[Node]]) -> None:
        """Add iterations of a loop; the first one apart where it waits for less than others."""
        apart = 1 if self.plan.passing else 0
        self._nodes += [node for body in bodies[:apart] for node in body]
        self._nodes += [Repeat(bodies[apart:])] if bodies[apart:] else []

    def _load_pairs(self) -> None:
        table = self.plan.rows_tables["places"]
        most = (table.rows - self.rows) * table.stride
        operands: Operands = {
            "dram_addr": given(Register.PLACE, most, table.addr),
            "dram_stride": table.stride,
            "sp_addr": table.place,
            "sp_stride": table.stride,
            "m": self.make.m,
            "row_bytes": table.stride,
        }
        self.make.stage.add(Draft(Opcode.LOAD, operands))

    def _mlp(self, prefix: str, layer: Block, table: int) -> None:
        """Add the MLP part by part, so that one is multiplied while the one before is drained."""
        names = ("up",) if layer.gate is None else ("gate", "up")
        parts = self.plan.ffn_parts
        down, ready = f"{prefix}.down", 0
        for place, (first, end) in enumerate(parts):
            for name in names:
                whole = f"{prefix}.{name}"
                acc = self.make.sums(whole) + first * self.make.stride(whole)
                self.make.product(whole, "h", acc, tiles=(first, end - first))
            self._hidden(prefix, layer, table, first, end - first)
            # The hidden layer's part before is there by now, and so is a share of the last product.
            if place:
                came = parts[place - 1][1] * self.config.cols
                ready = self.make.shared(down, "hidden", came, ready)
        self.make.shared(down, "hidden", self.model.ffn, ready)

    def _hidden(self, prefix: str, layer: Block, table: int, first: int, count: int) -> None:
        """Add what makes the hidden layer of sums, in some tile columns."""
        column = first * self.config.cols
        part = {"first": first, "count": count}
        up = self.make.sums(f"{prefix}.up") + first * self.make.stride(f"{prefix}.up")
        hidden = Ref("hidden", column)
        if layer.gate is None:
            self.make.drain(f"{prefix}.up", up, hidden, "table", table=table, **part)
            return
        gate = self.make.sums(f"{prefix}.gate") + first * self.make.stride(f"{prefix}.gate")
        self.make.drain(f"{prefix}.gate", gate, Ref("gate", column), "table", table=table, **part)
        self.make.drain(
            f"{prefix}.up",
            up,
            hidden,
            "times",
            r_addr=Ref("gate", column),
            r_stride=self.model.ffn,
            table=layer.gate.target.zero,
            **part,
        )

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
                operands: Operands = {
                    "dram_addr": self.plan.scores.addr + 2 * first * cols,
                    "sp_addr": target,
                    "m": 1,
                    "row_bytes": size,
                }
                self.make.stage.add(Draft(Opcode.STORE, operands))
            bodies.append(self.make.take())
        # The last one may have shorter parts.
        self._repeat(bodies[:-1])
        self._nodes += bodies[-1]

    def _scores(self, place: int, first: int, count: int, most: int, target: Ref) -> None:
        """Add the scores of some tile columns, at most so many, in the place-th part."""
        acc = self.make.acc(f"head{place % 2}", most * BANKS) + place % 2
        self.make.product("head", self._last_row(), acc, tiles=(first, count))
        flags = ("wide_out", "argmax") if self.config.argmax else ("wide_out",)
        more = {"table": first * self.config.cols} if self.config.argmax else {}
        more |= {"m": 1, "acc_stride": BANKS}
        self.make.drain("head", acc, target, *flags, first=first, count=count, **more)

    def _last_row(self) -> Ref | Given:
        """Return where the last token's normalized row is."""
        if self.rows == 1:
            return Ref("h")
        return given(Register.LAST, self.model.dim * (self.rows - 1), Ref("h"))

    def _head_parts(self) -> list[tuple[int, int]]:
        """Return (first, count) of tile columns of the head that are requantized at once."""
        matrix, cols = self.plan.matrices["head"], self.config.cols
        total = -(-matrix.n // cols)
        starts = sorted({cut.column // cols for cut in matrix.cuts})
        if matrix.resident:
            starts = list(range(total))
        parts: list[tuple[int, int]] = []
        for first, end in pairwise([*starts, total]):
            if parts and end - parts[-1][0] <= HEAD_TILES:
                parts[-1] = parts[-1][0], end - parts[-1][0]
            else:
                parts.append((first, end - first))
        return parts
