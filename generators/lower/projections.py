"""Instructions of a decoder's linear layers, norms and requantizations.

Each of the decoder's programs is made by an object of the class :class:`Instructions`.
"""

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
from celosia.generators.lower.residence import Register, Words
from celosia.generators.lower.rules import Rules
from celosia.generators.lower.staging import WORDS, Rows
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
        """Groups of activation rows (first, count) that a linear layer processes one after another.

        Usually all rows are one group. If a run processes one token of each of several texts, each
        row may be a group.
        """
        separate = self.texts > 1 and self.plan.cuts.apart
        return [(text, 1) for text in range(self.texts)] if separate else [self.whole]

    def acc(self, name: str, rows: int) -> int:
        """Reserve ``rows`` accumulator rows for the sums ``name``, and return the first row.

        A later call with this name returns the same row. Sums of the MLP and of the output head may
        share rows with other sums, such as those of attention. Raises :class:`FitError` if there
        are too few rows.
        """
        return self.accumulators.named(name, rows, later=name.removesuffix("_thin") in BEHIND)

    def stride(self, op: Linear) -> int:
        """Return the distance (accumulator rows) between the sums of successive tile columns.

        A tile column is as wide as the array.

        - Output head: 2.
        - Other layers, if a run may have several rows: :attr:`rows`.
        - Other layers, if each run has one row: 1 for attention's output projection, otherwise 2.
        """
        if self.rows > 1 and op is not self.plan.head:
            return self.rows
        # Distance 2 leaves one bank to another product. Beside attention's output projection,
        # contexts are requantized from both banks.
        return 1 if op.source.name in self.plan.contexts else BANKS

    def sums(self, op: Linear, tile: int = 0) -> int:
        """Return the accumulator row at which a layer's sums for tile column ``tile`` begin.

        A tile column is a range of output columns as wide as the array.
        """
        columns = self.plan.matrices[op.target.name].columns(op, self.config.array.cols)
        name, tiles = kind(op.target), -(-columns // self.config.array.cols)
        first = self.acc(name, tiles * self.stride(op)) + (self.rows == 1 and name in ODD)
        return first + tile * self.stride(op)

    def take(self) -> list[Node]:
        """Return the instructions that were appended since the previous call of this method.

        Instructions that are appended after this call load their requantization parameters
        themselves, so that they do not depend on the returned instructions.
        """
        self._word, self._brought = 0, ((), [])
        return self.stage.take()

    def bring_table(self, op: Linear) -> None:
        """Append the instructions that load the activation table of the layer ``op``.

        They copy the table from external memory to the scratchpad, and then to the vector engine.
        Nothing is appended if tables stay on the chip, or if the layer has no table.
        """
        if self.plan.data_placement.passing and op.table is not None:
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
        """Append instructions that multiply activations by a linear layer's weights.

        - ``source``: the activations, by default the layer's input.
        - ``rows``, ``tiles``: activation rows and tile columns (first, count), by default all.
        - ``split``: index of a range of weight rows, by default all ranges.
        - ``acc``: accumulator row for activation row 0 in the first tile column of ``tiles``.

        For a layer with a low-rank correction, the first call must include tile column 0.
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
        """Append the DRAIN instructions that requantize a linear layer's sums and write the result.

        - ``target``: address of the result, by default its scratchpad buffer.
        - ``rows``, ``tiles``: rows and tile columns (first, count), by default all.
        - ``acc``: accumulator row for row 0 of the first tile column.
        - ``table``: with the flag ``argmax`` (column of the largest score), index of the first
          column.
        - ``factor``: for the output head, number of the text whose row is requantized.
        - ``behind``: operations after the layer. If a rotation or gate is first, DRAIN computes it.
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
        whole = self._words_of(op)
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

    def row_operand(self, first: int, count: int, total: int) -> Count:
        """Return the operand for the number of activation rows that an instruction processes.

        If runs have different numbers of rows, and ``count`` is the largest, the operand reads the
        number from a register (:class:`Given`). Otherwise it is ``count``. ``first`` and ``total``
        have no effect.
        """
        return count if count < self.rows else self.m

    def _words_of(self, op: Op) -> Words:
        """Return an operation's parameter words, for a product those of the planes in use."""
        if not isinstance(op, Linear):
            return self.plan.words[op.target.name]
        words = self.plan.matrices[op.target.name].words
        return words[min(self.planes, len(words)) - 1]

    def _pairs(self, op: Rotary, text: int) -> View:
        """Return the rotations of the tokens' places, from a text's on."""
        table = self.plan.rows_tables["places"]
        if self.plan.turning:
            return View(self.plan.turned(layer_of(op.target), text), table.stride)
        rows, here = table.rows, self.plan.data_placement.rows_stay
        if self.plan.rotates_keys:
            # Those of all tokens are there.
            rows, here = self.plan.cache.capacity, self.register is not Register.COUNT
        if self.texts > 1:
            place = Ref(PAIRS) if here else table.place
            return View(place.behind(text * table.stride), table.stride)
        most = (rows - self.rows) * table.stride
        return View(Given(Register.PLACE, most, table.place) if here else table.place, table.stride)

    def words_together(self, ops: Sequence[Linear | Rowwise]) -> int:
        """Return the number of parameter words that the operations ``ops`` need at the same time.

        A parameter word has requantization parameters of some columns. The result is 0 if all
        parameters stay on the chip. It is also 0 if ``ops`` begins with a linear layer whose result
        is not added to the residual stream.
        """
        passing = self.plan.data_placement.passing
        if not passing or (isinstance(ops[0], Linear) and not ops[0].residual):
            return 0
        return sum(self._words_of(op).count for op in ops)

    def rowwise(self, label: str, ops: Sequence[Rowwise]) -> Rows:
        """Return the instructions of successive norms and conversions, for all rows of a tensor.

        For each group of rows (:attr:`apart`), the instructions apply all operations. The method
        also appends the loads of the operations' requantization parameters to the program.
        ``label`` has no effect.
        """
        words = self.params(*((self._words_of(op), 0, 0) for op in ops))
        return Rows(chunks=self.chunks(ops, words, self.apart))

    def norm_heads(self, op: Linear, behind: Sequence[Rowwise]) -> tuple[Linear, Sequence[Rowwise]]:
        """Append instructions that compute queries or keys, and normalize the columns of each head.

        ``op`` is the linear layer of the queries or keys. A norm, a conversion and possibly
        rotations follow it in ``behind``. The result is (conversion as a linear layer, rotations),
        whose instructions the caller must append.
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
        """Append the products of a linear layer with those input columns that are already computed.

        - ``tensor``: input of the layer, whose result is added to the residual stream.
        - ``columns``: number of input columns that are computed, from column 0 on.
        - ``rows``: range (first, count), by default all rows.

        Products that an earlier call has appended are not appended again.
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
        """Append the instructions of a linear layer and of the addition to the residual stream.

        Products come first, except those that :meth:`multiply_ready` has appended. Then, for each
        group of rows (:attr:`apart`), the layer's result is added to the stream, and the norms and
        conversions in ``behind`` follow.
        """
        for rows in self.apart:
            self.multiply_ready(op.source, op.source.columns, rows)
        own, *others = self.params(*((self._words_of(each), 0, 0) for each in (op, *behind)))
        waiting = self.chunks(behind, others, self.apart)
        sums, columns = View(self.sums(op), self.stride(op)), (0, op.target.columns)
        for rows in self.apart:
            drains = self.requantize(op, sums.behind(rows[0]), rows, columns, own)
            self.stage.add(*self.drains_with_norms(drains, waiting))
