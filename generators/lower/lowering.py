"""The state and helper methods shared by the functions that lower an encoder."""

from collections.abc import Callable, Sequence

from celosia.arch.config import Config
from celosia.generators.graph.quantized import QuantizedModel
from celosia.generators.lower.blocks import Blocks, Part, groups
from celosia.generators.lower.choices import Choices
from celosia.generators.lower.traffic import Traffic
from celosia.generators.program.draft import Node, repeat
from celosia.generators.program.image import Piece

SPARE_WORDS = 1
"""Parameter words that no operation uses; loops read into them (``program/loops.py``)."""


class Lowering(Traffic):
    """The memory image, buffers and accumulator rows of an encoder that is being lowered.

    The functions that lower the encoder's operations share this object. Its methods return
    instructions, and divide rows and columns into parts.
    """

    def __init__(
        self,
        model: QuantizedModel,
        config: Config,
        choices: Choices,
        blocks: dict[str, Blocks],
        batch: int,
    ):
        self.batch = batch
        """Inputs whose rows lie one below the other in every tensor."""
        super().__init__(model, config, choices, blocks)
        self.pool: Piece | None = None
        self.left_out = 0
        """Tiles of zeros that are left out of all weights."""

    def each(self, pieces: Sequence[Part], make: Callable[[int, int], list[Node]]) -> list[Node]:
        """Return the instructions of an operation that is computed in parts.

        ``pieces`` are the parts, pairs (first, count): first row or column, number of rows or
        columns. ``make(first, count)`` returns the instructions of one part. If the choice
        ``loop_parts`` is set, all parts of the same size as the first part are iterations of one
        loop, and the other parts follow the loop. Otherwise there is no loop.
        """
        if not self.choices.loop_parts or len(pieces) == 1:
            return [node for part in pieces for node in make(*part)]
        bodies = []
        for part in pieces:
            self.accumulators.restart()
            bodies.append(make(*part))
        alike = sum(count == pieces[0][1] for _, count in pieces)
        rest = [node for body in bodies[alike:] for node in body]
        return [*repeat(bodies[:alike], int(alike == 1)), *rest]

    def row_groups(self, total: int, most: int, *tensors: tuple[str, int]) -> list[list[Part]]:
        """Divide ``total`` rows into parts, each inside one block of every given tensor.

        A tensor is divided into blocks, which are stored separately. ``tensors`` are pairs (buffer,
        row): the name of the tensor's buffer, and the row in it that corresponds to the first of
        the ``total`` rows.

        The rows are cut at the first row of each block, and each interval between two cuts is
        divided into parts of at most ``most`` rows. The result has one entry per interval: the list
        of its parts (first, count).
        """
        marks = [mark - row for name, row in tensors for mark in self.blocks[name].row_marks]
        return groups(total, marks, most)

    def column_groups(self, total: int, tiles: int, *tensors: str) -> list[list[Part]]:
        """Divide ``total`` columns into parts, each inside one block of every given tensor.

        A tensor is divided into blocks, which are stored separately. ``tensors`` are the names of
        the tensors' buffers.

        The columns are cut at the first column of each block, and each interval between two cuts is
        divided into parts of at most ``tiles`` tile columns. The result has one entry per interval:
        the list of its parts (first, count).
        """
        marks = [mark for name in tensors for mark in self.blocks[name].column_marks]
        return groups(total, marks, tiles, self.config.array.cols)
