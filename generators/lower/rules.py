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
    def run_rows(self, first: int, count: int, total: int) -> Count:
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
        return isinstance(op, Linear | Rowwise) and self.words_needed([op, *behind]) <= self.room

    @abstractmethod
    def words_needed(self, ops: Sequence[Linear | Rowwise]) -> int:
        """Return the number of parameter words that successive operations need at the same time."""

    @abstractmethod
    def rowwise(self, label: str, ops: Sequence[Rowwise]) -> Rows:
        """Return the instructions of the norms and conversions ``ops``, chunk by chunk of rows.

        ``label`` is the beginning of the names of their parameters' buffers.
        """

    def walk(self, ops: Sequence[Op], name: str = "") -> None:
        """Append the instructions for the operations ``ops`` of a section, such as a layer.

        A :class:`Step` is an operation with the rowwise operations (such as norms) after it. Steps
        are lowered one after another. ``name`` is the section's name, with which their labels
        begin.
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
        """Append the instructions of a step that begins with a linear layer.

        The step may also have rowwise operations after the layer, such as norms.
        """

    @abstractmethod
    def lower_attention(self, step: Step) -> None:
        """Append the instructions of an attention."""

    def lower_rowwise(self, step: Step) -> None:
        """Append the instructions of a step that begins with a norm or a conversion."""
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
        """Return the addresses of requantization parameters in the parameter memory.

        Each element (``words``, ``first``, ``count``) of ``wanted`` is a range of an operation's
        parameter words: ``count`` of all its ``words``, from index ``first`` on. If ``count`` is 0,
        the range ends at the last of the words. The result has, for each range, the index of its
        first word in the parameter memory.

        A range in external memory is first loaded, unless the previous call had the same ranges.
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

        The weights are a matrix [k, n], whose k rows may be divided into ranges. Each range has
        separate instructions, which add to the same sums.

        - ``splits`` are the indices of the ranges to multiply by. The last range includes the
          second thin matrix of the layer's low-rank correction, if there is one.
        - ``rows`` (first, count) selects rows of the activations.
        - ``tiles`` (first, count) selects tile columns of the weights, each as wide as the array.
        - ``sums`` has the accumulator row for the first selected activation row and tile column.
          Its stride is the number of accumulator rows from one tile column to the next.
        - ``source`` is the address and stride of the activations (default: the layer's input).
        """
        m = self.run_rows(op.row + rows[0], rows[1], op.row + op.source.rows)
        low = matrix.correction if len(matrix.splits) - 1 in splits else []
        for run, place, distance in matrix.runs(*tiles):
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
        """Return instructions that requantize a linear layer's sums and write the result (DRAIN).

        The instructions also compute the layer's activation, and add its residual. If the result's
        buffer is divided into blocks of rows, and ``target`` is not given, each block has one
        instruction.

        - ``sums`` is the address and stride of the selected sums in the accumulators.
        - ``rows`` and ``columns`` (first, count) select the part of the result that is computed.
        - ``params`` is the index of the first requantization parameter word in the parameter
          memory.
        - ``flags`` are names of further instruction flags.
        - ``target`` is the address and row stride to which the part is written. The default is its
          place in the result's buffer.
        - ``behind`` are the operations after the layer. If the first is a rotary embedding or a
          gate (elementwise product), the DRAIN also computes it.
        - ``beside`` is the address and stride of this operation's second input: the cosines and
          sines, or the rows by which the gate multiplies.
        - ``table`` is the table slot of an activation. For a rotary embedding, it is the number of
          a head's columns. For a gate, it is the zero point of the rows ``beside``.
        - ``factor`` is used after a deferred norm. This norm stores a scale factor for each row, by
          which the DRAIN multiplies. ``factor`` is the number of the stored factor for row 0. An
          instruction that begins at another row uses the factors from that row's number on.
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
            m = self.run_rows(*part, op.row + op.source.rows)
            word = factored(params, part[0] or factor) if op.factors else params
            work = self.work(view, made, part, columns, m, word, place=target, anew=anew)
            drained = work.requantize(
                Opcode.DRAIN, *flags, tensor=made, residual=op.residual, table=table, beside=beside
            )
            drains.append(drained)
        return drains

    def chunks(self, ops: Sequence[Op], words: Sequence[int], rows: Sequence[Part]) -> Chunks:
        """Return the instructions of successive norms and conversions, chunk by chunk.

        A conversion changes the scale or the width of numbers. All operations process one chunk of
        rows before the next chunk begins. An operation has one instruction for each chunk and each
        part of the columns (:func:`column_parts`).

        - ``ops``: the operations in order.
        - ``words``: for each operation, the index of its first word in the parameter memory.
        - ``rows``: the chunks, each as (first row, number of rows).

        The result has a pair for each chunk: the index of the row after the chunk, and the chunk's
        instructions.
        """
        chunks: Chunks = [(sum(part), []) for part in rows]
        for (_, nodes), (row, m) in zip(chunks, rows, strict=True):
            for op, params in zip(ops, words, strict=True):
                assert isinstance(op, Norm | Convert), "others are part of a drain"
                source, count = self.blocks[op.source.buffer], self.run_rows(row, m, op.target.rows)
                if isinstance(op, Norm) and op.deferred:
                    params = factored(params, row)
                for part in column_parts(op, self.blocks):
                    view, lanes = source.view(row, part[0]), self.config.vector.lanes
                    work = self.work(view, op.target, (row, m), part, count, params)
                    nodes.append(rowwise(op, work))
                    # Equal parameters have one word for all parts.
                    params += 0 if op.rescale.per_tensor else -(-part[1] // lanes)
        return chunks

    def settle(self, drains: Sequence[Draft], chunks: Chunks) -> Iterator[Node]:
        """Yield instructions that requantize sums, each followed by the norms of the written rows.

        - ``drains`` are the requantizing instructions (DRAIN). Each writes some rows of a tensor.
        - ``chunks`` has a pair (end, instructions) for each chunk of these rows, in ascending
          order. ``end`` is the index of the row after the chunk. The instructions compute norms and
          conversions of the chunk.

        The instructions of a chunk follow the DRAIN that writes its last row, and are removed from
        ``chunks``. If the machine supports it, a DRAIN and the norm directly after it become one
        instruction.
        """
        for drained in drains:
            nodes, written = list[Node]([drained]), drained.written
            assert written is not None
            while chunks and chunks[0][0] <= written.row + written.rows:
                nodes += chunks.pop(0)[1]
            yield from fused(nodes, keep=self.pre) if self.config.fused else nodes

    def work(
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
        """Return the common operands of an instruction that writes part of a tensor.

        - ``source``: view (address and stride) that the instruction reads.
        - ``target``: the tensor.
        - ``rows`` and ``columns``: ranges (first, count) that the part has in the tensor.
        - ``m``: number of rows that the instruction processes. If the number differs from run to
          run, it is read from a register.
        - ``params``: index of the first requantization parameter word in the parameter memory.
        - ``place``: view to write to, by default the part's place in the tensor's buffer.
        - ``anew``: true if the buffer's old content is not needed from this instruction on.
        """
        view = place or self.blocks[target.buffer].view(rows[0], columns[0])
        written = Written(target.name, *rows, *columns)
        return Work(source, view, m, columns[1], params, written, self.defines(view, anew=anew))

    def defines(self, target: View, *, anew: bool = True) -> str:
        """Return the name of the buffer if a write to ``target`` begins a new lifetime of it.

        ``target`` is the view (address and stride) that an instruction writes in a scratchpad
        buffer. Before a lifetime begins, other buffers may use the bytes. The result is an empty
        string in these cases:

        - An earlier instruction of the same :class:`Step` has written to the buffer.
        - ``anew`` is false: an instruction still reads the buffer's old content.
        - :attr:`lasting` is true: no buffers share bytes.
        """
        if self.lasting:
            return ""
        place = target.place
        assert isinstance(place, Ref)
        first = place.buffer not in self._written
        self._written.add(place.buffer)
        return place.buffer if first and anew else ""
