"""Instructions of linear layers, norms and conversions, for encoders and decoders alike.

A conversion changes the scale or the width of numbers.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from celosia.arch.formats import PLANES
from celosia.arch.isa import Opcode
from celosia.generators.graph.operations import (
    Attention,
    Convert,
    Gate,
    Linear,
    Norm,
    Op,
    Rotary,
)
from celosia.generators.graph.tensors import Tensor
from celosia.generators.lower.accumulators import Accumulators
from celosia.generators.lower.blocks import Blocks, Part, column_parts, cut
from celosia.generators.lower.instructions import (
    Count,
    View,
    Work,
    factored,
    fused,
    parameters,
    rowwise,
)
from celosia.generators.lower.products import Matrix, Product
from celosia.generators.lower.residence import Words
from celosia.generators.lower.staging import WORDS, Chunks, Rows, Stage
from celosia.generators.lower.walk import Rowwise, Step, steps
from celosia.generators.program.draft import Draft, Node, Ref, Written
from celosia.generators.program.image import Piece


class Rules(ABC):
    """Makes the instructions of linear layers, norms and conversions to other scales.

    There are subclasses for encoders and for decoders. A subclass decides the order of
    instructions, the addresses of parameters, and the number of rows that a run processes.
    """

    planes: int = len(PLANES)
    """Planes of nested weights that are read."""

    def __init__(self, stage: Stage, blocks: Mapping[str, Blocks], *, lasting: bool, pre: bool):
        self.stage, self.memory, self.blocks = stage, stage.memory, blocks
        self.config, self.name = stage.memory.config, stage.memory.name
        self.accumulators = Accumulators(self.config, self.name)
        self.lasting = lasting
        """True if no buffers share bytes, so that the end of a content is of no interest."""
        self.pre = pre
        """True if the residual stream continues unchanged after its norm."""
        self.room = self.config.vector.words
        """Parameter words that operations may use."""
        self.previous: Step | None = None
        """The section's step before the current one."""
        self._written: set[str] = set()
        self._word = 0
        self._brought: tuple[tuple[tuple[Words, int, int], ...], list[int]] = (), []

    @abstractmethod
    def row_operand(self, first: int, count: int, total: int) -> Count:
        """Return the operand for an instruction's number of rows.

        The instruction processes ``count`` adjacent rows of a tensor, from row ``first`` on. The
        tensor has ``total`` rows. A run with few tokens may process fewer rows. The result is a
        constant if all runs process equally many rows. Otherwise it is a :class:`Given`, which
        reads the number from a register. The host writes the register before each run.
        """

    def fits(self, op: Op, behind: Sequence[Rowwise]) -> bool:
        """Return whether the program can compute ``behind`` directly after ``op``, row by row.

        ``behind`` are operations on single rows, such as norms. The result is False if the
        parameter memory is too small for the parameters of all these operations.
        """
        return isinstance(op, Linear | Rowwise) and self.words_together([op, *behind]) <= self.room

    @abstractmethod
    def words_together(self, ops: Sequence[Linear | Rowwise]) -> int:
        """Return the number of words that several operations need together in the parameter memory.

        ``ops`` are successive operations of the model, for example a linear layer and the norm
        after it. A word has the requantization parameters of several columns. The instructions of
        ``ops`` alternate, so the words of all of them must be in the memory at the same time. The
        result is the total for all of ``ops``.
        """

    @abstractmethod
    def rowwise(self, label: str, ops: Sequence[Rowwise]) -> Rows:
        """Return the instructions of successive norms and conversions, for all rows of a tensor.

        ``ops`` are the norms and conversions, in order. A conversion changes the scale or the width
        of numbers. All operations process one range of rows before the next range begins.

        If requantization parameters are loaded to the scratchpad, they have a buffer for each
        operation. ``label`` is the first part of the names of these buffers.
        """

    def lower_section(self, ops: Sequence[Op], name: str = "") -> None:
        """Append the instructions of a model's section, such as a layer, to the program.

        - ``ops``: the operations of the section, in order.
        - ``name``: the name of the section.

        The method divides the section into steps, and appends their instructions one step after
        another. A :class:`Step` is an operation with the rowwise operations (such as norms) after
        it. The label of a step consists of ``name`` and the index of the step's first operation.
        Names of scratchpad buffers contain the label. For example, ``layer.2`` is the label of the
        step that begins with operation 2 of section ``layer``.
        """
        rules, self.previous = self.rules(), None
        for step in steps(ops, self.fits, name):
            # The first write to each buffer replaces the old content.
            self._written.clear()
            rules[type(step.op)](step)
            self.previous = step

    def rules(self) -> dict[type[Op], Callable[[Step], None]]:
        """Return the method that lowers each type of operation, as a dictionary.

        A key is a type, such as :class:`Linear`. The method's argument is a :class:`Step`: an
        operation of this type, and the rowwise operations (such as norms) after it. The method
        appends the step's instructions to the program.
        """
        return {
            Attention: self.lower_attention,
            Convert: self.lower_rowwise,
            Linear: self.lower_linear,
            Norm: self.lower_rowwise,
        }

    @abstractmethod
    def lower_linear(self, step: Step) -> None:
        """Append the instructions of a linear layer and of the operations after it.

        ``step.op`` is the layer, and ``step.behind`` has the operations after the layer. The
        operations in ``step.behind``, such as norms, process each row separately.
        """

    @abstractmethod
    def lower_attention(self, step: Step) -> None:
        """Append the instructions of an attention."""

    def lower_rowwise(self, step: Step) -> None:
        """Append the instructions of a norm or a conversion, and of the operations after it.

        ``step.op`` is the norm or the conversion. A conversion changes the scale or the width of
        numbers. The operations in ``step.behind`` follow ``step.op``, and also process each row
        separately.
        """
        assert isinstance(step.op, Rowwise)
        rows = self.rowwise(step.label, [step.op, *step.behind])
        if rows.loads:
            self.stage.begin_item().loads += rows.loads
        self.stage.add(*rows.nodes)

    def arrived(self, product: Product) -> Product:
        """Return ``product`` with its weights on the chip, and append their LOAD if necessary.

        A :class:`Product` multiplies activations by some weights of a layer. If the weights are in
        external memory, the LOAD copies them to a scratchpad buffer. The result then has the
        address in this buffer. Otherwise the result is ``product``.
        """
        if not isinstance(product.place, Piece):
            return product
        return replace(product, place=self.stage.piece(product.place, product.stage))

    def acc(self, name: str, rows: int) -> int:
        """Allocate ``rows`` accumulator rows for the sums of a product, and return the first row.

        If too few rows are left, allocation begins at row 0 again. The new sums then replace those
        of earlier products. This method does not use ``name``. A subclass may reserve rows for the
        sums with this name.
        """
        return self.accumulators.take(rows)

    def params(self, *wanted: tuple[Words, int, int]) -> list[int]:
        """Return the addresses of requantization parameters, and append their loads if necessary.

        The parameters are stored as words. Each element (``words``, ``first``, ``count``) of
        ``wanted`` selects some of an operation's words:

        - ``words``: the location of all parameter words of the operation.
        - ``first``: the index of the first selected word among the operation's words.
        - ``count``: the number of selected words. If it is 0, all words from ``first`` on are
          selected.

        The result has one number for each element of ``wanted``: the index of the first selected
        word in the parameter memory. If the selected words are in external memory, this call
        appends instructions that copy them to the parameter memory. If the previous call had the
        same arguments, the words are already there, and nothing is appended.

        Raises :class:`FitError` if the parameter memory has too few words.
        """
        if wanted == self._brought[0]:
            return self._brought[1]
        places = []
        ranges = [(kept, first, count or kept.count - first) for kept, first, count in wanted]
        if self._word + sum(count for _, _, count in ranges) > self.config.vector.words:
            self._word = 0
        for block, first, count in ranges:
            if not block.stride:
                places.append(block.first + first)
                continue
            piece = Piece(block.first + first * block.stride, count, block.stride)
            place = self.stage.piece(piece, WORDS, self.config.word_bytes)
            self.stage.add(self.bring(place, count, self._word))
            places.append(self._word)
            self._word += count
        self._brought = wanted, places
        return places

    def bring(self, place: Ref, count: int, first: int) -> Draft:
        """Return the instruction that copies requantization parameters to the parameter memory.

        The parameters are ``count`` words in the scratchpad, from address ``place`` on. ``first``
        is the index of the first copied word in the parameter memory. Raises :class:`FitError` if
        the parameter memory has too few words.
        """
        self.memory.check_at_once(first + count)
        return parameters(place, count, first)

    def products(
        self,
        op: Linear,
        matrix: Matrix,
        splits: Sequence[int],
        rows: Part,
        sums: View,
        tiles: Part,
        source: View | None = None,
    ) -> Iterator[Draft]:
        """Yield the instructions that multiply rows of activations by a linear layer's weights.

        - ``op``: the layer. Its weights are a matrix [k, n].
        - ``matrix``: the location of the layer's weights. The k weight rows may be divided into
          ranges. Each range has separate instructions, and the instructions of all ranges add to
          the same sums.
        - ``splits``: the indices of the ranges to multiply by.
        - ``rows``: selected activation rows, as (first, count).
        - ``tiles``: selected tile columns of the weights, as (first, count). A tile column is as
          wide as the array.
        - ``sums.place``: the accumulator row for the first selected activation row and tile column.
        - ``sums.stride``: the number of accumulator rows from one tile column to the next.
        - ``source``: the address and row stride of the activations, from the first selected row and
          column 0 on. The default is the layer's input tensor.

        A layer may have a low-rank correction: the product of two thin matrices is added to the
        weights. If ``splits`` contains the last range, the method also yields the instructions that
        multiply by the second thin matrix. The caller must compute the product with the first thin
        matrix before.
        """
        m = self.row_operand(op.row + rows[0], rows[1], op.row + op.source.rows)
        low = matrix.correction if len(matrix.splits) - 1 in splits else []
        for run, place, distance in matrix.spaced_groups(*tiles):
            target = View(sums.behind(place * sums.stride).place, distance * sums.stride)
            own = [part for each in splits for part in matrix.parts(each, self.planes, run)]
            for index, part in enumerate([*own, *low]):
                product = part.within(run[0], sum(run), self.config.array.cols)
                if product is None:
                    continue
                tensor, column = product.op.source, product.held.rows.start
                if source is None or index >= len(own):
                    view = self.blocks[tensor.buffer].view(rows[0], column)
                else:
                    view = source.behind(column * tensor.element)
                yield self.arrived(product).draft(view, target, m, self.config)

    def requantize(
        self,
        op: Linear,
        sums: View,
        rows: Part,
        columns: Part,
        params: int,
        *flags: str,
        target: View | None = None,
        behind: Sequence[Rowwise] = (),
        table: int = 0,
        beside: View | None = None,
        factor: int = 0,
    ) -> list[Draft]:
        """Return the DRAIN instructions that requantize a linear layer's sums and write the result.

        A DRAIN also computes the layer's activation function, and adds the residual. Usually the
        result is one instruction. If ``target`` is not given, and several scratchpad buffers have
        different rows of the result tensor, each of these buffers has one instruction.

        - ``op``: the layer.
        - ``sums``: the address and stride of the selected sums in the accumulators.
        - ``rows`` and ``columns``: selected rows and columns of the result, each as (first, count).
        - ``params``: the index of the first requantization parameter word in the parameter memory.
        - ``flags``: names of further instruction flags.
        - ``target``: the address and row stride to which the result is written. The default is the
          place of the selected rows and columns in the result tensor's buffer.
        - ``behind``: the operations after the layer. If the first is a rotary embedding or a gate
          (elementwise product), the DRAIN also computes it.
        - ``table``: the value of the instruction's operand ``table``. Its meaning depends on the
          operation.
        - ``beside``: the address and stride of a further tensor that the DRAIN reads, or None.
        - ``factor``: only for the output head. The output head processes one row, which belongs to
          text number ``factor`` of the run.

        A deferred norm stores a scale factor for each row. If the input of the layer is the result
        of a deferred norm, the DRAIN also multiplies row i by the stored factor number i. For the
        output head, the DRAIN multiplies the row by the stored factor number ``factor``.

        The operations that need ``table`` or ``beside`` are:

        - Tabulated activation function: ``table`` is the slot number of its table in the vector
          engine.
        - Rotary embedding: ``table`` is the number of columns of a head. ``beside`` has the cosines
          and sines.
        - Gate: ``table`` is the zero point of the multipliers. ``beside`` has the multipliers.
        - Largest score (flag ``argmax``): ``table`` is the index of the first selected column.
        """
        made, drains = (op, *behind)[-1].target, list[Draft]()
        marks = [] if target else [mark - rows[0] for mark in self.blocks[made.buffer].row_marks]
        done = {Gate: ("times",), Rotary: ("rotate",)}.get(
            type(next(iter(behind), None)), op.look_up
        )
        flags += (*done, *(["relu"] if op.relu else []), *(["factors"] if op.factors else []))
        # Rows before the first one are loaded.
        anew = op.row == 0 and not op.residual
        for begin, count in cut(rows[1], marks):
            part, view = (rows[0] + begin, count), sums.behind(begin)
            m = self.row_operand(*part, op.row + op.source.rows)
            word = factored(params, part[0] or factor) if op.factors else params
            work = self.vector_operands(view, made, part, columns, m, word, place=target, anew=anew)
            drained = work.requantize(
                Opcode.DRAIN, *flags, tensor=made, residual=op.residual, table=table, beside=beside
            )
            drains.append(drained)
        return drains

    def chunks(self, ops: Sequence[Op], words: Sequence[int], rows: Sequence[Part]) -> Chunks:
        """Return the instructions of successive norms and conversions, for some ranges of rows.

        A conversion changes the scale or the width of numbers. All operations process one range of
        rows before the next range begins. An operation has one instruction for each range of rows
        and each range of columns (:func:`column_parts`).

        - ``ops``: the operations in order.
        - ``words``: for each operation, the index of its first word in the parameter memory.
        - ``rows``: the ranges of rows, each as (first row, number of rows).

        The result has a pair for each range of rows: the index of the row after the range, and the
        instructions for the range.
        """
        chunks: Chunks = [(sum(part), []) for part in rows]
        for (_, nodes), (row, m) in zip(chunks, rows, strict=True):
            for op, params in zip(ops, words, strict=True):
                assert isinstance(op, Norm | Convert), "others are part of a drain"
                source = self.blocks[op.source.buffer]
                count = self.row_operand(row, m, op.target.rows)
                if isinstance(op, Norm) and op.deferred:
                    params = factored(params, row)
                for part in column_parts(op, self.blocks):
                    view, lanes = source.view(row, part[0]), self.config.vector.lanes
                    work = self.vector_operands(view, op.target, (row, m), part, count, params)
                    nodes.append(rowwise(op, work))
                    # Equal parameters have one word for all parts.
                    params += 0 if op.rescale.per_tensor else -(-part[1] // lanes)
        return chunks

    def drains_with_norms(self, drains: Sequence[Draft], chunks: Chunks) -> Iterator[Node]:
        """Yield requantizing instructions (DRAIN), and norms as soon as their rows are written.

        - ``drains``: the DRAIN instructions, which write the rows of a tensor in ascending order.
        - ``chunks``: a list of pairs (end, instructions). The instructions are norms and
          conversions of the tensor's rows, from the previous pair's ``end`` to row ``end - 1``.

        For example, two DRAINs write rows 0 to 3 and rows 4 to 7. The pairs in ``chunks`` have the
        ends 4, 8 and 12. The method yields:

        - the first DRAIN, and the instructions of the pair with end 4;
        - the second DRAIN, and the instructions of the pair with end 8.

        The method removes these two pairs from ``chunks``. The pair with end 12 remains in the
        list, for a later call. If the machine supports it, a DRAIN and the norm directly after it
        become one instruction.
        """
        for drained in drains:
            nodes, written = list[Node]([drained]), drained.written
            assert written is not None
            while chunks and chunks[0][0] <= written.row + written.rows:
                nodes += chunks.pop(0)[1]
            yield from fused(nodes, keep=self.pre) if self.config.fused else nodes

    def vector_operands(
        self,
        source: View,
        target: Tensor,
        rows: Part,
        columns: Part,
        m: Count,
        params: int,
        *,
        place: View | None = None,
        anew: bool = True,
    ) -> Work:
        """Return the operands that all instructions of the vector engine have, for one instruction.

        The result is a :class:`Work`. Its methods add the operands of one kind of instruction, and
        return the instruction. For example, ``vector_operands(...).requantize(...)`` returns a
        requantizing instruction.

        - ``source``: the address and stride of the data that the instruction reads.
        - ``target``: the tensor that the instruction writes.
        - ``rows`` and ``columns``: the rows and columns of the tensor that the instruction writes,
          each as (first, count).
        - ``m``: the operand for the number of rows. Usually it is the count of ``rows``. If some
          runs process fewer rows, it is an operand that reads the number from a register.
        - ``params``: the index of the first requantization parameter word in the parameter memory.
        - ``place``: the address and row stride to which the instruction writes. The default is the
          place of ``rows`` and ``columns`` in the buffer of ``target``.
        - ``anew``: true if the old content of this buffer is no longer needed.
        """
        view = place or self.blocks[target.buffer].view(rows[0], columns[0])
        written = Written(target.name, *rows, *columns)
        return Work(source, view, m, columns[1], params, written, self._note_write(view, anew=anew))

    def _note_write(self, target: View, *, anew: bool = True) -> str:
        """Note a write to a buffer; return the buffer's name if the write begins new content.

        The name is for the instruction's field ``defines``: other buffers may occupy the bytes of
        this buffer until the instruction. The result is an empty string if the step has written the
        buffer before, if ``anew`` is false, or if buffers share no bytes (:attr:`lasting`).
        """
        if self.lasting:
            return ""
        place = target.place
        assert isinstance(place, Ref)
        first = place.buffer not in self._written
        self._written.add(place.buffer)
        return place.buffer if first and anew else ""
