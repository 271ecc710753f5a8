"""Instructions that all programs of a decoder use: linear layers and requantizations."""

from collections.abc import Sequence
from dataclasses import dataclass

from celosia.arch.formats import PLANES
from celosia.generators.graph.operations import Convert, Gate, Linear, Norm, Op, Rotary
from celosia.generators.graph.quantized import TextGraph
from celosia.generators.graph.tensors import Tensor
from celosia.generators.lower.accumulators import BANKS
from celosia.generators.lower.blocks import Part
from celosia.generators.lower.instructions import (
    Count,
    View,
    Work,
    rowwise,
    table,
)
from celosia.generators.lower.plan import (
    HIDDEN,
    PAIRS,
    QUERIES,
    Plan,
    identity_of,
    kind,
    layer_of,
)
from celosia.generators.lower.products import Matrix
from celosia.generators.lower.residence import Register, Words
from celosia.generators.lower.rules import Rules
from celosia.generators.lower.staging import WORDS
from celosia.generators.lower.walk import Rowwise
from celosia.generators.program.draft import Given, Node, Ref, Written

ODD = QUERIES | {"up", "hidden"}
"""Products whose sums are in the odd rows: others are drained while they are multiplied."""


BEHIND = HIDDEN | {"mlp_sum", "head0", "head1"}
"""Names of sums that exist when those of attention do not."""


