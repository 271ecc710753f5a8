"""Common instructions of a decoder's programs: linear layers and drains."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from celosia.arch.formats import PLANES
from celosia.arch.isa import FACTOR_SHIFT
from celosia.generators.graph.network import Home
from celosia.generators.graph.operations import Convert, Gate, Linear, Norm, Rotary
from celosia.generators.graph.quantized import TextGraph
from celosia.generators.graph.tensors import Tensor
from celosia.generators.lower.accumulators import BANKS, Accumulators
from celosia.generators.lower.instructions import (
    Count,
    View,
    Work,
    drain,
    fused,
    parameters,
    rowwise,
    table,
)
from celosia.generators.lower.plan import (
    HIDDEN,
    PAIRS,
    QUERIES,
    Matrix,
    Plan,
    identity_of,
    kind,
    layer_of,
)
from celosia.generators.lower.products import Product
from celosia.generators.lower.residence import Register, Words, check_at_once
from celosia.generators.lower.staging import THIN, WORDS
from celosia.generators.lower.walk import Rowwise
from celosia.generators.program.draft import Draft, Given, Ref, Written, flatten
from celosia.generators.program.image import Piece

ODD = QUERIES | {"up", "hidden"}
"""Products whose sums are in the odd rows: others are drained while they are multiplied."""


BEHIND = HIDDEN | {"mlp_sum", "head0", "head1"}
"""Names of sums that exist when those of attention do not."""


@dataclass
class Instructions:
    """Makes the instructions of one decoder program, one after another."""

    plan: Plan
    rows: int
    """Most tokens of a run; 1 for a step."""
    graph: TextGraph
    """The operations that run: a decoder's, or those of a source's encoder."""
    planes: int = len(PLANES)
    """Planes of nested weights that are read."""
    register: Register = Register.ROWS
    """The register with the number of rows of a run of several."""
    texts: int = 1
    """Number of texts; if there are several, the run processes one token of each, and these are its
    rows."""

    def __post_init__(self) -> None:
        """Store values that do not change."""
        self.config, self.decoder = self.plan.config, self.plan.decoder
        self.stage = self.plan.stage
        self.model = self.decoder.description
        self.memory = self.plan.memory
        self.m: int | Given = Given(self.register, self.rows)
        if self.rows == self.texts:
            self.m = self.rows
        linears = (op for op in self.graph.ops if isinstance(op, Linear))
        self._takers = {op.source.name: op for op in linears if op.residual}
        self._ready: dict[tuple[str, int | None], int] = {}
        self._accumulators = Accumulators(self.config, self.model.name)
        self._word = 0
        self._brought: tuple[tuple[tuple[Words, int, int], ...], list[int]] = (), []

    @property
    def apart(self) -> Sequence[int | None]:
        """Texts whose rows are multiplied and drained one by one; ``[None]`` for all at once."""
        return range(self.texts) if self.texts > 1 and self.plan.apart else [None]

    def acc(self, name: str, rows: int) -> int:
        """Return the first of ``rows`` accumulator rows for the sums with a name.

        Attention and MLP may share rows: all sums of attention are drained before the sums of an
        MLP, or of the output head, are computed.
        """
        return self._accumulators.named(name, rows, later=name in BEHIND)

    def stride(self, op: Linear) -> int:
        """Return the distance between tile columns of a product's sums (accumulator rows).

        Rows alternate between two banks. The product of one token uses the rows of one bank, so
        that it can be drained while another product writes the other bank. Attention's contexts are
        different. They are drained from both banks beside the output projection, which uses both
        banks alternately.
        """
        if self.rows > 1:
            return self.rows
        return 1 if op.source.name in self.plan.contexts else BANKS

    def sums(self, op: Linear, tile: int = 0) -> int:
        """Return the first accumulator row of a tile column of a product's sums."""
        columns = self.plan.matrices[op.target.name].columns(op, self.config.array.cols)
        name, tiles = kind(op.target), -(-columns // self.config.array.cols)
        first = self.acc(name, tiles * self.stride(op)) + (self.rows == 1 and name in ODD)
        return first + tile * self.stride(op)

    def take(self) -> list[Draft]:
        """Return the instructions added since the last call.

        Later parameter words reuse the same addresses.
        """
        self._word, self._brought = 0, ((), [])
        return self.stage.take()

    def params(self, *wanted: tuple[Words, int, int]) -> list[int]:
        """Return the address of each range of parameter words in the parameter memory.

        A range is (words, index of the first word, number of words); a number of 0 stands for all
        words. Words in external memory are loaded, unless exactly these ranges were loaded last.
        """
        if wanted == self._brought[0]:
            return self._brought[1]
        places = []
        depth = self.config.vector.words
        ranges = [(kept, first, count or kept.count - first) for kept, first, count in wanted]
        total = sum(count for _, _, count in ranges)
        if self.plan.passing:
            check_at_once(self.model.name, self.config, total)
        if self._word + total > depth:
            self._word = 0
        for block, first, count in ranges:
            if not block.stride:
                places.append(block.first + first)
                continue
            piece = Piece(block.first + first * block.stride, count, block.stride)
            place = self.stage.piece(piece, WORDS, self.config.param_lines * self.config.line_bytes)
            self.stage.add(parameters(place, count, self._word))
            places.append(self._word)
            self._word += count
        self._brought = wanted, places
        return places

    def bring_table(self, op: Linear) -> None:
        """Load an activation's table from external memory, if tables are streamed."""
        if self.plan.passing and op.table is not None:
            place = self.stage.piece(self.plan.passing_tables[op.target.name], WORDS)
            self.stage.add(table(place, self.plan.tables[op.target.name]))

    def linear(
        self,
        op: Linear,
        source: str | Given | Ref | View,
        *,
        acc: int | None = None,
        tiles: tuple[int, int] | None = None,
        split: int | None = None,
        text: int | None = None,
    ) -> None:
        """Add the product of rows and a linear layer's weights.

        ``source`` is a buffer, a view, or the address of one row. ``tiles`` (first, count)
        restricts the product to tile columns, ``split`` to a part, and ``text`` to the row of one
        text. Sums are in the layer's accumulator rows, or from ``acc`` on. A low-rank correction is
        added with the last part; the first tile columns also compute its thin tensor.
        """
        matrix, low = self.plan.matrices[op.target.name], op.low_rank
        single = isinstance(source, Given | Ref)
        place = Ref(source) if isinstance(source, str) else source
        view = place if isinstance(place, View) else View(place, op.source.stride)
        tiles = tiles or (0, -(-op.target.columns // self.config.array.cols))
        acc = self.sums(op, matrix.place(tiles[0])) if acc is None else acc
        stride, m = BANKS if single else self.stride(op), 1 if single else self.m
        if text is not None:
            view, acc, m = self._rows(view, text), acc + text, 1
        own = matrix.splits if split is None else [matrix.splits[split]]
        parts = [part for each in own for part in each if part.plane < self.planes]
        thin = None if low is None or own[-1] is not matrix.splits[-1] else low.first
        made = view
        if thin:
            made = self._rows(View(Ref(thin.target.buffer), thin.target.columns), text)
        if thin and tiles[0] == 0:
            self.linear(thin, source, text=text)
            self.drain(thin, made, row=single, text=text)
        for run, behind, distance in matrix.runs(*tiles):
            sums = View(acc + behind * stride, distance * stride)
            self._multiply(parts, view, sums, m, run, matrix.stage)
            if thin:
                self._multiply(matrix.correction, made, sums, m, run, THIN)

    def _multiply(
        self,
        parts: Sequence[Product],
        source: View,
        sums: View,
        m: Count,
        tiles: tuple[int, int],
        stage: str,
    ) -> None:
        """Add the products of rows and the parts' weights in some tile columns (first, count)."""
        assert not isinstance(source.place, int)
        for part in parts:
            held_product = part.within(tiles[0], sum(tiles), self.config.array.cols)
            if held_product is None:
                continue
            if isinstance(held_product.place, Piece):
                held_product = replace(
                    held_product, place=self.stage.piece(held_product.place, stage)
                )
            offset = held_product.held.rows.start * held_product.op.source.element
            rows = View(place_behind(source.place, offset), source.stride)
            self.stage.add(held_product.draft(rows, sums, m, self.config))

    def drain(
        self,
        op: Linear,
        target: View,
        *flags: str,
        acc: int | None = None,
        tiles: tuple[int, int] | None = None,
        table: int = 0,
        row: bool = False,
        factor: int = 0,
        text: int | None = None,
        behind: Sequence[Rowwise] = (),
    ) -> None:
        """Add the requantization of a layer's sums, or of some tile columns (first, count).

        With ``row`` only one row is drained, with the row factor of index ``factor``. The same
        instruction also applies the first operation ``behind``. ``text`` restricts the drain to the
        row of one text.
        """
        name, cols, groups = op.target.name, self.config.array.cols, self.config.lane_groups
        matrix, beside = self.plan.matrices[name], None
        match behind[:1]:
            case (Gate() as gate,):
                # Its rows are placed like the target's.
                assert isinstance(target.place, Ref)
                place = Ref(kind(gate.source), target.place.offset)
                name, beside = gate.target.name, View(place, target.stride)
                table = gate.source.zero
            case (Rotary() as rotary,):
                name, beside = rotary.target.name, self._pairs(rotary, text or 0)
                table = self.decoder.key_dim
            case _ if op.table is not None:
                table = self.plan.tables[name]
        columns = matrix.columns(op, cols)
        first, count = tiles or (0, columns)
        acc = (self.sums(op, first) if acc is None else acc) + (text or 0)
        end = min(columns, (first + count) * cols)
        whole = self._words(matrix)
        last = min(whole.count, -(-end // cols) * groups)
        (words,) = self.params((whole, first * groups, last - first * groups))
        words = factored(words, text or factor) if op.factors else words
        sums = View(acc, BANKS if row else self.stride(op))
        m = 1 if row or text is not None else self.m
        n, written = end - first * cols, Written(name)
        work = Work(sums, target, m, n, words, written)
        self.stage.add(drain(op, work, *flags, behind=behind, table=table, beside=beside))

    def _words(self, matrix: Matrix) -> Words:
        """Return the parameter words of a product, of the planes that are read."""
        return matrix.words[min(self.planes, len(matrix.words)) - 1]

    def _pairs(self, op: Rotary, text: int) -> View:
        """Return the rotations of the tokens' places, from a text's on."""
        table = self.plan.rows_tables["places"]
        if self.plan.turning:
            return View(self.plan.turned(layer_of(op.target), text), table.stride)
        rows, here = table.rows, self.plan.rows_stay
        if self.plan.rotates_keys:
            # Those of all tokens are there.
            rows, here = self.plan.cache.capacity, self.register is not Register.COUNT
        if self.texts > 1:
            place = Ref(PAIRS) if here else table.place
            return View(place_behind(place, text * table.stride), table.stride)
        most = (rows - self.rows) * table.stride
        return View(Given(Register.PLACE, most, table.place) if here else table.place, table.stride)

    def norm(self, op: Norm | Convert) -> None:
        """Add the norm or the conversion of all rows of the residual stream."""
        (words,) = self.params((self.plan.words[op.target.name], 0, 0))
        for text in self.apart:
            self.stage.add(self._norm(op, words, text))

    def _norm(self, op: Norm | Convert, words: int, text: int | None) -> Draft:
        dim, written = self.model.dim, Written(op.target.name)
        target = self._rows(self._normed(op.target), text)
        m, source = self.m if text is None else 1, self._rows(self.stream(op.source), text)
        if isinstance(op, Norm) and op.deferred:
            words = factored(words, text or 0)
        return rowwise(op, Work(source, target, m, dim, words, written))

    def norm_heads(self, op: Linear, behind: Sequence[Rowwise]) -> tuple[Linear, Sequence[Rowwise]]:
        """Add queries or keys up to the norm of each head; return the product that rotates them."""
        norm, convert, *rotated = behind
        assert isinstance(norm, Norm), "heads are normalized first"
        assert isinstance(convert, Convert), "then they become sums"
        assert isinstance(self.m, int), "programs of heads' norms have no chunks"
        self.linear(op, "h")
        self.drain(op, View(Ref(op.target.buffer), op.target.stride))
        (words,) = self.params((self.plan.words[norm.target.name], 0, 0))
        source, target = (
            View(Ref(end.buffer), norm.width * end.element) for end in (norm.source, norm.target)
        )
        rows, written = self.m * norm.heads, Written(norm.target.name)
        self.stage.add(rowwise(norm, Work(source, target, rows, norm.width, words, written)))
        return identity_of(convert, self.model.head_dim, self.config), rotated

    def source(self, op: Linear) -> str:
        """Return the buffer of a projection's input: the layer's, or that of normalized heads."""
        return op.source.buffer if op.source.name.endswith("_normed") else "h"

    def _normed(self, tensor: Tensor) -> View:
        """Return the rows of a norm's or a conversion's result: of the stream, or a layer's."""
        if tensor.home is Home.STREAM:
            return self.stream(tensor)
        return View(Ref("h"), tensor.stride)

    def _rows(self, view: View, text: int | None) -> View:
        """Return all rows of a view, or the one of a text."""
        assert not isinstance(view.place, int)
        return View(place_behind(view.place, (text or 0) * view.stride), view.stride)

    def stream(self, tensor: Tensor) -> View:
        """Return the view of the residual stream, which has two buffers if norms are of sums."""
        return View(Ref("x" if tensor.buffer == "stream" else "normed"), 2 * self.model.dim)

    def multiply_ready(self, tensor: Tensor, columns: int, text: int | None = None) -> None:
        """Add the partial products that need only the first ``columns`` columns of a tensor.

        The product belongs to the linear layer that reads the tensor. Partial products are added
        only once. If weights are streamed, the product is added as a whole. ``text`` restricts the
        product to the row of one text.
        """
        op = self._takers[tensor.name]
        matrix, name = self.plan.matrices[op.target.name], op.target.name
        ends = [parts[-1].held.rows.stop for parts in matrix.splits]
        done = max(self._ready.get((name, of_text), 0) for of_text in (None, text))
        for split in range(done, sum(end <= columns for end in ends)):
            self.linear(op, kind(tensor), split=split, text=text)
            self._ready[name, text] = split + 1

    def residual(self, op: Linear, behind: Sequence[Rowwise]) -> None:
        """Add the rest of a product, the addition to the residual stream, and the operations after.

        The operations ``behind`` are the norm of the next layer's input, or several norms and
        conversions.
        """
        step, *others = behind
        assert isinstance(step, Norm | Convert), "no decoder has others"
        self._sum(op, step)
        for one in others:
            assert isinstance(one, Norm | Convert), "no decoder has others"
            self.norm(one)

    def _sum(self, op: Linear, step: Norm | Convert) -> None:
        """Add a product's sum to the residual stream, and the first step after it."""
        for text in self.apart:
            self.multiply_ready(op.source, op.source.columns, text)
        matrix, x = self.plan.matrices[op.target.name], self.stream(op.target)
        both = (self._words(matrix), 0, 0), (self.plan.words[step.target.name], 0, 0)
        fits = sum(operands.count for operands, _, _ in both) <= self.config.vector.words
        if not self.config.fused or (self.plan.passing and not fits):
            for text in self.apart:
                own = self._rows(x, text)
                self.drain(op, own, text=text)
            self.norm(step)
            return
        pre, words = self.params(*both)
        written = Written(op.target.name)
        for text in self.apart:
            own, m = self._rows(x, text), self.m if text is None else 1
            sums = View(self.sums(op) + (text or 0), self.stride(op))
            work = Work(sums, own, m, op.target.columns, pre, written)
            keep = self.model.placement == "pre"
            self.stage.add(
                *flatten(fused([drain(op, work), self._norm(step, words, text)], keep=keep))
            )


def factored(words: int, first: int) -> int:
    """Return the operand that contains a parameter word's address and a row factor's number."""
    return words + (first << FACTOR_SHIFT)


def place_behind(place: Ref | Given, offset: int) -> Ref | Given:
    """Return the scratchpad address ``offset`` bytes after another address."""
    if isinstance(place, Ref):
        return Ref(place.buffer, place.offset + offset)
    assert isinstance(place.base, Ref)
    return Given(place.register, place.most, Ref(place.base.buffer, place.base.offset + offset))
