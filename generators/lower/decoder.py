"""Instructions of a decoder's embeddings, layers and output head.

Each tensor has one row for each token of a run. A run processes the tokens of a prompt chunk, or
the next token of each text. A program is compiled for a fixed largest number of tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from celosia.arch.isa import Opcode
from celosia.generators.graph.operations import Attention, Linear, Norm, Op
from celosia.generators.lower.accumulators import BANKS
from celosia.generators.lower.attend import attend, keep_source
from celosia.generators.lower.cached import Cached
from celosia.generators.lower.instructions import View, Work
from celosia.generators.lower.moves import load, store
from celosia.generators.lower.plan import PAIRS
from celosia.generators.lower.projections import Instructions
from celosia.generators.lower.residence import Register, of_text
from celosia.generators.lower.staging import STAGES
from celosia.generators.lower.walk import Product, Step, ending_ahead
from celosia.generators.program.draft import Given, Node, Ref, Written, repeat

STREAM = Ref("x")
"""Place of the residual stream's first row."""


@dataclass
class Layers(Instructions):
    """Makes the instructions of a decoder's program: embeddings, layers and output head.

    In an encoder-decoder, the class also makes the encoder's program, which has no output head.
    """

    _nodes: list[Node] = field(default_factory=list)
    _waiting: list[Product] = field(default_factory=list)
    """Products whose sums are drained by the step that uses them."""
    _turned: bool = False
    """True if the rotations of the tokens' places are loaded."""

    def done(self) -> list[Node]:
        """Return all instructions that this object's methods have appended, in execution order."""
        return [*self._nodes, *self.take()]

    def bring_rotations(self) -> None:
        """Append instructions that bring rotary embedding rows of a run to the scratchpad.

        A row has the cosines and sines of one token's position. Nothing is appended in three cases:
        the model has no rotary embedding, the method was called before, or the layers can read the
        whole table in the scratchpad.
        """
        here = self.plan.data_placement.rows_stay and self.texts == 1 and not self.plan.turning
        if self.decoder.rotary is not None and not here and not self._turned:
            self._bring_pairs()
        self._turned = True

    def embed(
        self, row: int, word: int, place: int, first: Ref | Given = STREAM, *, behind: int = 0
    ) -> None:
        """Append instructions that write the embedding of one token to row ``row`` of a tensor.

        - ``first``: scratchpad address of the tensor's row 0.
        - ``word``: register with the byte offset of the token's row in the vocabulary table.
        - ``place``: register with a byte offset in the position table. The token's position is the
          row ``behind`` rows after this offset.
        """
        embedding, dim = self.graph.embedding, self.model.dim
        name = embedding.target.name
        flags, beside = list[str](), None
        own = name.replace("embedding", "words")
        table = own if own in self.plan.rows_tables else "words"
        vector = View(self._row(table, word, row, 0), 0)
        (words,) = self.params((self.plan.words[name], 0, 0))
        if embedding.positions is not None:
            table = name.replace("embedding", "places")
            beside = View(self._row(table, place, row, behind), 0)
            flags.append("add")
        if embedding.rescale.per_tensor:
            flags.append("per_tensor")
        target, written = View(first.behind(2 * dim * row), 0), Written(name)
        work = Work(vector, target, 1, dim, words, written)
        self.stage.add(work.requantize(Opcode.MAP, *flags, tensor=embedding.target, beside=beside))

    def _row(self, name: str, register: int, row: int, behind: int) -> Ref | Given:
        """Return the place of the row of a table that a register selects, or load it."""
        table = self.plan.rows_tables[name]
        most = (table.rows - 1 - behind) * table.stride
        if self.plan.data_placement.rows_stay:
            base = Ref(table.place.buffer, behind * table.stride)
            return Given(register, most, base)
        place = Ref(table.place.buffer, row * table.stride)
        addr = Given(register, most, table.addr + behind * table.stride)
        self.stage.add(load(place, addr, 1, table.stride))
        return place

    def layers(self) -> None:
        """Append the instructions of all layers, up to the norm before the output head.

        The layers are iterations of a loop if weights stay on the chip, or if each run loads
        requantization parameters. The encoder of an encoder-decoder has no output head: the keys
        and values for all decoder layers follow instead.
        """
        before, *layers, after = ending_ahead(self.graph)
        rows_stay = self.plan.data_placement.rows_stay
        # Only the first layer waits for the loads of rotations, so it is before the loop.
        waits = self.plan.cuts.resident and not rows_stay and not self._turned
        self.bring_rotations()
        self.lower_section(before[1:])
        looped = self.plan.cuts.resident or self.plan.data_placement.passing
        self._nodes += self.take() if looped else []
        bodies: list[list[Node]] = []
        for layer in layers:
            self.lower_section(layer)
            bodies += [self.take()] if looped else []
        self._nodes += repeat(bodies, int(self.plan.data_placement.passing or waits))
        if self.plan.data_placement.passing:
            last = self.decoder.attentions[-1].key.name
            Cached(self, self.plan.kept[last][0]).complete_synchronization()
        if self.graph is not self.decoder:
            self._keep(after)

    def _keep(self, ops: Sequence[Op]) -> None:
        """Add the keys and values of a source for every layer of the decoder."""
        linears = [op for op in ops if isinstance(op, Linear)]
        bodies: list[list[Node]] = []
        for key, value in zip(linears[::2], linears[1::2], strict=True):
            keep_source(self, key, value)
            bodies += [self.take()] if self.plan.cuts.resident else []
        self._nodes += repeat(bodies, 1)

    def lower_attention(self, step: Step) -> None:
        """Add the instructions of an attention, with its projections to queries, keys and values.

        ``step.op`` is the attention. The output projection is a separate operation.
        """
        assert isinstance(step.op, Attention)
        attend(self, step.op, self._waiting)
        self._waiting = []

    def lower_linear(self, step: Step) -> None:
        """Append a linear layer's instructions to the program, now or with a later operation.

        - Output projection of attention or MLP: now. For an MLP, its earlier layers come first.
        - Queries or keys with a norm of each head: product and norm now.
        - Other layers: with the attention, or with the MLP's output projection.
        """
        assert isinstance(step.op, Linear)
        if not step.op.residual:
            heads = bool(step.behind) and isinstance(step.behind[0], Norm)
            product = step.op, step.behind
            self._waiting.append(self.norm_heads(*product) if heads else product)
            return
        if self._waiting:
            self._hidden(self._waiting)
            self._waiting = []
        self.residual(step.op, step.behind)

    def _bring_pairs(self) -> None:
        """Add loads of the rotations that do not stay; copy those that do for several texts.

        So the rows of one instruction have them at the same distance, for any places of the texts.
        """
        pairs, stays = self.plan.rows_tables["places"], self.plan.data_placement.rows_stay
        if self.plan.rotates_keys:
            count = Given(Register.COUNT, self.plan.cache.capacity)
            self.stage.add(load(pairs.place, pairs.addr, count, pairs.stride))
            return
        if self.plan.turning:
            self._bring_turns()
            return
        target, m = Ref(PAIRS) if stays else pairs.place, self.m if self.texts == 1 else 1
        for text in range(self.texts):
            register, place = of_text(Register.PLACE, text), target.behind(text * pairs.stride)
            self._bring_turn(register, place, m, pairs.stride, pairs.stride)

    def _bring_turns(self) -> None:
        """Copy the rotations of the tokens' places to every layer that rotates, or load them.

        Tokens of a chunk are copied to a layer at once, single tokens to a run of layers.
        """
        chunk, rows = self.rows > self.texts, max(self.plan.data_placement.rows, self.texts)
        stride = self.plan.rows_tables["places"].stride
        for first, rotates, count in self.plan.turning:
            for text in range(self.texts if rotates else 0):
                register = of_text(Register.PLACE, text)
                for layer in range(first, first + count) if chunk else [first]:
                    place = self.plan.turned(layer, text)
                    steps = (stride, stride) if chunk else (0, rows * stride)
                    self._bring_turn(register, place, self.m if chunk else count, *steps)

    def _bring_turn(
        self, register: int, place: Ref, m: int | Given, source_step: int, step: int
    ) -> None:
        """Copy or load ``m`` rows of rotations from the place in a register on."""
        pairs = self.plan.rows_tables["places"]
        most = (pairs.rows - self.rows + self.texts - 1) * pairs.stride
        if self.plan.data_placement.rows_stay:
            source = View(Given(register, most, pairs.place), source_step)
            (word,) = self.params((self.plan.words[PAIRS], 0, 0))
            work = Work(source, View(place, step), m, pairs.stride // 2, word, Written(PAIRS))
            self.stage.add(work.requantize(Opcode.MAP, "wide_in", "wide_out", "per_tensor"))
            return
        loading = load(place, Given(register, most, pairs.addr), m, pairs.stride, step=step)
        self.stage.add(replace(loading, operands={**loading.operands, "dram_stride": source_step}))

    def _hidden(self, layers: Sequence[Product]) -> None:
        """Add the hidden layer part by part, each multiplied while the previous one is drained.

        Later operations use each part as soon as it is there.
        """
        for op, _ in layers:
            self.bring_table(op)
        parts = self.plan.cuts.ffn_parts
        for place, (first, end) in enumerate(parts):
            tiles = first, end - first
            # Where rows are apart one text's sums are drained beside the next one's product.
            for op, _ in layers:
                for rows in self.apart:
                    self.linear(op, tiles=tiles, rows=rows)
            for op, behind in layers:
                for rows in self.apart:
                    self.drain(op, tiles=tiles, behind=behind, rows=rows)
            # The part before is there by now, and so is a share of the product behind it.
            if place:
                ready = parts[place - 1][1] * self.config.array.cols
                self.multiply_ready((op, *behind)[-1].target, ready)

    def head(self, text: int = 0) -> None:
        """Append the instructions of the output head: the vocabulary's scores for one token.

        In a run of several texts, the token is that of text number ``text``; in a run of one text,
        it is the last token. The scores are written to the scratchpad buffer ``logits`` or, if each
        run loads requantization parameters, to external memory.
        """
        passing, bodies = self.plan.data_placement.passing, list[list[Node]]()
        cols = self.config.array.cols
        parts = self.plan.head_parts if passing else self._head_parts()
        most = max(count for _, count in parts)
        for index, (first, count) in enumerate(parts):
            half, column = index % 2, first * cols
            acc = self.acc(f"head{half}", most * BANKS) + half
            target = Ref(f"logits{half}") if passing else Ref("logits", 2 * column)
            self._scores(first, count, acc, target, text)
            if not passing:
                continue
            size = min(2 * count * cols, self.plan.logits_bytes - 2 * column)
            self.stage.add(store(target, self.plan.scores.addr + 2 * column, 1, size))
            if index % STAGES == STAGES - 1 or index == len(parts) - 1:
                bodies.append(self.take())
        # The last one may have shorter parts.
        self._nodes += [*repeat(bodies[:-1], 1), *bodies[-1]] if passing else []

    def _scores(self, first: int, count: int, acc: int, target: Ref, text: int) -> None:
        """Add the scores of some tile columns of a text, whose sums are from ``acc`` on."""
        head = self.plan.head
        row = self.blocks[head.source.buffer].view(text, 0)
        if self.rows > self.texts:
            assert isinstance(row.place, Ref)
            last = Given(Register.LAST, self.model.dim * (self.rows - 1), row.place)
            row = View(last, row.stride)
        where: dict[str, Any] = {"acc": acc, "tiles": (first, count), "rows": (0, 1)}
        self.linear(head, row, **where)
        flags = ("argmax",) if self.config.vector.argmax else ()
        index = first * self.config.array.cols if self.config.vector.argmax else 0
        view = View(target, 2 * self.model.vocabulary)
        self.drain(head, view, *flags, **where, table=index, factor=text)

    def _head_parts(self) -> list[tuple[int, int]]:
        """Return (first, count) of tile columns of the head that are requantized at once."""
        matrix, cols = self.plan.matrices[self.plan.head.target.name], self.config.array.cols
        total = -(-self.model.vocabulary // cols)
        starts = [*range(total)]
        if not self.plan.cuts.resident:
            starts = sorted({part.held.tile for part in matrix.splits[0]})
        parts: list[tuple[int, int]] = []
        for first, end in pairwise([*starts, total]):
            if parts and end - parts[-1][0] <= self.plan.cuts.head_tiles:
                parts[-1] = parts[-1][0], end - parts[-1][0]
            else:
                parts.append((first, end - first))
        return parts
