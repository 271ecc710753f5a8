"""Choices of tiling, loops and placement that define an encoder's program."""

from dataclasses import dataclass, replace

from celosia.generators.lower.residence import WeightHome

MOST_AHEAD = 8
"""Most items by which a load may precede its use."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Choices of tiling, loops and placement that define an encoder's program."""

    loop_layers: bool
    loop_heads: bool
    """True if heads are iterations of a loop, one after another, and not interleaved."""
    loop_parts: bool
    """True if the parts of a product are iterations of a loop."""
    blob_bytes: int
    """Scratchpad bytes of one load of weights, and of the scores of one step of attention."""
    block_bytes: int
    """Scratchpad bytes of one block of a tensor."""
    together: int = 1
    """Most heads whose scores one softmax takes, if that is possible."""
    height: int = 0
    """Rows of a chunk that norms and the products beside them are cut into; 0 for no chunks."""
    ahead: int = 0
    """Items by which a load precedes its use."""
    compact: int = 0
    """Least ratio of the cycles that a run of zero tiles takes to the words of one more product, if
    the run is left out of image and program; 0 if all zeros of weights stay."""
    sparse: bool = False
    """True if weights without zeros may be coded for the zero-skip unit."""
    whole: bool = False
    """True if sums that are added to the stream may use all accumulators, not half of them."""
    input_last: bool = False
    """True if the input is loaded after the first weights, whose parameters are then there."""
    piped: bool = True
    """True if, in a loop over a product's parts, a block's loads run beside the products of the
    block before, and take two places in turn; false if they take one place before its products."""
    ends_ahead: bool = False
    """True if each section of the program, such as a layer, ends with the norm or conversion that
    the next section begins with."""
    reloads: bool = False
    """True if a product's parts load the input's blocks of columns again, as they load weights."""
    spills: bool = False
    """True if blocks leave for external memory when the scratchpad has no room."""
    home: WeightHome = WeightHome.STREAM
    """The memory that keeps weights, and parameters in the scratchpad, from run to run."""

    @property
    def loops(self) -> bool:
        """True if the program may have loops.

        The iterations of a loop are layers, attention heads or parts of a product.
        """
        return self.loop_layers or self.loop_heads or self.loop_parts

    @property
    def coded(self) -> bool:
        """True if the compiler may store weights as sparse matrices.

        The zero-skip unit multiplies by a sparse matrix without its zeros. A matrix is stored in
        sparse form only if its product then takes fewer cycles.
        """
        return self.compact > 0 and self.sparse and not self.loop_layers

    def is_at_most(self, other: "Choices") -> bool:
        """Return True if ``blob_bytes`` and ``block_bytes`` are at most those of ``other``.

        The result is False if the settings differ in loops, ``compact`` or ``ends_ahead``. The
        lengths of programs with such different settings cannot be compared.
        """
        sizes = self.blob_bytes <= other.blob_bytes and self.block_bytes <= other.block_bytes
        return sizes and self._kind == other._kind

    @property
    def _kind(self) -> tuple[object, ...]:
        return self.loop_layers, self.loop_heads, self.loop_parts, self.compact, self.ends_ahead

    @property
    def unplaced(self) -> "Choices":
        """A copy of these compiler settings in which :attr:`ahead` is 0.

        Settings that differ only in the distance of loads from their use (:attr:`ahead`) have equal
        copies. The compiler makes the instructions once for all of them.
        """
        return replace(self, ahead=0)


@dataclass(frozen=True)
class DataPlacement:
    """A possible placement of a decoder's data in memories, and the most prompt tokens in a run.

    The data are embeddings, requantization parameters, keys and values. The compiler uses the first
    of several placements with which the decoder fits the machine.
    """

    rows: int
    """Largest number of prompt tokens in a run."""
    rows_stay: bool
    """True if the vocabulary and positions stay in the scratchpad."""
    passing: bool = False
    """True if parameter words, keys and values are in external memory, and are loaded for each
    use."""
    key_heads: int = 1
    """Most key heads of a text whose keys share slots, below each other."""
    decides: bool = True
    """True if the placement's refusal is a reason to give."""

    def is_at_most(self, other: "DataPlacement") -> bool:
        """Return True if :attr:`rows` is less than ``other.rows``, or equal to it.

        A :class:`DataPlacement` is one possible placement of a decoder's data in memories. Its
        attribute :attr:`rows` is the largest number of prompt tokens that one run may process.
        """
        return self.rows <= other.rows