@dataclass
class Instructions(Rules):
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
        self.decoder = self.plan.decoder
        self.model = self.decoder.description
        pre = self.model.placement == "pre"
        super().__init__(self.plan.stage, self.plan.blocks, lasting=True, pre=pre)
        self.m: int | Given = Given(self.register, self.rows)
        if self.rows == self.texts:
            self.m = self.rows
        linears = (op for op in self.graph.ops if isinstance(op, Linear))
        self._takers = {op.source.name: op for op in linears if op.residual}
        self.whole: Part = (0, self.rows)
        """First and count of all rows."""
        self._ready: dict[tuple[str, Part], int] = {}

    @property
    def apart(self) -> list[Part]:
        """Ranges of rows, [(first, count)]; each range has separate products and requantizations.

        Usually all rows are one range. If a run processes one token of each of several texts, it
        has one row for each text. The plan decides whether each of these rows is a range.
        """
        separate = self.texts > 1 and self.plan.cuts.apart
        return [(text, 1) for text in range(self.texts)] if separate else [self.whole]

    def acc(self, name: str, rows: int) -> int:
        """Return the first accumulator row of the sums ``name``, which is the same for each call.

        The first call reserves ``rows`` rows for them. Sums of attention may share rows with sums
        of the MLP or of the output head, which are written later. The first product of a low-rank
        correction does not share rows with its layer.
        """
        return self.accumulators.named(name, rows, later=name.removesuffix("_thin") in BEHIND)

    def stride(self, op: Linear) -> int:
        """Return the distance (in accumulator rows) between the sums of adjacent tile columns.

        A tile column is as wide as the array. If a run may have several rows, the distance is
        ``rows``, the largest number of rows in a run. The output head always has one row.

        For one row, the distance is 2, but for the output projection of attention it is 1. The
        accumulators have two banks: even rows and odd rows. With distance 2, all sums of a product
        are in one bank, and can be requantized while another product writes the other bank.
        """
        if self.rows > 1 and op is not self.plan.head:
            return self.rows
        return 1 if op.source.name in self.plan.contexts else BANKS

    def sums(self, op: Linear, tile: int = 0) -> int:
        """Return the accumulator row at which tile column ``tile`` of a layer's sums begins."""
        columns = self.plan.matrices[op.target.name].columns(op, self.config.array.cols)
        name, tiles = kind(op.target), -(-columns // self.config.array.cols)
        first = self.acc(name, tiles * self.stride(op)) + (self.rows == 1 and name in ODD)
        return first + tile * self.stride(op)

    def take(self) -> list[Node]:
        """Return the instructions that were added since the previous call of this method.

        Instructions that are added later do not use the words that these instructions have loaded
        to the parameter memory. The later instructions load their requantization words again, from
        word 0 of this memory on.
        """
        self._word, self._brought = 0, ((), [])
        return self.stage.take()

    def bring_table(self, op: Linear) -> None:
        """Add the instruction that loads a layer's activation table from external memory.

        Nothing is added if tables stay on the chip, or if the layer has no table.
        """
        if self.plan.way.passing and op.table is not None:
            place = self.stage.piece(self.plan.passing_tables[op.target.name], WORDS)
            self.stage.add(table(place, self.plan.tables[op.target.name]))

    def linear(
        self,
        op: Linear,
        source: View | None = None,
        *,
        rows: Part | None = None,
        acc: int | None = None,
        tiles: tuple[int, int] | None = None,
        split: int | None = None,
    ) -> None:
        """Add the instructions that multiply rows by a linear layer's weights.

        ``source`` is the view of the rows, by default the layer's source. All rows are multiplied
        by all tile columns of the weights (each as wide as the array), unless ``rows`` or ``tiles``
        (first, count) restrict them. The rows of the weights may be divided into ranges. If
        ``split`` is given, only the products of range number ``split`` are added. The sums are
        written to the layer's accumulator rows, or to the rows from ``acc`` on.

        If the layer has a low-rank correction, the call for the last range of weight rows also adds
        the correction's two products. The first product is only added if ``tiles`` begins at tile
        column 0. Later tile columns use its requantized result again.
        """
        matrix, low, rows = self.plan.matrices[op.target.name], op.low_rank, rows or self.whole
        tiles = tiles or (0, -(-op.target.columns // self.config.array.cols))
        acc = (self.sums(op, matrix.place(tiles[0])) if acc is None else acc) + rows[0]
        last = len(matrix.splits) - 1
        splits = range(last + 1) if split is None else [split]
        if low is not None and splits[-1] == last and tiles[0] == 0:
            self.linear(low.first, source, rows=rows)
            self.drain(low.first, rows=rows)
        sums = View(acc, self.stride(op))
        for product in self.products(op, matrix, splits, rows, sums, tiles, source):
            self.stage.add(product)

    def drain(
        self,
        op: Linear,
        target: View | None = None,
        *flags: str,
        rows: Part | None = None,
        acc: int | None = None,
        tiles: tuple[int, int] | None = None,
        table: int = 0,
        factor: int = 0,
        behind: Sequence[Rowwise] = (),
    ) -> None:
        """Add the DRAIN that requantizes the sums of a layer, and writes the result.

        - ``rows`` and ``tiles`` (first, count) are the rows and the tile columns (each as wide as
          the array), by default all.
        - ``acc`` is the first accumulator row, by default that of the layer's sums.
        - ``target`` is the view of the result, by default the buffer of the result's tensor.
        - ``behind`` are the rowwise operations after the layer. If the first is a gate or a
          rotation, the DRAIN computes it as well.
        - ``flags`` are further instruction flags, and ``table`` is an operand. For an activation, a
          rotation or a gate, the method chooses the operand.
        - ``factor`` is the number of the factor for row 0. It is used if the layer reads rows of a
          deferred norm, which has stored a factor for each row.
        """
        name, cols, groups = op.target.name, self.config.array.cols, self.config.lane_groups
        matrix, beside, rows = self.plan.matrices[name], None, rows or self.whole
        columns = matrix.columns(op, cols)
        first, count = tiles or (0, columns)
        end = min(columns, (first + count) * cols)
        match behind[:1]:
            case (Gate() as gate,):
                beside = self.blocks[gate.source.buffer].view(rows[0], first * cols)
                table = gate.source.zero
            case (Rotary() as rotary,):
                beside, table = self._pairs(rotary, rows[0]), self.decoder.key_dim
            case _ if op.table is not None:
                table = self.plan.tables[name]
        acc = (self.sums(op, first) if acc is None else acc) + rows[0]
        whole = self._words(matrix)
        last = min(whole.count, -(-end // cols) * groups)
        (words,) = self.params((whole, first * groups, last - first * groups))
        sums, part = View(acc, self.stride(op)), (first * cols, end - first * cols)
        drains = self.requantize(
            op,
            sums,
            rows,
            part,
            words,
            *flags,
            target=target,
            behind=behind,
            table=table,
            beside=beside,
            factor=factor,
        )
        self.stage.add(*drains)

    def run_rows(self, first: int, count: int, total: int) -> Count:
        """Return the number of rows that a run processes, of ``count`` rows of a tensor.

        If ``count`` is less than the largest number of rows of a run, the result is ``count``.
        Otherwise it is the number of all rows of the run, usually a register that the host writes
        before each run. ``first`` and ``total`` have no effect.
        """
        return count if count < self.rows else self.m

    def _words(self, matrix: Matrix) -> Words:
        """Return the parameter words of a product, of the planes that are read."""
        return matrix.words[min(self.planes, len(matrix.words)) - 1]

    def _pairs(self, op: Rotary, text: int) -> View:
        """Return the rotations of the tokens' places, from a text's on."""
        table = self.plan.rows_tables["places"]
        if self.plan.turning:
            return View(self.plan.turned(layer_of(op.target), text), table.stride)
        rows, here = table.rows, self.plan.way.rows_stay
        if self.plan.rotates_keys:
            # Those of all tokens are there.
            rows, here = self.plan.cache.capacity, self.register is not Register.COUNT
        if self.texts > 1:
            place = Ref(PAIRS) if here else table.place
            return View(place.behind(text * table.stride), table.stride)
        most = (rows - self.rows) * table.stride
        return View(Given(Register.PLACE, most, table.place) if here else table.place, table.stride)

    def norm(self, op: Op) -> None:
        """Add the instructions of ``op``, a norm or a conversion that reads the residual stream.

        All rows of the residual stream are normalized or converted.
        """
        (words,) = self.params((self.plan.words[op.target.name], 0, 0))
        for _, nodes in self.chunks([op], [words], self.apart):
            self.stage.add(*nodes)

    def norm_heads(self, op: Linear, behind: Sequence[Rowwise]) -> tuple[Linear, Sequence[Rowwise]]:
        """Add the instructions that compute queries or keys and normalize each head.

        ``op`` is the product that computes the queries or keys. ``behind`` are the operations after
        the product: a norm, a conversion and possibly rotations.

        The method adds only the product and the norm. It returns the conversion and the list of
        rotations, which the caller adds. The conversion is returned as a linear layer: a product of
        the normalized heads and an identity matrix, which writes the heads to the accumulators.
        """
        norm, convert, *rotated = behind
        assert isinstance(norm, Norm), "heads are normalized first"
        assert isinstance(convert, Convert), "then they become sums"
        assert isinstance(self.m, int), "programs of heads' norms have no chunks"
        self.linear(op)
        self.drain(op)
        (words,) = self.params((self.plan.words[norm.target.name], 0, 0))
        source, target = (
            View(self.blocks[end.buffer].place(0, 0), norm.width * end.element)
            for end in (norm.source, norm.target)
        )
        rows, written = self.m * norm.heads, Written(norm.target.name)
        self.stage.add(rowwise(norm, Work(source, target, rows, norm.width, words, written)))
        return identity_of(convert, self.model.head_dim, self.config), rotated

    def multiply_ready(self, tensor: Tensor, columns: int, rows: Part | None = None) -> None:
        """Add the products of a layer that need only the first ``columns`` columns of its input.

        The layer reads ``tensor`` and adds its result to the residual stream. If its weights stay
        on the chip, their rows may be divided into ranges. Each range has a partial product, which
        reads only some input columns. Partial products that an earlier call has added are omitted.

        Streamed weights have a single product, which is added only if ``columns`` is all columns.
        ``rows`` (first, count) restricts the product to some rows.
        """
        rows = rows or self.whole
        op = self._takers[tensor.name]
        matrix, name = self.plan.matrices[op.target.name], op.target.name
        ends = [parts[-1].held.rows.stop for parts in matrix.splits]
        done = max(self._ready.get((name, part), 0) for part in (self.whole, rows))
        for split in range(done, sum(end <= columns for end in ends)):
            self.linear(op, split=split, rows=rows)
            self._ready[name, rows] = split + 1

    def residual(self, op: Linear, behind: Sequence[Rowwise]) -> None:
        """Complete a layer that adds its result to the residual stream.

        First the method adds the partial products that :meth:`multiply_ready` has not added yet.
        Then it adds the instructions that requantize the sums and add them to the residual stream.
        Last, it adds the instructions of the operations ``behind``: the norm of the next layer's
        input, or several norms and conversions.
        """
        step, *others = behind
        for rows in self.apart:
            self.multiply_ready(op.source, op.source.columns, rows)
        matrix = self.plan.matrices[op.target.name]
        both = (self._words(matrix), 0, 0), (self.plan.words[step.target.name], 0, 0)
        fits = sum(operands.count for operands, _, _ in both) <= self.config.vector.words
        if self.plan.way.passing and not (self.config.fused and fits):
            for rows in self.apart:
                self.drain(op, rows=rows)
            others = [*behind]
        else:
            pre, words = self.params(*both)
            sums, columns = View(self.sums(op), self.stride(op)), (0, op.target.columns)
            for rows in self.apart:
                drains = self.requantize(op, sums.behind(rows[0]), rows, columns, pre)
                chunks = self.chunks([step], [words], [rows])
                self.stage.add(*self.settle(drains, chunks))
        for other in others:
            self.norm(other)
