"""Choices that make an encoder's program: its loops, and how operations are cut."""

from dataclasses import dataclass, replace

from celosia.generators.lower.residence import WeightHome

MOST_AHEAD = 8
"""Items that a load may come ahead of its use, at most."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The choices that make a program of a quantized model."""

    loop_layers: bool
    loop_heads: bool
    """Heads come one after the other, as iterations of a loop, and not interleaved."""
    loop_parts: bool
    """The parts that a product is cut into are iterations of a loop."""
    blob_bytes: int
    """Scratchpad bytes of one load of weights, and of the scores of one step of attention."""
    block_bytes: int
    """Scratchpad bytes of one block of a tensor."""
    together: int = 1
    """Heads whose scores one softmax takes, where that can be."""
    height: int = 0
    """Rows of a chunk that norms and the products beside them are cut into; 0 for no chunks."""
    ahead: int = 0
    """Items that a load comes ahead of its use."""
    compact: bool = False
    """Zeros of weights are left out, of image and program."""
    sparse: bool = False
    """Weights without zeros may be coded for the zero-skip unit."""
    whole: bool = False
    """Sums that are added to the stream may take all accumulators, and not half of them."""
    spills: bool = False
    """Blocks leave for external memory where the scratchpad has no room."""
    home: WeightHome = WeightHome.STREAM
    """The memory that keeps weights, and parameters in the scratchpad, from run to run."""

    @property
    def loops(self) -> bool:
        """The program may have loops (see celosia.generators.program.loops)."""
        return self.loop_layers or self.loop_heads or self.loop_parts

    @property
    def coded(self) -> bool:
        """Weights are coded for the zero-skip unit where that is faster."""
        return self.compact and self.sparse

    @property
    def unplaced(self) -> "Choices":
        """The choices apart from those that only places of loads and blocks depend on."""
        return replace(self, ahead=0)
