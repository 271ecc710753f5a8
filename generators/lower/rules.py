"""Rules that lower linear layers, norms and conversions, for encoders and decoders alike."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence

from celosia.generators.graph.operations import Convert, Linear, Norm, Op
from celosia.generators.graph.tensors import Rescale, Tensor
from celosia.generators.lower.accumulators import Accumulators
from celosia.generators.lower.blocks import Blocks, Part, cut
from celosia.generators.lower.instructions import Count, View, Work, drain, rowwise
from celosia.generators.lower.products import Product
from celosia.generators.lower.residence import Memory
from celosia.generators.lower.walk import Rowwise, Step, steps
from celosia.generators.program.draft import Draft, Ref, Written


class Rules(ABC):
    """Makes the instructions of linear layers and rowwise operations.

    A subclass decides the order of instructions, the addresses of parameters, and the number of
    rows that a run processes.
    """

    def __init__(self, memory: Memory, blocks: Mapping[str, Blocks], *, lasting: bool):
        self.memory, self.blocks = memory, blocks
        self.config, self.name = memory.config, memory.name
        self.accumulators = Accumulators(self.config, self.name)
        self.lasting = lasting
        """True if no buffers share bytes, so that the end of a content is of no interest."""
        self._written: set[str] = set()

    @abstractmethod
    def run_rows(self, first: int, count: int, total: int) -> Count:
        """Return the number of rows that a run processes, of ``count`` rows of a tensor.

        ``first`` is the index of the first of these rows, and ``total`` is the number of rows of
        the tensor. If every run processes the same number of rows, the result is this number. If
        the number differs, the result is the register to which the host writes the number before
        each run.
        """

    def fits(self, op: Op, behind: Sequence[Rowwise]) -> bool:
        """Return whether ``op`` and the rowwise operations ``behind`` can be lowered together.

        The operations ``behind`` follow ``op`` in the model. This method returns True; a subclass
        may return False, for example if the parameter memory is too small.
        """
        return True

    def walk(self, ops: Sequence[Op], table: Mapping[type[Op], Callable[[Step], None]]) -> None:
        """Lower operations one after another, each together with the rowwise operations after it.

        ``table`` is a dictionary from the type of an operation to the function that lowers a
        :class:`Step` with an operation of this type.
        """
        for step in steps(ops, self.fits):
            # The first write to each buffer replaces the old content.
            self._written.clear()
            table[type(step.op)](step)

    def arrived(self, product: Product) -> Product:
        """Return ``product`` with the address that its weights have on the chip.

        This method returns ``product`` unchanged. In a subclass that streams weights, the method
        first adds the instruction that loads them.
        """
        return product

    def multiply(
        self,
        products: Sequence[Product],
        row: int,
        m: Count,
        sums: View,
        source: View | None = None,
        tiles: Part | None = None,
    ) -> Iterator[Draft]:
        """For each product, yield the instruction that multiplies ``m`` rows by its weights.

        ``source`` is the view (address and stride) of the rows. By default, the rows are those of
        each product's source tensor, from row ``row`` on. ``sums`` is the view of the accumulators
        to which the products are added. ``tiles`` (first, count) are the tile columns of the
        weights to multiply, by default all. Products whose weights have none of these columns are
        omitted.
        """
        cols = self.config.array.cols
        for part in products:
            product = part.within(tiles[0], sum(tiles), cols) if tiles else part
            if product is None:
                continue
            tensor, column = product.op.source, product.held.rows.start
            if source is None:
                view = self.blocks[tensor.buffer].view(row, column)
            else:
                view = source.behind(column * tensor.element)
            yield self.arrived(product).draft(view, sums, m, self.config)

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
        anew: bool = False,
    ) -> Draft:
        """Return the DRAIN instruction that requantizes the sums of a linear layer's product.

        ``sums`` is the view of the accumulators with the sums. ``params`` is the address of the
        first word of the requantization parameters. ``flags`` are further flags of the instruction.
        ``behind`` are the rowwise operations after the layer. If the first operation is a rotation
        or a gate, the DRAIN also applies that operation. The operands ``table`` and ``beside`` are
        explained in :func:`celosia.generators.lower.instructions.drain`.

        ``rows`` and ``columns`` (first, count) select the part of the result that is computed. This
        part is written to ``target``, by default the result's buffer. If ``anew`` is true, the
        instruction may destroy the other bytes of the buffer.
        """
        m = self.run_rows(*rows, op.row + op.source.rows)
        made = (op, *behind)[-1].target
        work = self.work(sums, made, rows, columns, m, params, place=target, anew=anew)
        return drain(op, work, *flags, behind=behind, table=table, beside=beside)

    def normalize(self, op: Op, row: int, m: int, params: int) -> list[Draft]:
        """Return the instructions of a norm or a conversion, for ``m`` rows from ``row`` on.

        There is one instruction for each entry of :meth:`column_parts`. ``params`` is the first
        word of the requantization parameters.
        """
        assert isinstance(op, Norm | Convert), "other rowwise operations are part of a drain"
        source, nodes = self.blocks[op.source.buffer], list[Draft]()
        count, rows = self.run_rows(row, m, op.target.rows), (row, m)
        for part in self.column_parts(op):
            view = source.view(row, part[0])
            nodes.append(rowwise(op, self.work(view, op.target, rows, part, count, params)))
            # Equal parameters have one word for all parts.
            params += 0 if op.rescale.per_tensor else -(-part[1] // self.config.vector.lanes)
        return nodes

    def row_rescales(self, op: Op) -> list[Rescale]:
        """Return a list of the requantization parameters of a norm or a conversion.

        The list has one entry for each entry of :meth:`column_parts`. If all columns have the same
        parameters, it has one entry for all columns.
        """
        assert isinstance(op, Norm | Convert), "other rowwise operations are part of a drain"
        if op.rescale.per_tensor:
            return [op.rescale]
        return [op.rescale.columns(*part) for part in self.column_parts(op)]

    def column_parts(self, op: Norm | Convert) -> list[Part]:
        """Return the parts (first, count) into which an operation's columns are divided.

        Source and target may be stored as several blocks of columns. Each part is inside one block
        of the source and one block of the target.
        """
        source, target = self.blocks[op.source.buffer], self.blocks[op.target.buffer]
        return cut(op.target.columns, [*source.column_marks, *target.column_marks])

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
        """Return :class:`Work`: addresses and sizes of an instruction that writes part of a tensor.

        ``rows`` and ``columns`` (first, count) select the part of the tensor ``target``. The part
        is written to the view ``place``, by default the tensor's buffer. If ``anew`` is true, the
        buffer's other bytes are not needed: the first write to the buffer may destroy them
        (:meth:`defines`).
        """
        view = place or self.blocks[target.buffer].view(rows[0], columns[0])
        written = Written(target.name, *rows, *columns)
        return Work(source, view, m, columns[1], params, written, self.defines(view, anew=anew))

    def defines(self, target: View, *, anew: bool = True) -> str:
        """Return the name of a view's buffer if a write to the view may destroy the old content.

        The write may destroy the content if ``anew`` is true and the operation has not yet written
        to the buffer. If the content must be kept, the result is "". If ``lasting`` is true,
        buffers never share bytes, and the result is always "".
        """
        if self.lasting:
            return ""
        place = target.place
        assert isinstance(place, Ref)
        first = place.buffer not in self._written
        self._written.add(place.buffer)
        return place.buffer if first and anew else ""
