"""The records of a configuration: each is a dataclass with the fields of one machine part."""

from dataclasses import dataclass

from celosia.arch.choices import CHOICES
from celosia.arch.protection import protection


@dataclass(frozen=True, kw_only=True)
class Array:
    """The multiplier array (systolic, or of adder trees), and the weights that it holds."""

    rows: int = 8
    """Rows of the systolic array: products summed per column and cycle (elements)."""
    cols: int = 8
    """Columns of the systolic array: sums produced per cycle (elements)."""
    kind: str = "systolic"
    """Addition within a column: ``systolic``, one row a cycle, or ``tree``, in fewer cycles."""
    multiplier: str = "single"
    """Multiplier of an element: ``single``; ``shared`` by two columns, whose products it makes in
    one; ``nibbles``, for weights in parts of 4 bits, or ``shared_nibbles``; ``adders``, for weights
    bit by bit, without multipliers."""
    weight_depth: int = 2
    """Weights held by each processing element (weights); 2 is double buffering."""
    operands: str = "affine8"
    """Operands of a product, each in one byte: ``int2`` to ``int8``, signed; ``affine2`` to
    ``affine8``, which may have zero points; ``affine16``, ``affine8`` with rows that may be INT16,
    multiplied in two passes over their bytes. Weights that are activations may be INT16 too, one
    byte in each product."""
    b_transpose: bool = True
    """The array can read its weights transposed."""
    gating: str = "operands"
    """Registers that hold their values, which saves switching power: ``none``; ``operands``, those
    of an element while an operand is zero; ``idle``, those of columns and lanes that a product or a
    beat does not use; ``all``, both."""

    @property
    def packed(self) -> bool:
        """True if each multiplier computes the products of two columns at once."""
        return bool(CHOICES["multiplier"][self.multiplier]["packed"])

    @property
    def pass_width(self) -> int:
        """Number of bits of a weight that the array multiplies per pass."""
        return int(CHOICES["multiplier"][self.multiplier]["pass_width"])

    @property
    def operand_width(self) -> int:
        """Width of each operand of a product (bits)."""
        return int(CHOICES["operands"][self.operands]["operand_width"])

    @property
    def zero_points(self) -> bool:
        """True if operands may have zero points other than zero."""
        return bool(CHOICES["operands"][self.operands]["zero_points"])

    @property
    def wide(self) -> bool:
        """True if activations that the array multiplies may be INT16."""
        return bool(CHOICES["operands"][self.operands]["wide_operands"])

    @property
    def operand_gating(self) -> bool:
        """True if an array element's registers keep their values while an operand is zero."""
        return bool(CHOICES["gating"][self.gating]["operand_gating"])

    @property
    def sleep(self) -> bool:
        """True if columns and lanes that are not in use keep the values of their registers.

        A product may use only some columns. A beat (the elements that the vector engine processes
        in one cycle) may use only some lanes. Registers that keep their values save power.
        """
        return bool(CHOICES["gating"][self.gating]["sleep"])


@dataclass(frozen=True, kw_only=True)
class PackedCache:
    """KV cache of 4-bit keys and values, two in each byte of a weight slot.

    A weight slot is the array's storage for one tile. The two elements of a byte belong to two
    attention heads.
    """

    low_rows: int = 0
    """Last rows of key slots, which hold the lower four bits of the first ``low_rows`` elements of
    a key (rows)."""
    exponents: bool = False
    """Rows of values may have an exponent, shared by the two tiles in their bytes."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Formats other than INT8 in which weights may be stored."""

    formats: str
    """Names of the formats in which weights may be stored, separated by commas
    (``celosia.arch.formats``)."""
    group: int = 0
    """Consecutive weights of a column that may share a scale, a multiple of rows (weights); 0: only
    output channels have scales."""
    pairs: bool = False
    """Resident weights in formats of at most 4 bits share bytes of a slot in pairs."""


@dataclass(frozen=True, kw_only=True)
class Sparse:
    """The unit that multiplies by sparse matrices and skips their zero weights."""

    lanes: int
    """Products per cycle (products)."""
    longest_row: int = 1024
    """Longest row of activations that the unit accepts, a power of two (elements)."""


@dataclass(frozen=True, kw_only=True)
class Accumulators:
    """The memory that accumulates the array's sums."""

    depth: int = 1024
    """Rows of the accumulator memory, each of ``cols`` accumulators (rows)."""
    width: int = 32
    """Width of an accumulator (bits)."""
    longest_sum: int = 2048
    """Longest sum of products that an accumulator must hold (products)."""

    @property
    def addr_width(self) -> int:
        """Width of the address of an accumulator row (bits)."""
        return max(1, (self.depth - 1).bit_length())


