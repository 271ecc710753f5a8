"""Rules of linear layers, norms and conversions, for rows of any run and tensors in blocks."""

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

    A subclass has the order of instructions, the places of parameters, and the rows of a run.
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
        """Return how many of ``count`` rows from ``first`` on a run has.

        ``total`` is the number of all rows of the tensor.
        """

    def fits(self, op: Op, behind: Sequence[Rowwise]) -> bool:
        """Return whether an operation can be lowered together with the next, rowwise operations."""
        return True

    def walk(self, ops: Sequence[Op], table: Mapping[type[Op], Callable[[Step], None]]) -> None:
        """Lower operations in steps, each by the rule that a table has for its type."""
        for step in steps(ops, self.fits):
            # The first write to each buffer replaces the old content.
            self._written.clear()
            table[type(step.op)](step)

    def arrived(self, product: Product) -> Product:
        """Return a product whose weights are on the chip; a subclass may have to bring them."""
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
        """Yield the products of ``m`` rows and parts of weights, of some ``tiles`` if given.

        The rows are those of the ``source`` or, by default, of the operation's source from ``row``
        on. ``tiles`` are tile columns (first, count).
        """
        for part in products:
            first, count = tiles or (0, -(-part.held.n // self.config.array.cols) + part.held.tile)
            product = part.within(first, first + count, self.config.array.cols)
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
        """Return the requantization of a product's sums, with the first operation ``behind``.

        ``rows`` and ``columns`` are those of the result, which is written to ``target`` or, by
        default, to its place in the blocks. With ``anew`` the buffer's old content ends here.
        """
        m = self.run_rows(*rows, op.row + op.source.rows)
        made = (op, *behind)[-1].target
        work = self.work(sums, made, rows, columns, m, params, place=target, anew=anew)
        return drain(op, work, *flags, behind=behind, table=table, beside=beside)

    def normalize(self, op: Op, row: int, m: int, params: int) -> list[Draft]:
        """Return the norms or conversions of ``m`` rows, one for each of the blocks of columns."""
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
        """Return the requantization parameters of each part of the columns, or one set for all."""
        assert isinstance(op, Norm | Convert), "other rowwise operations are part of a drain"
        if op.rescale.per_tensor:
            return [op.rescale]
        return [op.rescale.columns(*part) for part in self.column_parts(op)]

    def column_parts(self, op: Norm | Convert) -> list[Part]:
        """Return the parts of an operation's columns that are in one block."""
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
        """Return the :class:`Work` of an instruction that writes rows and columns of a tensor.

        They are written to ``place`` or, by default, to their place in the blocks. Without ``anew``
        the instruction needs the buffer's old content.
        """
        view = place or self.blocks[target.buffer].view(rows[0], columns[0])
        written = Written(target.name, *rows, *columns)
        return Work(source, view, m, columns[1], params, written, self.defines(view, anew=anew))

    def defines(self, target: View, *, anew: bool = True) -> str:
        """Return the name of a view's buffer if this is the operation's first write to it.

        Otherwise return "".
        """
        if self.lasting:
            return ""
        place = target.place
        assert isinstance(place, Ref)
        first = place.buffer not in self._written
        self._written.add(place.buffer)
        return place.buffer if first and anew else ""
