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

        The instruction processes ``count`` of a tensor's ``total`` rows, from row ``first`` on. If
        a run may process fewer rows, the operand may read the number from a register
        (:class:`Given`). Otherwise it is ``count``.
        """

    def fits(self, op: Op, behind: Sequence[Rowwise]) -> bool:
        """Return whether the program can compute ``behind`` directly after ``op``, row by row.

        ``behind`` are operations on single rows, such as norms. The result is False if the
        parameter memory is too small for the parameters of all these operations.
        """
        return isinstance(op, Linear | Rowwise) and self.words_together([op, *behind]) <= self.room

    @abstractmethod
    def words_together(self, ops: Sequence[Linear | Rowwise]) -> int:
        """Return the number of words in the parameter memory that several operations need together.

        ``ops`` are successive operations whose instructions alternate, such as a linear layer and
        the norm after it.
        """

    @abstractmethod
    def rowwise(self, label: str, ops: Sequence[Rowwise]) -> Rows:
        """Return the instructions of successive norms and conversions, for all rows of a tensor.

        For each range of rows, the instructions apply all operations. ``label`` is the first part
        of the names of the scratchpad buffers for requantization parameters.
        """

    def lower_section(self, ops: Sequence[Op], name: str = "") -> None:
        """Append the instructions of a model's section, such as a layer, to the program.

        ``ops`` are the section's operations in order. The names of scratchpad buffers contain
        ``name`` and the index of an operation, for example ``layer.2``.
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
        """Append the instructions of the attention ``step.op`` to the program.

        Each subclass implements this method.
        """

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
        """Return a product that equals ``product``, but has its weights on the chip.

        If the weights of ``product`` are in external memory, the method appends a LOAD that copies
        them to a scratchpad buffer. Otherwise it returns ``product``.
        """
        if not isinstance(product.place, Piece):
            return product
        return replace(product, place=self.stage.piece(product.place, product.stage))

    def acc(self, name: str, rows: int) -> int:
        """Allocate ``rows`` accumulator rows for the sums of a product, and return the first row.

        If too few rows are left, allocation begins at row 0 again; the new sums then replace older
        sums. This method ignores ``name``. A subclass may reserve rows for the sums with this name.
        """
        return self.accumulators.take(rows)

    def params(self, *wanted: tuple[Words, int, int]) -> list[int]:
        """Return indices of words in the parameter memory, and append their loads if necessary.

        Each of ``wanted`` is (an operation's words, first, count). The count 0 selects all words
        from ``first`` on. The result has the index of each first selected word. Raises
        :class:`FitError` if the parameter memory has too few words.
        """
        # The words of the previous call are still there.
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

        It copies ``count`` words from scratchpad address ``place`` to the words from index
        ``first`` on. Raises :class:`FitError` if the parameter memory has too few words.
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

        - ``splits``: indices of ranges of weight rows. The last range includes the second matrix of
          a low-rank correction; the caller must append the product with the first matrix before.
        - ``rows``, ``tiles``: activation rows and tile columns (first, count).
        - ``sums``: accumulator address of the first row and tile column.
        - ``source``: the activations, by default the layer's input.
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

        - ``rows``, ``columns``: ranges (first, count) of the result.
        - ``params``: index of the first parameter word.
        - ``target``: address of the result, by default its scratchpad buffer.
        - ``behind``: operations after the layer. If a rotation or gate is first, DRAIN computes it.
        - ``beside``: address of the second input of this rotation or gate.
        - ``table``: DRAIN's operand ``table``, such as the slot of an activation table
          (``docs/isa.md``).
        - ``factor``: for the output head, number of the text whose row is requantized.
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
        """Return the instructions of successive norms and conversions, for each range in ``rows``.

        - ``words``: index of each operation's first parameter word.
        - ``rows``: ranges (first, count). For each range, the instructions apply all operations.

        The result has (index of the row after the range, instructions) for each range.
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
        """Yield DRAIN instructions, each followed by norms and conversions of the completed rows.

        - ``drains``: write rows in ascending order.
        - ``chunks``: pairs (end, instructions for the rows before ``end``). A pair leaves this list
          when its instructions are yielded.

        A DRAIN and the norm directly after it may become one instruction.
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
        """Return the addresses and sizes for a vector engine's instruction, as a :class:`Work`.

        - ``source``: address and stride of the input.
        - ``rows``, ``columns``: ranges (first, count) of ``target`` that are written.
        - ``m``: operand for the number of rows.
        - ``params``: index of the first parameter word.
        - ``place``: address and stride of the result, by default in the buffer of ``target``.
        - ``anew``: true if the buffer's old content is no longer needed.
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
