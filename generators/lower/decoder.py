"""A decoder's instructions for the tokens of one run: one, or a chunk of a prompt.

Tokens are rows; each program has room for a fixed number of them.
"""

from collections.abc import Sequence
from itertools import pairwise

from arch.isa import Opcode
from generators.graph import Attention, Gate, Linear, Norm, Op, Tensor, TextGraph
from generators.lower.cached import Cached
from generators.lower.instructions import View, load, requantize, store
from generators.lower.plan import Plan, kind
from generators.lower.projections import BANKS, Instructions, place_behind
from generators.lower.residence import Register, given
from generators.lower.staging import STAGES
from generators.lower.token_attention import TokenAttention, keep_source
from generators.lower.walk import Product, Rowwise, ending_ahead, steps
from generators.program.draft import Given, Node, Ref, Repeat, Written

STREAM = Ref("x")
"""Place of the residual stream's first row."""
HEAD_TILES = 12
"""Tile columns of the head's products that are requantized at once."""


class Layers:
    """Makes the instructions of whole programs, of a decoder or of a source's encoder."""

    def __init__(self, plan: Plan, rows: int, graph: TextGraph | None = None):
        self.graph = plan.decoder if graph is None else graph
        self.make = Instructions(plan, rows, self.graph)
        self.plan, self.rows, self.config = plan, rows, plan.config
        self.decoder, self.model = plan.decoder, plan.decoder.description
        self._nodes: list[Node] = []

    def done(self) -> list[Node]:
        """Return all instructions."""
        return [*self._nodes, *self.make.take()]

    def embed(self, row: int, word: int, place: int, first: Ref | Given = STREAM) -> None:
        """Look up a token, whose place is ``row`` places behind that in a register.

        Its row is so many behind the ``first``.
        """
        embedding, dim = self.graph.embedding, self.model.dim
        name = embedding.target.name
        flags, beside = ["wide_out"], None
        vector = View(self._row("words", word, row, 0), 0)
        (words,) = self.make.params((self.plan.words[name], 0, 0))
        if embedding.positions is not None:
            table = name.replace("embedding", "places")
            beside = View(self._row(table, place, row, row), 0)
            flags.append("add")
        if embedding.rescale.per_tensor:
            flags.append("per_tensor")
        target, written = View(place_behind(first, 2 * dim * row), 0), Written(name)
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
        before, *layers, after = ending_ahead(self.graph)
        if self.decoder.rotary is not None and not self.plan.resident:
            self._load_pairs()
        self._section(before[1:])
        looped = self.plan.resident or self.plan.passing
        self._nodes += self.make.take() if looped else []
        bodies: list[list[Node]] = []
        for layer in layers:
            self._section(layer)
            bodies += [[*self.make.take()]] if looped else []
        self._repeat(bodies, int(self.plan.passing))
        if self.plan.passing:
            last = self.decoder.attentions[-1].key.name
            Cached(self.make, self.plan.kept[last]).again()
        if self.graph is not self.decoder:
            self._keep(after)

    def _keep(self, ops: Sequence[Op]) -> None:
        """Add the keys and values of a source for every layer of the decoder."""
        linears = [op for op in ops if isinstance(op, Linear)]
        bodies: list[list[Node]] = []
        for key, value in zip(linears[::2], linears[1::2], strict=True):
            keep_source(self.make, key, value)
            bodies += [[*self.make.take()]] if self.plan.resident else []
        self._repeat(bodies, 1)

    def _section(self, ops: Sequence[Op]) -> None:
        """Add a layer's operations; the sums of some are drained by the step that takes them."""
        waiting: list[Product] = []
        for step in steps(ops):
            match step.op:
                case Norm():
                    self.make.norm(step.op)
                case Attention():
                    TokenAttention(self.make, step.op).add(waiting)
                    waiting = []
                case Linear(residual=True):
                    if waiting:
                        self._hidden(waiting)
                        waiting = []
                    self.make.residual(step.op, step.behind)
                case Linear():
                    waiting.append((step.op, step.behind))

    def _repeat(self, bodies: Sequence[Sequence[Node]], apart: int) -> None:
        """Add iterations of a loop but for the first ``apart``, which wait for less than others."""
        self._nodes += [node for body in bodies[:apart] for node in body]
        self._nodes += [Repeat(bodies[apart:])] if bodies[apart:] else []

    def _load_pairs(self) -> None:
        pairs = self.plan.rows_tables["places"]
        most = (pairs.rows - self.rows) * pairs.stride
        addr = given(Register.PLACE, most, pairs.addr)
        self.make.stage.add(load(pairs.place, addr, self.make.m, pairs.stride))

    def _hidden(self, layers: Sequence[Product]) -> None:
        """Add the hidden layer part by part, each multiplied while the one before is drained.

        What comes behind it takes each part as soon as it is there.
        """
        result = (layers[-1][0], *layers[-1][1])[-1].target
        slots = {op.target.name: self.make.table(op) for op, _ in layers if op.table is not None}
        parts = self.plan.ffn_parts
        for place, (first, end) in enumerate(parts):
            tiles = first, end - first
            for op, _ in layers:
                self.make.linear(op, "h", self._sums(op, first), tiles=tiles)
            for op, behind in layers:
                self._drain(op, behind, slots.get(op.target.name, 0), tiles)
            # The part before is there by now, and so is a share of the product behind it.
            if place:
                self.make.came(result, parts[place - 1][1] * self.config.cols)

    def _sums(self, op: Linear, tile: int) -> int:
        """Return the first accumulator row of a product's tile column."""
        return self.make.sums(op) + tile * self.make.stride(op)

    def _drain(
        self, op: Linear, behind: Sequence[Rowwise], slot: int, tiles: tuple[int, int]
    ) -> None:
        """Add what makes some tile columns of the hidden layer, or of its gate, of sums."""
        column, width = tiles[0] * self.config.cols, self.model.ffn

        def part(tensor: Tensor) -> View:
            return View(Ref(kind(tensor), column), width)

        acc, flags, target, beside = self._sums(op, tiles[0]), op.look_up, part(op.target), None
        for gate in behind:
            assert isinstance(gate, Gate), "nothing else is behind a hidden layer"
            flags, slot = ("times",), gate.source.zero
            target, beside = part(gate.target), part(gate.source)
        self.make.drain(
            op, acc, target, *flags, beside=beside, table=slot, tiles=tiles, behind=behind
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
                addr = self.plan.scores.addr + 2 * first * cols
                self.make.stage.add(store(target, addr, 1, size))
            bodies.append(self.make.take())
        # The last one may have shorter parts.
        self._repeat(bodies[:-1], 1)
        self._nodes += bodies[-1]

    def _scores(self, place: int, first: int, count: int, most: int, target: Ref) -> None:
        """Add the scores of some tile columns, at most so many, in the place-th part."""
        acc = self.make.acc(f"head{place % 2}", most * BANKS) + place % 2
        head = self.plan.head
        self.make.linear(head, self._last_row(), acc, tiles=(first, count))
        flags = ("wide_out", "argmax") if self.config.argmax else ("wide_out",)
        index = first * self.config.cols if self.config.argmax else 0
        view, tiles = View(target, 2 * self.model.vocabulary), (first, count)
        self.make.drain(head, acc, view, *flags, tiles=tiles, table=index, row=True)

    def _last_row(self) -> Ref | Given:
        """Return where the last token's normalized row is."""
        if self.rows == 1:
            return Ref("h")
        return given(Register.LAST, self.model.dim * (self.rows - 1), Ref("h"))

    def _head_parts(self) -> list[tuple[int, int]]:
        """Return (first, count) of tile columns of the head that are requantized at once."""
        matrix, cols = self.plan.matrices[self.plan.head.target.name], self.config.cols
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
