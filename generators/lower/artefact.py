"""The compiler's result: programs, and the integer graph that they compute."""

from dataclasses import dataclass

from celosia.arch.formats import OPERAND_BITS
from celosia.generators.graph.fewer_planes import with_upper_bits
from celosia.generators.graph.quantized import IntegerGraph
from celosia.generators.lower.choices import Choices
from celosia.generators.program.draft import Written
from celosia.generators.program.executable import ENCODE
from celosia.generators.runtime.host import Host


@dataclass(frozen=True, kw_only=True)
class Artefact(Host):
    """A compiled model: its programs, the data that a host needs, and its quantized operations.

    ``graph`` has the quantized operations, which the programs compute with integers. The fields
    after ``graph`` describe an encoder's program. For a decoder they have their default values.
    """

    graph: IntegerGraph
    plan: Choices | None = None
    """The choices that made the program."""
    loops: int = 0
    """Number of loops in the program that are not inside another."""
    spilled_bytes: int = 0
    """External memory after the image, for tensors' blocks that leave the scratchpad."""
    passing_bytes: int = 0
    """Bytes of the image for tensors whose blocks leave between two products."""
    kept_bytes: int = 0
    """Bytes in external memory of weights and parameters that stay on the chip between runs."""
    left_out: int = 0
    """Tiles of zeros that are left out of all weights."""

    def graph_at(self, bits: int) -> IntegerGraph:
        """Return the quantized model with only the upper ``bits`` bits (8, 4 or 2) of each weight.

        Less than 8 bits are possible only for nested weights, which are stored as bit planes, so
        that a run can read only the upper bits.
        """
        return with_upper_bits(self.graph, bits)

    @property
    def written(self) -> list[Written]:
        """The parts of tensors that an encoder's program writes, in execution order.

        Each part is written by one instruction of the vector engine, in the program ``encode``.
        """
        return self.entries[ENCODE].written

    def least_bytes(
        self, rows: int | None = None, *, again: bool = False, bits: int = OPERAND_BITS
    ) -> int:
        """Return the fewest bytes that an inference must load from external memory.

        - ``rows``: number of input rows; None stands for the model's longest input.
        - ``again``: true if an earlier inference has left weights and parameters on the chip.
        - ``bits``: number of bits (8, 4 or 2) read of each weight; below 8 only for weights in bit
          planes.
        """
        source, missing = self.graph.input, 0
        if rows is not None and not source.stride % self.config.mem_bytes:
            missing = self.batch * source.rows - rows
        kept = self.passing_bytes + (self.kept_bytes if again else 0)
        kept += self.graph.weight_bytes - self.graph_at(bits).weight_bytes
        return len(self.image) - self.output_piece.size - missing * source.stride - kept

    @property
    def macs_resident(self) -> int:
        """Number of multiply-accumulates of all linear layers for one token, without attention."""
        return sum(op.size for op in self.graph.linears)

    def macs(self, position: int = 0, source: int = 0, *, rows: int | None = None) -> int:
        """Return the number of multiply-accumulates in a run, for linear layers and attention.

        - Encoder: a run has ``rows`` input rows; None stands for the longest input.
        - Decoder: a run processes the token with index ``position``. The token attends to the
          cached tokens, and to ``source`` tokens of a source text.
        """
        if not self.reads_tokens:
            return self.batch * self.graph.macs(self.length(rows))
        model = self.graph.description
        seen = self.cache.count(position) + source
        columns = self.graph.key_dim + model.head_dim
        return int(self.macs_resident + model.layers * model.heads * seen * columns)

    def source_macs(self, source: int) -> int:
        """Return the number of multiply-accumulates with which an encoder reads ``source`` tokens.

        The encoder is part of an encoder-decoder model. Its linear layers and attention are
        counted, padding is not. The result is 0 for a model without an encoder.
        """
        encoder, model = self.graph.source, self.graph.description
        linear = 0 if encoder is None else sum(op.size for op in encoder.linears)
        columns = self.graph.key_dim + model.head_dim
        return int(source * (linear + model.source_layers * model.heads * source * columns))
