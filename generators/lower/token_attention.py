"""Attention instructions of a decoder, for one text in a run.

For one token, query heads that share keys are usually rows of one product. For several tokens of a
prompt, each head has separate products.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from celosia.arch.isa import DEFINITIONS, Opcode
from celosia.generators.graph.network import Home
from celosia.generators.graph.operations import Attention, Linear
from celosia.generators.lower.attention import Layout, Rows, Softmax, Step, Steps
from celosia.generators.lower.blocks import by_rows
from celosia.generators.lower.cached import Cached
from celosia.generators.lower.heads import Heads
from celosia.generators.lower.plan import INPUTS, context_of, part
from celosia.generators.lower.projections import Instructions
from celosia.generators.lower.residence import Register
from celosia.generators.lower.walk import Rowwise
from celosia.generators.lower.windows import span
from celosia.generators.program.draft import Draft, Given, Ref
from celosia.generators.program.layout import aligned

FOLLOWS = (18, 16)
"""Cycles of parallel products above which a softmax is cut in two, without ``registered`` and with
it: the second command needs additional words."""

LONG = 16
"""Beats of a key head's scores from which on a softmax of one of several texts is cut: shorter ones
wait for each other, as one at a time follows another."""


class TokenAttention(Heads):
    """Makes the instructions that compute one layer's attention for one text.

    A run may process several texts. Each text then has a separate object. The queries of a run are
    those of one token of the text, or of a chunk of tokens.
    """

    def __init__(self, make: Instructions, op: Attention, text: int):
        self.make, self.plan, self.model = make, make.plan, make.model
        self.rows = make.rows // make.texts
        self.kept = kept = make.plan.kept[op.key.name][text]
        self.text, self.last = text, text == make.texts - 1
        self.parts = self.plan.cuts.key_parts if self.last else [(0, self.model.kv_heads)]
        """Key heads (first, end) whose contexts are drained at once, beside a product of them."""
        self.cached = Cached(make, kept)
        self.all = make
        """Maker of instructions for all tokens whose keys and values are made."""
        if kept.made:
            self.all = type(make)(self.plan, kept.capacity, make.graph, make.planes, kept.register)
            self.cached = Cached(self.all, kept)
        several = make.config.fused and make.texts > 1
        self._whole = make.config.beat_lanes >= make.config.array.cols
        """A softmax takes a row of sums in one cycle, of each tile column of a head."""
        self.tiles = -(-op.head_dim // make.config.array.cols)
        """Tile columns of a head's context."""
        super().__init__(make, op, self._layout(op, odd=bool(several and self._whole)))
        cycles = op.group * -(-kept.capacity // self.config.array.cols)
        first = several and not text and self.rows == 1
        self.ahead = first and cycles > DEFINITIONS[Opcode.MATMUL].words
        """All products of scores come before the first softmax, and before the values' drain.

        This is so for the first of several texts if softmaxes take sums and products run longer
        than their commands take to be sent. As queues hold few commands, they would otherwise wait
        for commands that wait for the vector engine.
        """

    def _layout(self, op: Attention, *, odd: bool) -> Layout:
        """Return the addresses of the text's queries, keys, values, scores and probabilities.

        Products of two heads write rows of even and odd numbers alternately. A softmax that reads a
        row of the same parity in each cycle would wait for every other one. If its rows alternate
        in parity, too (``odd``), it waits for one of three.
        """
        kept, heads, starts = self.kept, self.model.heads, self.plan.cuts.query_starts
        # A weight slot may hold the keys of several heads, one head below the other.
        slots = self.plan.data_placement.key_heads
        config, queries = self.make.config, replace(op.query, buffer="query", rows=self.make.rows)
        above = (head // op.group % slots * op.key_dim for head in range(heads))
        # The tokens of a chunk attend to one place more each.
        step = int(self.rows > 1 and kept.grows)
        limit = Given(Register.LIMIT, kept.capacity) if step else kept.count
        seen = span(op, config, kept.capacity, 0, self.rows)
        seen = replace(seen, limit=limit, limit_step=step)
        stride = aligned(kept.capacity, config)
        # Each text has a place for the scores of its token, of all heads.
        size = stride * (self.rows if self.rows > 1 else heads)
        places = [place * size for place in range(2)]
        return Layout(
            m=self.rows,
            n=kept.capacity,
            spans={(0, self.rows): seen},
            query=by_rows(replace(queries, columns=starts[-1]), config.scratchpad.bytes, config),
            queries=[
                (start - k, k + op.key_dim) for start, k in zip(starts[:-1], above, strict=True)
            ],
            keys=self.cached.attended("keys", op.key, op.key_dim),
            values=self.cached.attended("values", op.value, op.head_dim),
            places={
                "scores": [Ref("scores", 2 * place) for place in places],
                "probabilities": [Ref("probabilities", place) for place in places],
            },
            words=self.plan.words,
            tiles=config.accumulators.depth,
            odd=odd,
            beside=self.rows > 1 or self._beside(op),
            by_row=self.plan.cuts.by_row,
            seen=kept.count,
            sums="scores" if kept.grows else "source_scores",
            row=self.text,
            # Those of norms come before, and of texts before.
            factor=self.make.texts + self.text * heads,
        )

    def make_all(self, name: str, op: Linear, behind: Sequence[Rowwise]) -> None:
        """Append instructions that compute the keys, or the values, of all tokens in the cache.

        - ``name``: ``keys`` or ``values``.
        - ``op``: the linear layer that computes them from cached inputs of attention.
        - ``behind``: the operations after this layer, such as a rotary embedding.
        """
        parts, target = self.plan.recomputed_parts(op), self.cached.target(name)
        rows = self.kept.capacity * max(end - first for first, end in parts)
        for place, (first, end) in enumerate(parts):
            tiles, acc = (first, end - first), self.all.acc(f"made{place % 2}", rows)
            part = target.behind(first * self.config.array.cols)
            self.all.linear(op, self.cached.rows(INPUTS), acc=acc, tiles=tiles)
            self.all.drain(op, part, acc=acc, tiles=tiles, behind=behind)

    def token_steps(self, drain: Callable[[], None] | None = None) -> tuple[Steps, ...]:
        """Return three lists of functions that yield an attention's instructions for one token.

        - List 0: one function, for scores and probabilities.
        - List 1: products of probabilities and values, a function for each range of key heads.
        - List 2: requantization of these products, a function for each range of key heads.

        ``drain`` appends the requantization of the token's values, and is called after the first
        product. It must be None if :attr:`ahead` is false.
        """
        products: list[list[Rows | Callable[[], None]]] = []
        softmaxes: list[list[Softmax]] = []
        for begin, count, followed in self._turns():
            # Where a row of sums leaves in one cycle, those of one head at a time go to one bank,
            # and those before leave the other one. Of two texts as many instructions would take
            # longer.
            alone = begin and self.make.texts == 1 and self._whole
            together, end = 1 if alone else self.op.group, begin + count
            products.append([*self._heads(begin, end, together)])
            flags = ("followed",) if followed else ()
            # One for each run of equal heads.
            runs = ((max(first, begin), min(first + many, end)) for first, many in self.runs)
            softmaxes.append([Softmax([*self._heads(*run)], flags) for run in runs])
        if drain is not None:
            products[0].insert(1, drain)
        if self.text:
            # Keys follow the scores of the previous text, since its softmax waits for those.
            products[0].insert(0, self.cached.append_keys)
        if self.op.key.home is not Home.SOURCE and self.make.texts == 1:
            products[-1].append(self.cached.append_values)
        both = [products, softmaxes] if self.ahead else zip(products, softmaxes, strict=True)
        step = Step([*chain(*chain(*both))], self.model.heads)
        group = self.op.group
        parts = [[*self._heads(first * group, end * group, group)] for first, end in self.parts]
        mixes: Steps = [partial(self._mixes, rows) for rows in parts]
        return (
            [partial(self.probabilities, step)],
            mixes,
            [partial(self._drains, rows) for rows in parts],
        )

    def _turns(self) -> list[tuple[int, int, bool]]:
        """Return the softmaxes of one token: first head, count, and whether another one follows.

        A softmax that reads sums from the accumulators may be split into two instructions. The
        first one overlaps with the scores of the other heads, and the second one with the products
        of values.
        """
        heads, capacity, config = self.model.heads, self.kept.capacity, self.config
        group, several = self.op.group, self.make.texts > 1
        first = -(-self.model.kv_heads // 2) * group
        if several:
            # What reads a row of sums in each cycle waits in every other one for products beside
            # it: the second part, which these are beside, is the shorter one then.
            most = max(1, self.model.kv_heads // 2) if self._whole else 1
            first = heads - group if self.last else most * group
        follows = config.fused is not None and len(self.runs) == 1
        scores = (heads - first) * -(-capacity // config.array.cols) * (self.text == 0)
        values = first * -(-capacity // config.array.rows) * self.tiles * self.last
        beats = group * -(-capacity // config.beat_lanes)
        cut = scores + values > FOLLOWS[config.control.registered] and (
            not several or beats >= LONG
        )
        if follows and first < heads and cut:
            return [(0, first, True), (first, heads - first, not self.last)]
        return [(0, heads, follows and not self.last)]

    def _heads(self, first: int, end: int, together: int = 1) -> Iterator[Rows]:
        """Yield one token's rows of heads, as many ``together`` as are rows of one product."""
        for head in range(first, end, together):
            yield Rows(head, 0, 1, together, place=self.text, at=head)

    def _mixes(self, heads: Sequence[Rows]) -> Iterator[Draft]:
        """Yield the products of one token's probabilities and values of some heads."""
        if self.make.texts > 1 and not heads[0].head:
            # Values follow the scores of all texts, since a softmax waits for those.
            self.cached.append_values()
        for share in self.sums(heads):
            yield from self.mixes(heads, *share)

    def _drains(self, heads: Sequence[Rows]) -> Iterator[Draft]:
        """Yield one token's contexts of some heads, and add the product that takes them."""
        for share in self.sums(heads):
            yield from self.drains(heads, *share)
        columns = (heads[-1].head + self.op.group) * self.op.head_dim
        for rows in self.make.apart:
            if sum(rows) == self.text + 1:
                self.make.multiply_ready(self.op.target, columns, rows)

    def _beside(self, op: Attention) -> bool:
        """Return whether heads are tile columns of a drain, with equally many words or one for all.

        The heads of rows of one product are side by side if each is one tile column.
        """
        counts = {
            self.plan.words[f"{op.target.name}.{head}"].count for head in range(len(op.heads))
        }
        # Factors are of tile columns, and so of heads that have one each.
        beside = self.tiles == 1 or (op.group == 1 and not op.deferred)
        whole = not op.head_dim % self.make.config.array.cols and not self.plan.cuts.by_row
        alike = part(context_of(op), 0, op.target.columns).per_tensor
        return beside and whole and (alike or counts == {self.tiles * self.make.config.lane_groups})

    def chunk_steps(self) -> tuple[Steps, ...]:
        """Return two lists of functions that yield an attention's instructions for several tokens.

        Function i of list 0 computes the probabilities of head i, and function i of list 1 their
        products with values. The method also appends instructions that write the new tokens' values
        to weight slots, if values stay in slots.
        """
        self.cached.append_values()
        return self.steps(range(self.model.heads))
