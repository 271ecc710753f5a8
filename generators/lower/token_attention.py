"""Attention instructions for one token of a text, or for a chunk: several tokens at once.

For one token, the query heads that share keys are rows of one product. The scores of all heads are
adjacent rows, so that one softmax instruction can process many heads. For a chunk, each head has
separate products.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from celosia.arch.isa import DEFINITIONS, Opcode
from celosia.generators.graph.network import Home
from celosia.generators.graph.operations import Attention, Linear
from celosia.generators.lower.attention import WRITTEN, drain_context, mix, score, softmax
from celosia.generators.lower.cached import Cached
from celosia.generators.lower.instructions import Count, View, Work, factored
from celosia.generators.lower.plan import context_of, part, runs
from celosia.generators.lower.projections import Instructions
from celosia.generators.lower.residence import Register
from celosia.generators.lower.walk import Rowwise
from celosia.generators.program.draft import Given, Ref, Written
from celosia.generators.program.layout import aligned

FOLLOWS = (18, 16)
"""Cycles of parallel products above which a softmax is cut in two, without ``registered`` and with
it: the second command needs additional words."""

LONG = 16
"""Beats of a key head's scores from which on a softmax of one of several texts is cut: shorter ones
wait for each other, as one at a time follows another."""

Step = Callable[[], None]
"""Adds instructions."""
Steps = list[Step]
"""Steps in this order."""


class TokenAttention:
    """Makes the attention instructions of one layer, for one of the texts in a run."""

    def __init__(self, make: Instructions, op: Attention, text: int):
        self.make, self.plan, self.config = make, make.plan, make.config
        self.rows = make.rows // make.texts
        self.op, self.model, self.kept = op, make.model, make.plan.kept[op.key.name][text]
        self.text, self.last = text, text == make.texts - 1
        self.factor = make.texts + text * self.model.heads
        """Number of the first head's factor: those of norms come before, and of texts before."""
        self.query = Ref("query", text * self.plan.query_stride(op))
        self.parts = self.plan.cuts.key_parts if self.last else [(0, self.model.kv_heads)]
        """Key heads (first, end) whose contexts are drained at once, beside a product of them."""
        self.cached = Cached(make, self.kept)
        self.all = make
        """Maker of instructions for all tokens whose keys and values are made."""
        if self.kept.made:
            everything = self.kept.capacity, make.graph, make.planes, self.kept.register
            self.all = type(make)(self.plan, *everything)
            self.cached = Cached(self.all, self.kept)
        self.runs = runs(op.scores, self.model.heads)
        """Query heads (first, count) whose scores have the same parameters."""
        self.acc = f"scores.{text}" if self.kept.grows else "source_scores"
        """Name of the accumulators of one token's scores."""
        self.context = context_of(op)
        self.tiles = -(-op.head_dim // self.config.array.cols)
        """Tile columns of a head's context."""
        self.stride = aligned(self.kept.capacity, self.config)
        """Bytes from row to row of probabilities, and half of those of scores."""
        several = self.config.fused and make.texts > 1
        cycles = op.group * -(-self.kept.capacity // self.config.array.cols)
        long = cycles > DEFINITIONS[Opcode.MATMUL].words
        self.ahead = several and not text and self.rows == 1 and long
        """All products of scores come before the first softmax, and before the values' drain.

        This is so for the first of several texts if softmaxes take sums and products run longer
        than their commands take to be sent. As queues hold few commands, they would otherwise wait
        for commands that wait for the vector engine.
        """
        self._before = text * self.model.heads * self.stride
        self._whole = self.config.beat_lanes >= self.config.array.cols
        """A softmax takes a row of sums in one cycle, of each tile column of a head."""
        self._apart = self.model.heads | 1 if several and self._whole else self.model.heads
        """Accumulator rows from tile column to tile column of a head's scores.

        Products of two heads write rows of even and odd numbers alternately. A softmax that reads a
        row of the same parity in each cycle would wait for every other one. If its rows alternate
        in parity, too, it waits for one of three.
        """

    def make_all(self, name: str, op: Linear, behind: Sequence[Rowwise]) -> None:
        """Add instructions that compute the keys or the values of all tokens of the text.

        They are computed from the attention's inputs, which the cache stores. ``name`` is ``keys``
        or ``values``. ``op`` is the linear layer that computes them, and ``behind`` are the rowwise
        operations after it. The tile columns of the layer are divided into parts whose sums need at
        most half of the accumulators. The parts are computed one after another.
        """
        parts, target = self.plan.made_parts(op), self.cached.target(name)
        rows = self.kept.capacity * max(end - first for first, end in parts)
        for place, (first, end) in enumerate(parts):
            tiles, acc = (first, end - first), self.all.acc(f"made{place % 2}", rows)
            part = target.behind(first * self.config.array.cols)
            self.all.linear(op, self.cached.inputs(), acc=acc, tiles=tiles)
            self.all.drain(op, part, acc=acc, tiles=tiles, behind=behind)

    def of_one(self, drain: Step | None = None) -> tuple[Steps, ...]:
        """Return three lists of functions that add the instructions for the attention of one token.

        The first list has one function, for the scores and their softmax. The other lists have one
        function for each range of key heads in ``self.parts``. A function of the second list adds
        the products of probabilities and values (V). A function of the third list adds the
        requantization of these products' sums to the results of the attention. The query heads that
        share a key head are rows of one product.

        ``drain`` is a function that adds the requantization of the new token's values (V). If
        ``self.ahead`` is true, the products that compute the scores of all heads precede the first
        softmax, and ``drain`` is called after the first of these products. If ``self.ahead`` is
        false, ``drain`` is not called.

        A softmax that reads sums from the accumulators may be split into two instructions for
        different heads. The first instruction overlaps with the scores of the other heads, and the
        second instruction with the products with V.
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
        parts = [(0, heads, follows and not self.last)]
        scores = (heads - first) * -(-capacity // config.array.cols) * (self.text == 0)
        values = first * -(-capacity // config.array.rows) * self.tiles * self.last
        beats = group * -(-capacity // config.beat_lanes)
        cut = scores + values > FOLLOWS[config.control.registered] and (
            not several or beats >= LONG
        )
        if follows and first < heads and cut:
            parts = [(0, first, True), (first, heads - first, not self.last)]
        # The steps of all parts have these sums.
        self.make.acc(self.acc, -(-capacity // config.array.cols) * self._apart)

        def probabilities() -> None:
            if self.text:
                # Behind the scores of the text before, which its softmax waits for.
                self.cached.append_keys()
            for begin, count, _ in parts if self.ahead else ():
                self._products(begin, count, None if begin else drain)
            for begin, count, followed in parts:
                if not self.ahead:
                    self._products(begin, count)
                self._softmaxes(begin, count, followed)

        sums: Steps = [partial(self._sums, place) for place in range(len(self.parts))]
        contexts: Steps = [partial(self._contexts, place) for place in range(len(self.parts))]
        return [probabilities], sums, contexts

    def _products(self, begin: int, count: int, behind: Step | None = None) -> None:
        """Add scores of one token's heads, and the step after the first product."""
        heads, acc = self.model.heads, self.make.acc(self.acc, 0)
        # Where a row of sums leaves in one cycle, those of one head at a time go to one bank, and
        # those before leave the other one. Of two texts as many instructions would take longer.
        alone = begin and self.make.texts == 1 and self._whole
        together = 1 if alone else self.op.group
        for head in range(begin, begin + count, together):
            above = self.cached.above(head // self.op.group)
            width = (above + self.op.key_dim) * self.op.query.element
            self._score(head, width, View(acc + head, self._apart), together)
            if behind is not None and head == begin:
                behind()
        if begin + count == heads and self.op.key.home is not Home.SOURCE and self.make.texts == 1:
            self.cached.append_values()

    def _softmaxes(self, begin: int, count: int, followed: bool) -> None:
        """Add the softmaxes of one token's heads, one for each run of equal heads."""
        acc = self.make.acc(self.acc, 0)
        for first, many in self.runs:
            head, end = max(first, begin), min(first + many, begin + count)
            sums, at = View(acc + head, self._apart), head * self.stride
            self._softmax(head, sums, at, end - head, *(["followed"] if followed else []))

    def _sums(self, place: int) -> None:
        """Add the products of one token's probabilities and values of some key heads."""
        (first, end), group = self.parts[place], self.op.group
        acc, count = self._context(place)
        if self.make.texts > 1 and not first:
            # Behind the scores of all texts, which a softmax waits for.
            self.cached.append_values()
        for head in range(first, end):
            sums = View(acc + (head - first) * group, count)
            if self._by_tile:
                sums = View(acc + (head - first) * group * self.tiles, 1)
            self._mix(head, head * group * self.stride, sums, group)

    def _contexts(self, place: int) -> None:
        """Add one token's context of the heads of some key heads, which are rows."""
        (first, end), group, width = self.parts[place], self.op.group, self.op.head_dim
        acc, count = self._context(place)
        stride = width * self.op.target.element
        if self.plan.cuts.by_row:
            self._drain(first * group, View(acc, count), stride, count, "per_row")
        elif self._by_tile:
            self._drain(first * group, View(acc, 1), stride, 1, heads=count)
        else:
            for row in range(count):
                self._drain(first * group + row, View(acc + row, count), stride, 1)
        if self.text in self.make.apart:
            self.make.multiply_ready(self.op.target, end * group * width, self.text)
        elif self.last:
            self.make.multiply_ready(self.op.target, end * group * width)

    def _context(self, place: int) -> tuple[int, int]:
        """Return accumulator row and row count of the context of some key heads."""
        first, end = self.parts[place]
        count = (end - first) * self.op.group
        return self.make.acc(f"context{place}.{self.text}", self.tiles * count), count

    @property
    def _by_tile(self) -> bool:
        """True if the heads are tile columns of a drain, with equally many words or one for all.

        The heads of rows of one product are side by side if each is one tile column.
        """
        name, heads = self.op.target.name, range(self.model.heads)
        counts = {self.plan.words[f"{name}.{head}"].count for head in heads}
        beside = self.tiles == 1 or self.op.group == 1
        whole = (
            beside and self.op.head_dim % self.config.array.cols == 0 and not self.plan.cuts.by_row
        )
        # Factors are of tile columns, and so of heads that have one each.
        whole = whole and (self.tiles == 1 or not self.op.deferred)
        alike = part(self.context, 0, self.op.target.columns).per_tensor
        return whole and (alike or counts == {self.tiles * self.config.lane_groups})

    def of_chunk(self) -> tuple[Steps, ...]:
        """Return two lists of functions; each function adds instructions for the tokens of a chunk.

        Each list has a function for each head. The functions of the first list add the instructions
        that compute the scores and their softmax. The functions of the second list add the
        instructions that multiply probabilities by values and requantize the sums. This gives the
        head's context, the result of its attention.
        """
        op, m, rows = self.op, self.make.m, self.rows
        tiles, width = (-(-n // self.config.array.cols) for n in (self.kept.capacity, op.head_dim))

        def probabilities(head: int) -> None:
            sums = View(self.make.acc(f"scores{head % 2}", tiles * rows), rows)
            self._score(head, self.plan.query_stride(op), sums, m)
            self._softmax(head, sums, head % 2 * rows * self.stride, m)

        def context(head: int) -> None:
            sums = View(self.make.acc(f"context{head % 2}", width * rows), rows)
            self._mix(head // op.group, head % 2 * rows * self.stride, sums, m)
            self._drain(head, sums, op.target.stride, m)

        self.cached.append_values()
        heads = range(self.model.heads)
        return [partial(probabilities, n) for n in heads], [partial(context, n) for n in heads]

    def _score(self, head: int, stride: int, sums: View, m: Count) -> None:
        """Add the product of rows of queries, ``stride`` bytes apart, and a key head's keys."""
        op, key_head = self.op, head // self.op.group
        (keys, flags), above = self.cached.keys(key_head), self.cached.above(key_head)
        first = (self.plan.cuts.query_starts[head] - above) * op.query.element
        query = View(self.query.behind(first), stride)
        flags |= {"a_wide"} if op.query.wide else set()
        made = score(op, query, keys, sums, m, self.kept.count, *flags, above=above)
        self.make.stage.add(made)

    def _mix(self, key_head: int, at: int, sums: View, m: Count) -> None:
        """Add the product of the probabilities from a column on and a key head's values."""
        assert isinstance(sums.place, int)
        weights = View(Ref("probabilities", self._before + at), self.stride)
        for column, n, values, flags in self.cached.values(key_head):
            part = View(sums.place + column // self.config.array.cols * sums.stride, sums.stride)
            self.make.stage.add(mix(self.op, weights, values, part, m, self.kept.count, n, *flags))

    def _softmax(self, head: int, sums: View, at: int, m: Count, *flags: str) -> None:
        """Add the softmax of rows of sums, through the scratchpad if necessary.

        It is written ``at`` bytes after the first probabilities.
        """
        capacity, n = self.kept.capacity, self.kept.count
        (first,) = (first for first, count in self.runs if first <= head < first + count)
        (word,) = self.make.params((self.plan.words[f"{self.op.prefix}.scores.{first}"], 0, 0))
        at += self._before
        target = View(Ref("probabilities", at), self.stride)
        work = Work(sums, target, m, n, word, Written(f"{self.op.prefix}.probabilities"))
        # The tokens of a chunk attend to one place more each.
        step = int(self.rows > 1 and self.kept.grows)
        limit = Given(Register.LIMIT, capacity) if step else n
        if self.config.fused:
            flags = ("drain", *flags)
        else:
            scores = View(Ref("scores", 2 * at), 2 * self.stride)
            drained = replace(work, target=scores).requantize(Opcode.DRAIN, *WRITTEN)
            self.make.stage.add(drained)
            work = replace(work, source=scores, params=word + 1)
        if self.op.deferred:
            work = replace(work, params=factored(work.params, self.factor + head))
        made = softmax(self.op, head, work, *flags, limit=limit, limit_step=step)
        self.make.stage.add(made)

    def _drain(
        self, head: int, sums: View, stride: int, m: Count, *flags: str, heads: int = 1
    ) -> None:
        """Add the requantization of a head's context, or of several ``heads``' side by side.

        With ``per_row`` the number of heads is that of rows.
        """
        made, width = self.op.target, self.op.head_dim
        # Parameters of the next heads follow; each row, or tile column, uses those of its head.
        alike = not flags and part(self.context, head * width, heads * width).per_tensor
        count = m if flags and isinstance(m, int) else 0
        if heads > 1 and not alike:
            count = heads * self.tiles * self.config.lane_groups
        (words,) = self.make.params((self.plan.words[f"{made.name}.{head}"], 0, count))
        offset = self.text * made.stride + head * width * made.element
        target = View(Ref("context", offset), stride)
        flags = flags or (("per_tensor",) if alike else ())
        if self.op.deferred:
            flags += ("factors", *(("by_tile",) if heads > 1 else ()))
            words = factored(words, self.factor + head)
        written = Written(made.name)
        work = Work(sums, target, m, heads * width, words, written)
        self.make.stage.add(drain_context(self.op, work, *flags))
