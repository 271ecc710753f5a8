"""Instructions of a decoder's linear layers, norms and requantizations.

All programs of a decoder use them.
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

        A run has one row of activations for each token. Usually all rows are one group. If a run
        processes one token of each of several texts, each row may be a group (:attr:`Cuts.apart`).
        Then one text's sums are requantized while the next text's row is multiplied.
        """
        separate = self.texts > 1 and self.plan.cuts.apart
        return [(text, 1) for text in range(self.texts)] if separate else [self.whole]

    def acc(self, name: str, rows: int) -> int:
        """Return the first accumulator row that is reserved for the sums named ``name``.

        The first call with a name reserves ``rows`` rows. Later calls with this name return the
        same first row.

        There are two kinds of sums: those of the MLP and the output head, and all other sums. The
        program requantizes all sums of one kind before it computes sums of the other kind. So sums
        of different kinds may use the same accumulator rows. Sums of one kind have separate rows.

        Raises :class:`FitError` if there are too few accumulator rows.
        """
        return self.accumulators.named(name, rows, later=name.removesuffix("_thin") in BEHIND)

    def stride(self, op: Linear) -> int:
        """Return the distance (accumulator rows) between the sums of successive tile columns.

        A tile column is a range of output columns of the layer ``op``, as wide as the array. The
        result is:

        - If ``op`` is the output head: 2. The output head always processes one row.
        - If a run may have several rows, for all other layers: :attr:`rows`, the largest number of
          rows.
        - If each run has one row, for attention's output projection: 1.
        - If each run has one row, for all other layers: 2.

        With the result 2, all sums of the layer are in one of the two accumulator banks (even rows,
        odd rows). They can be requantized while another product writes the other bank.
        """
        if self.rows > 1 and op is not self.plan.head:
            return self.rows
        # Beside attention's output projection, contexts are requantized from both banks.
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

        Later instructions do not use requantization parameters that the returned instructions have
        loaded. They load the parameters again.
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
        """Append instructions that multiply activations by a linear layer's weights [k, n].

        - ``source`` is the view (address and stride) of the activations. The default is the layer's
          input.
        - ``rows`` (first, count) is a range of activation rows. The default is all rows.
        - ``tiles`` (first, count) is a range of tile columns of the weights. The default is all
          tile columns. A tile column is as wide as the array.
        - ``split`` is the index of a range of weight rows. The k weight rows may be divided into
          ranges, whose products are added to the same sums. By default, the method multiplies by
          all ranges.
        - ``acc`` is the accumulator row for activation row 0 and the first selected tile column.
          The default is the row that is reserved for the layer.

        A layer may have a low-rank correction: the product of two thin matrices is added to the
        weights. A call that includes the last range of weight rows also appends instructions of the
        correction:

        - If ``tiles`` begins at tile column 0: the product of the activations with the first thin
          matrix, and its requantization.
        - Always: the product of this requantized result with the second thin matrix, for the tile
          columns of the call.

        So the call for tile column 0 must precede the calls for other tile columns.
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
        """Append the instruction that requantizes a layer's sums and writes the result (DRAIN).

        - ``op``: the layer.
        - ``target``: the address and row stride to which the first selected row and column is
          written. The default is the place of this row and column in the result's buffer.
        - ``flags``: names of further instruction flags.
        - ``rows``: selected rows of the sums, as (first, count). The default is all rows.
        - ``tiles``: selected tile columns, as (first, count). The default is all tile columns. A
          tile column is a range of columns as wide as the array.
        - ``acc``: the accumulator row for row 0 in the first selected tile column. The default is
          the accumulator row that is reserved for the layer. From each tile column to the next are
          :meth:`stride` accumulator rows.
        - ``table``: only for the flag ``argmax``. It is the index of the first selected column in
          the layer's result.
        - ``factor``: only for the output head. The output head processes one row, which belongs to
          text number ``factor`` of the run.
        - ``behind``: the operations after the layer. If the first is a rotary embedding or a gate
          (elementwise product), the DRAIN also computes it.

        A deferred norm stores a scale factor for each row. If the input of the layer is the result
        of a deferred norm, the DRAIN also multiplies row i by the stored factor number i. For the
        output head, the DRAIN multiplies the row by the stored factor number ``factor``.
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

        A run of the program has one activation row for each token. For example, the program
        processes chunks of a prompt, of 1 to 16 tokens. Then :attr:`rows` is 16, and the operand
        is:

        - If ``count`` is 16, the instruction processes all rows of the run. The operand is a
          :class:`Given`, which reads the number of rows from a register. The host writes the
          register before each run.
        - If ``count`` is less than 16, the instruction always processes ``count`` rows. The operand
          is the constant ``count``. For example, the output head processes one row in every run.

        If all runs have the same number of rows, the operand is always the constant ``count``. The
        arguments ``first`` and ``total`` have no effect.
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
        """Return the number of parameter words that several operations need at the same time.

        The caller compares the result with the size of the parameter memory. If the words have
        room, the program can compute the operations alternately: one range of rows by all
        operations, then the next range. ``ops`` are successive operations, for example a linear
        layer and the norm after it. A word has the requantization parameters of several columns.
        The result is:

        - If the parameters of the whole model stay in the parameter memory: 0, because no room is
          needed.
        - If the first operation is a linear layer whose result is not added to the residual stream:
          0. Such operations do not alternate, so the words of each operation may replace those of
          the previous one.
        - In all other cases: the number of words of all operations.
        """
        passing = self.plan.data_placement.passing
        if not passing or (isinstance(ops[0], Linear) and not ops[0].residual):
            return 0
        return sum(self._words_of(op).count for op in ops)

    def rowwise(self, label: str, ops: Sequence[Rowwise]) -> Rows:
        """Return the instructions of successive norms and conversions, for all rows of a tensor.

        ``ops`` are the norms and conversions, in order. The first of them reads the residual
        stream. A conversion changes the scale or the width of numbers. If a run processes the rows
        in several groups (:attr:`apart`), all operations process one group before the next group
        begins.

        If requantization parameters are in external memory, the method also appends their loads to
        the program. The argument ``label`` has no effect.
        """
        words = self.params(*((self._words_of(op), 0, 0) for op in ops))
        return Rows(chunks=self.chunks(ops, words, self.apart))

    def norm_heads(self, op: Linear, behind: Sequence[Rowwise]) -> tuple[Linear, Sequence[Rowwise]]:
        """Append instructions that compute queries or keys, and normalize the columns of each head.

        - ``op``: the linear layer that computes the queries or keys.
        - ``behind``: the operations after the layer. They are the norm, a conversion to another
          scale or width, and possibly rotations (rotary embeddings).

        The method appends the instructions of the layer and of the norm. It returns (conversion,
        rotations). The caller must append the instructions of these operations.

        The conversion is returned as a linear layer whose weights are an identity matrix. The
        product with this matrix copies the normalized heads to the accumulators. One DRAIN
        instruction can then convert and rotate them.
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
        """Append a linear layer's products with those input columns that are already computed.

        ``tensor`` is the input of the layer. The layer must be one whose result the model adds to
        the residual stream. The layer's weight rows may be divided into ranges, with a separate
        product for each range. A product with weight rows 64 to 127 reads input columns 64 to 127.
        The products of all ranges add to the same sums.

        - ``columns`` is the number of input columns that are already computed, from column 0 on.
          The method appends all products that read only these columns. It omits products that an
          earlier call has appended.
        - ``rows`` (first, count) selects rows of the input. The default is all rows.

        For example, the ranges are weight rows 0 to 63 and 64 to 127. A call with 64 columns
        appends the first product, and a later call with 128 columns appends the second product.
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
        """Append the instructions of a linear layer whose result is added to the residual stream.

        ``behind`` are the norms and conversions (to another scale or width) that directly follow
        the layer. The activation rows are divided into groups (:attr:`apart`). The method appends
        in this order:

        - for each group of rows: the products with the layer's weights, except those that
          :meth:`multiply_ready` has already appended;
        - for each group of rows: the DRAIN instruction, which requantizes the sums and adds them to
          the residual stream, and then the instructions of ``behind``.
        """
        for rows in self.apart:
            self.multiply_ready(op.source, op.source.columns, rows)
        own, *others = self.params(*((self._words_of(each), 0, 0) for each in (op, *behind)))
        waiting = self.chunks(behind, others, self.apart)
        sums, columns = View(self.sums(op), self.stride(op)), (0, op.target.columns)
        for rows in self.apart:
            drains = self.requantize(op, sums.behind(rows[0]), rows, columns, own)
            self.stage.add(*self.drains_with_norms(drains, waiting))
