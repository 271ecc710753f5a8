"""State of an encoder's lowering: parameters, accumulators, written buffers."""

from collections.abc import Callable, Sequence

import numpy as np

from celosia.arch.config import Config
from celosia.generators.graph.quantized import QuantizedModel
from celosia.generators.graph.tensors import Rescale, Tensor
from celosia.generators.lower.accumulators import Accumulators
from celosia.generators.lower.blocks import Blocks, Part, groups
from celosia.generators.lower.choices import Choices
from celosia.generators.lower.instructions import Count, View, Work, parameters, rescale_words
from celosia.generators.lower.residence import Memory, check_at_once
from celosia.generators.lower.traffic import Traffic
from celosia.generators.program.draft import Draft, Node, Ref, Repeat, Written
from celosia.generators.program.image import Bytes, Piece

SPARE_WORDS = 1
"""Parameter words that no operation uses; loops read into them (``program/loops.py``)."""


class Lowering(Traffic):
    """State and helpers of an encoder's lowering to instructions."""

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
        self.name = model.description.name
        self.pool: Piece | None = None
        self.accumulators = Accumulators(config, self.name)
        self.memory = Memory(self.name, config)
        """Weight slots that are taken."""
        self._written: set[str] = set()

    @property
    def word_bytes(self) -> int:
        """Bytes of a parameter word in the scratchpad."""
        return self.config.param_lines * self.config.line_bytes

    def work(
        self,
        source: View,
        target: Tensor,
        rows: Part,
        columns: Part,
        m: Count,
        params: int,
        *,
        anew: bool = True,
    ) -> Work:
        """Return the :class:`Work` of an instruction that writes rows and columns of a tensor.

        Without ``anew`` the instruction needs the buffer's old content.
        """
        view = self.blocks[target.buffer].view(rows[0], columns[0])
        written = Written(target.name, *rows, *columns)
        return Work(source, view, m, columns[1], params, written, self.defines(view, anew=anew))

    def params(self, rescales: Sequence[Rescale]) -> Bytes:
        """Return the parameter words of several rescales, concatenated, as bytes."""
        return np.concatenate([rescale_words(r, self.config).ravel() for r in rescales])

    def params_draft(self, blob: str, count: int, first: int = 0) -> Draft:
        """Return the instruction that loads ``count`` parameter words from a buffer's start."""
        return parameters(Ref(blob), count, SPARE_WORDS + first)

    def room_for(self, words: int) -> None:
        """Refuse an operation with more parameter words than the parameter memory holds."""
        check_at_once(self.name, self.config, words + SPARE_WORDS)

    def begin(self) -> None:
        """Begin an operation; its first write to each buffer replaces the old content."""
        self._written.clear()

    def defines(self, target: View, *, anew: bool = True) -> str:
        """Return the name of a view's buffer if this is the operation's first write to it.

        Otherwise return "".
        """
        place = target.place
        assert isinstance(place, Ref)
        first = place.buffer not in self._written
        self._written.add(place.buffer)
        return place.buffer if first and anew else ""

    def each(self, pieces: Sequence[Part], make: Callable[[int, int], list[Node]]) -> list[Node]:
        """Return the instructions for parts (first, count), in loops over equal parts if chosen."""
        if not self.choices.loop_parts or len(pieces) == 1:
            return [node for part in pieces for node in make(*part)]
        bodies = []
        for part in pieces:
            self.accumulators.restart()
            bodies.append(make(*part))
        alike = sum(count == pieces[0][1] for _, count in pieces)
        rest = [node for body in bodies[alike:] for node in body]
        return [Repeat(bodies[:alike]), *rest] if alike > 1 else [*bodies[0], *rest]

    def row_groups(self, total: int, most: int, *tensors: tuple[str, int]) -> list[list[Part]]:
        """Return row parts (first, count) of at most ``most`` rows, grouped by blocks.

        ``tensors`` are pairs (buffer, row) with the buffer's row that corresponds to row 0.
        """
        marks = [mark - row for name, row in tensors for mark in self.blocks[name].row_marks]
        return groups(total, marks, most)

    def column_groups(self, total: int, tiles: int, *tensors: str) -> list[list[Part]]:
        """Return column parts (first, count) of at most ``tiles`` tile columns, by blocks."""
        marks = [mark for name in tensors for mark in self.blocks[name].column_marks]
        return groups(total, marks, tiles, self.config.array.cols)