@dataclass(frozen=True, kw_only=True)
class Vector:
    """The vector engine: its lanes, stored requantization parameters, and optional functions."""

    lanes: int = 4
    """Elements that the vector engine processes per cycle (elements)."""
    words: int = 256
    """Words of requantization parameters held in the vector engine (words of ``lanes``)."""
    multiplier_width: int = 32
    """Stored upper bits of a requantization multiplier, 32 or 16 (bits); the lower bits are 0."""
    bias_width: int = 32
    """Stored width of a requantization bias (bits)."""
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
    """Elements that SOFTMAX accepts per cycle, a multiple of the vector engine's lanes (elements);
    0: the same number."""


@dataclass(frozen=True, kw_only=True)
class Activation:
    """Configuration of the vector engine's activation tables, which store functions such as GELU.

    The fields are the number of tables, and whether a table can store polynomials. The contents of
    tables are not part of the configuration.
    """

    slots: int = 2
    """Activation tables held in the vector engine (256-entry tables)."""
    polynomials: bool = False
    """Activation tables can hold polynomials, which take 16-bit operands."""


@dataclass(frozen=True, kw_only=True)
class Fused:
    """The option that SOFTMAX and NORM read accumulators, as well as the scratchpad.

    The vector engine requantizes the sums that it reads from the accumulators.
    """

    words: int = 0
    """Parameter words, from the first on, that SOFTMAX and NORM can use for accumulators (words of
    ``lanes``); 0: all."""


@dataclass(frozen=True, kw_only=True)
class Factors:
    """Memory of normalization factors, one per row of a softmax or RMS norm.

    The instruction DRAIN, which requantizes a matrix product, multiplies each row by its factor.
    """

    rows: int
    """Rows of RMS norms and softmaxes whose factors are kept (rows); no norm or softmax has more
    rows."""


@dataclass(frozen=True, kw_only=True)
class Scratchpad:
    """The on-chip memory of activations."""

    bytes: int = 65536
    """Size of the scratchpad over all banks (bytes)."""
    banks: int = 2
    """Banks of the scratchpad, each with one read and one write per cycle (banks)."""
    align: int = 1
    """Rows in the scratchpad begin at multiples of this size, which is one word of its RAMs
    (bytes)."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The port to external memory."""

    width: int = 64
    """Width of the external memory port (bits)."""
    addr_width: int = 28
    """Width of an external memory byte address (bits)."""

    @property
    def word_bytes(self) -> int:
        """Size of an external memory word (bytes)."""
        return self.width // 8


@dataclass(frozen=True, kw_only=True)
class Control:
    """Options of the sequencer, which sends commands to the engines, and of the whole machine."""

    program_depth: int = 2048
    """Size of the program memory (32-bit words)."""
    queue_depth: int = 2
    """Commands that can wait for each engine (commands)."""
    registered: bool = False
    """Extra registers between distant units raise the clock frequency."""
    watchdog: int = 65536
    """Cycles without an answer or any progress after which a run is stopped (cycles); 0: never."""
    protect: str = "none"
    """Check bits in memories and copies of registers: ``none``, ``detect``, ``correct``, or
    ``UNIT=LEVEL`` for some units of ``celosia.arch.protection``, separated by commas."""
    observe: str = "counters"
    """Circuits that observe a run: ``none``, which counts only a run's cycles, and with ``protect``
    the corrected words; ``counters`` of products, moved words, and the state of engines and array
    in each cycle; ``trace``, ports that report every write of the vector engine, and the begin and
    end of each command; ``all``, both."""

    @property
    def counters(self) -> bool:
        """True if the machine counts products, moved external words, and cycles of engine states.

        If false, it counts only the cycles of a run and, with ``protect``, cycles with corrected
        words.
        """
        return bool(CHOICES["observe"][self.observe]["counters"])

    @property
    def trace(self) -> bool:
        """True if ports report the vector engine's writes, and each command's begin and end."""
        return bool(CHOICES["observe"][self.observe]["trace"])

    @property
    def stages(self) -> int:
        """Pipeline stages on paths between distant units: 1 if ``registered``, else 0."""
        return int(self.registered)

    def protected(self, unit: str) -> str:
        """Return how a unit is protected against flipped bits: ``none``, ``detect`` or ``correct``.

        ``unit`` is one of :data:`celosia.arch.protection.UNITS`.
        """
        return protection(self.protect)[unit]


@dataclass(frozen=True, kw_only=True)
class Throttle:
    """Slower memories while the machine is hot.

    The machine is hot from ``temperature`` above ``hot`` until it is below ``cool`` (inputs of the
    port ``thermal``). Scratchpad and accumulators of a hot machine move data in one of every
    ``cycles`` cycles; reads of weights are not delayed.
    """

    cycles: int
    """Period in which a hot machine moves data once, 2 or more (cycles)."""


@dataclass(frozen=True, kw_only=True)
class Micro:
    """A microcoded core that replaces the engines, but not the array, in the smallest machines."""

    requantizer: bool = True
    """The core has a requantization unit."""
