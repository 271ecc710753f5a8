"""The records of a configuration: one for each part of the machine, and one for each unit."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Array:
    """The systolic array, or adder trees in its place, and the weights that it holds."""

    rows: int = 8
    """Rows of the systolic array: products summed per column and cycle (elements)."""
    cols: int = 8
    """Columns of the systolic array: sums produced per cycle (elements)."""
    kind: str = "systolic"
    """Addition within a column: ``systolic``, one row a cycle, or ``tree``, in fewer cycles."""
    packed: bool = False
    """Two columns share each multiplier: two products in one; adders part those that overlap."""
    pass_width: int = 8
    """Bits of a weight that elements multiply in a cycle, 8, 4, or 1 by adders alone (bits); wider
    weights take several passes."""
    weight_depth: int = 2
    """Weights held by each processing element (weights); 2 is double buffering."""
    operand_width: int = 8
    """Width of both operands of a product (bits); an operand is stored in one byte."""
    zero_points: bool = True
    """Operands of a matrix product may have zero points other than zero."""
    wide: bool = False
    """Rows of products may be INT16, in two passes over their bytes, and so may weights that are
    other tensors, a byte in each product."""
    b_transpose: bool = True
    """The array can read its weights transposed."""
    operand_gating: bool = True
    """Elements hold their registers at zero operands, so that these do not toggle."""
    sleep: bool = False
    """Columns of the array that a product does not have, and lanes that a beat does not, hold their
    registers."""


@dataclass(frozen=True, kw_only=True)
class PackedCache:
    """Appended keys and values in four bits: two lie in each byte of a slot."""

    low_rows: int = 0
    """Last rows of keys' slots, which hold the other four bits of as many of a key's first
    elements (rows)."""
    exponents: bool = False
    """Rows of values may have an exponent, shared by both tiles in their bytes."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Weights that are stored in fewer bits than the array's."""

    formats: str
    """Formats of fewer bits that weights may be stored in, names with commas between
    (``celosia.arch.formats``)."""
    group: int = 0
    """Inputs of a column that may have a scale together, a multiple of rows (weights); 0: only
    output channels have scales."""
    pairs: bool = False
    """Resident weights in formats of at most 4 bits lie in pairs in a slot's bytes."""


@dataclass(frozen=True, kw_only=True)
class Sparse:
    """The unit that skips zero weights."""

    lanes: int
    """Products a cycle of the unit (products)."""
    longest_row: int = 1024
    """Longest row of activations that it takes, a power of two (elements)."""


@dataclass(frozen=True, kw_only=True)
class Accumulators:
    """The memory of the array's sums."""

    depth: int = 1024
    """Rows of the accumulator memory, each of ``cols`` accumulators (rows)."""
    width: int = 32
    """Width of an accumulator (bits)."""
    longest_sum: int = 2048
    """Longest sum of products that an accumulator must hold (products)."""


@dataclass(frozen=True, kw_only=True)
class Vector:
    """The vector engine: lanes, requantization parameters, and its units without parameters."""

    lanes: int = 4
    """Elements that the vector engine takes per cycle (elements)."""
    words: int = 256
    """Words of requantization parameters held in the vector engine (words of ``lanes``)."""
    multiplier_width: int = 32
    """Upper bits of a requantization multiplier that are held, 32 or 16 (bits); those below are
    0."""
    bias_width: int = 32
    """Width of a requantization bias that is held (bits)."""
    longest_row: int = 512
    """Longest row of a softmax or a normalization (elements)."""
    norm: bool = True
    """The vector engine has an add-normalize unit."""
    rotary: bool = False
    """The vector engine can rotate pairs of columns, or multiply them by a second input."""
    argmax: bool = False
    """The vector engine finds the largest element of a row that it writes."""


@dataclass(frozen=True, kw_only=True)
class Softmax:
    """The vector engine's softmax unit."""

    lanes: int = 0
    """Elements that SOFTMAX takes per cycle, a multiple of the vector engine's lanes (elements);
    0: as many as others."""


@dataclass(frozen=True, kw_only=True)
class Activation:
    """The vector engine's activation tables."""

    slots: int = 2
    """Activation tables held in the vector engine (256-entry tables)."""
    polynomials: bool = False
    """Activation tables can hold polynomials, which take 16-bit operands."""


@dataclass(frozen=True, kw_only=True)
class Fused:
    """Softmax and normalization can read accumulators, requantized as they are read."""

    words: int = 0
    """Words of parameters, from the first on, with which SOFTMAX and NORM can requantize
    accumulators (words of ``lanes``); 0: all."""


@dataclass(frozen=True, kw_only=True)
class Factors:
    """RMS norms and softmaxes leave their factors to the drains of the products that follow."""

    rows: int
    """Rows of RMS norms and softmaxes whose factors are kept (rows); there are no others."""


@dataclass(frozen=True, kw_only=True)
class Scratchpad:
    """The memory of activations on the chip."""

    bytes: int = 65536
    """Size of the scratchpad over all banks (bytes)."""
    banks: int = 2
    """Banks of the scratchpad, each one read and one write per cycle (banks)."""
    align: int = 1
    """Rows of the scratchpad begin at multiples of this size, which is one word of a memory
    (bytes)."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The port to external memory."""

    width: int = 64
    """Width of the external memory port (bits)."""
    addr_width: int = 28
    """Width of an external memory byte address (bits)."""


@dataclass(frozen=True, kw_only=True)
class Control:
    """The sequencer, and what concerns the whole machine."""

    program_depth: int = 2048
    """Size of the program memory (32-bit words)."""
    queue_depth: int = 2
    """Commands that wait in front of each engine (commands)."""
    registered: bool = False
    """Registers stand between units that are far from each other, for a higher clock."""
    watchdog: int = 65536
    """Time without an answer or any progress in which a run is given up (cycles); 0: never."""
    protect: str = "none"
    """Check bits in memories and copies of registers: ``none``, ``detect``, ``correct``, or
    ``UNIT=LEVEL`` of some, parted by commas; the units are those of ``celosia.arch.protection``."""
    counters: bool = True
    """Products, words moved, and what engines and array do in each cycle are counted; without it
    only a run's cycles, and with ``protect`` the words that were corrected."""
    trace: bool = False
    """The accelerator has ports that report every write of the vector engine and when
    each engine begins and ends a command."""


@dataclass(frozen=True, kw_only=True)
class Throttle:
    """The input for the machine's temperature."""

    cycles: int
    """A hot machine moves data in one cycle out of this number, 2 or more (cycles)."""


@dataclass(frozen=True, kw_only=True)
class Micro:
    """One microcoded core does the work of every engine but the array's: the smallest machine."""

    requantizer: bool = True
    """A unit beside the core requantizes values."""
