"""The records of a configuration, and the sizes that are derived from their fields."""

from dataclasses import dataclass, field

from celosia.arch.formats import EXPONENT_BITS, FORMATS, OPERAND_BITS, SCALE_BITS, WeightFormat
from celosia.arch.protection import protection
from celosia.arch.records import (
    Accumulators,
    Activation,
    Array,
    Control,
    Factors,
    Fused,
    Memory,
    Micro,
    PackedCache,
    Scratchpad,
    Softmax,
    Sparse,
    Throttle,
    Vector,
    Weights,
)


def next_power_of_two(value: int) -> int:
    """Return the smallest power of two that is at least ``value``, which is positive."""
    return 1 << (value - 1).bit_length()


@dataclass(frozen=True)
class Access:
    """Width of a scratchpad address (bits), and size of the largest scratchpad access (bytes)."""

    addr_width: int
    """Width of a byte address (bits)."""
    line_bytes: int
    """Most bytes that an access moves (bytes)."""


@dataclass(frozen=True, kw_only=True)
class Fields:
    """The records of a configuration, a dataclass for each unit; an absent unit's record is None.

    This class does not check the fields' values; :class:`celosia.arch.config.Config` does.
    """

    name: str = "custom"
    """Name of the configuration; it has no effect on the circuit."""
    array: Array = field(default_factory=Array)
    packed_cache: PackedCache | None = None
    weights: Weights | None = None
    sparse: Sparse | None = None
    accumulators: Accumulators = field(default_factory=Accumulators)
    vector: Vector = field(default_factory=Vector)
    softmax: Softmax | None = field(default_factory=Softmax)
    activation: Activation | None = field(default_factory=Activation)
    fused: Fused | None = field(default_factory=Fused)
    factors: Factors | None = None
    scratchpad: Scratchpad = field(default_factory=Scratchpad)
    memory: Memory = field(default_factory=Memory)
    control: Control = field(default_factory=Control)
    throttle: Throttle | None = None
    micro: Micro | None = None

    @property
    def low_rows(self) -> int:
        """Number of rows at the end of a slot of attention keys that hold the keys' lower bits.

        Each of these rows holds the lower four bits of one element of the keys. The number is 0 if
        the machine has no KV cache of 4-bit keys and values.
        """
        return self.packed_cache.low_rows if self.packed_cache else 0

    @property
    def block_exponents(self) -> bool:
        """True if the values V in a KV cache may have exponents; the keys never have any.

        Each row of a weight slot that holds such values then has one exponent.
        """
        return self.packed_cache is not None and self.packed_cache.exponents

    @property
    def packed_slots(self) -> bool:
        """True if each byte of a weight slot can hold two 4-bit weights."""
        return self.weights is not None and self.weights.pairs

    @property
    def weight_group(self) -> int:
        """Number of consecutive weights of a column that share a scale; 0 if none share one."""
        return self.weights.group if self.weights else 0

    @property
    def sparse_lanes(self) -> int:
        """Products per cycle of the unit that skips zero weights; 0 if the machine lacks it."""
        return self.sparse.lanes if self.sparse else 0

    @property
    def sparse_depth(self) -> int:
        """Most elements in an activation row that the unit for sparse weights accepts.

        The unit skips zero weights. If the machine lacks it, the number is the default of
        :class:`celosia.arch.records.Sparse`.
        """
        return self.sparse.longest_row if self.sparse else Sparse.longest_row

    @property
    def weight_formats(self) -> str:
        """Names of the machine's weight formats besides INT8, separated by commas; "" if none."""
        return self.weights.formats if self.weights else ""

    @property
    def table_slots(self) -> int:
        """Number of activation tables, each of 256 entries, that the vector engine can hold.

        If the machine has no activation tables, the number is the default, 2.
        """
        return (self.activation or Activation()).slots

    @property
    def wide_functions(self) -> bool:
        """True if an activation table can hold polynomials that approximate a function.

        The function's argument then has 16 bits. Other tables have an entry for each 8-bit
        argument.
        """
        return self.activation is not None and self.activation.polynomials

    @property
    def pre_depth(self) -> int:
        """Number of words of requantization parameters that SOFTMAX and NORM can use.

        SOFTMAX and NORM use these words to requantize inputs that they read from accumulators. The
        words are the first ones of the parameter memory. The number is 0 if SOFTMAX and NORM can
        use all words, or if they cannot read accumulators (no record ``fused``).
        """
        return self.fused.words if self.fused else 0

    @property
    def row_factors(self) -> int:
        """Number of rows for which the machine can store a normalization factor; 0 for none.

        SOFTMAX or an RMS norm computes the factors, and a later product is multiplied by them.
        """
        return self.factors.rows if self.factors else 0

    @property
    def requantizer(self) -> bool:
        """True if the machine is microcoded and its core has a requantization unit."""
        return self.micro is not None and self.micro.requantizer

    @property
    def formats(self) -> tuple[WeightFormat, ...]:
        """Tuple of the formats, besides INT8, in which weights may be stored in external memory."""
        return tuple(FORMATS[name] for name in self.weight_formats.split(",") if name)

    def protected(self, unit: str) -> str:
        """Return a unit's level of protection against flipped bits.

        ``unit`` is one of :data:`celosia.arch.protection.UNITS`; the result is ``none``, ``detect``
        or ``correct``.
        """
        return self.control.protected(unit)

    @property
    def protects(self) -> bool:
        """True if any unit is protected against flipped bits."""
        return any(level != "none" for level in protection(self.control.protect).values())

    @property
    def element_width(self) -> int:
        """Width of a signed operand in the array after its zero point is subtracted (bits)."""
        return self.array.operand_width + self.array.zero_points

    @property
    def passes(self) -> int:
        """Number of passes in which the array multiplies by an 8-bit weight.

        Each pass multiplies by ``pass_width`` bits of the weight.
        """
        return OPERAND_BITS // self.array.pass_width

    @property
    def vector_passes(self) -> int:
        """Largest number of passes of the array that one row of activations takes.

        It is 2 if the array accepts INT16 activations, otherwise ``passes``, the number of passes
        over an 8-bit weight.
        """
        return 2 if self.array.wide else self.passes

    @property
    def parted(self) -> bool:
        """True if a pass of the array can multiply by only some bits of each 8-bit weight."""
        return self.passes > 1 or self.paired

    @property
    def paired(self) -> bool:
        """True if a byte of a weight slot can hold two 4-bit operands, one of each of two tiles.

        The operands are weights, or keys or values of the KV cache.
        """
        return self.packed_slots or self.packed_cache is not None

    @property
    def lines(self) -> int:
        """Largest number of lines in a weight tile.

        A line is a row of the tile, or a column if an instruction transposes its weights. Columns
        count only if the array can transpose weights (``b_transpose``).
        """
        return max(self.array.rows, self.array.b_transpose * self.array.cols)

    @property
    def line_elements(self) -> int:
        """Largest number of weights in a line of a weight tile.

        A line is a row of the tile, or a column if an instruction transposes its weights. Columns
        count only if the array can transpose weights (``b_transpose``).
        """
        return max(self.array.cols, self.array.b_transpose * self.array.rows)

    @property
    def high_rows(self) -> int:
        """Number of rows at the start of a slot of attention keys that hold the keys' upper bits.

        Each of these rows holds the upper four bits of one element of the keys. The number is a
        power of two.
        """
        return max(1, next_power_of_two(self.array.rows) // 2)

    @property
    def slot_scales(self) -> int:
        """Number of scale bits stored beside each byte of a weight slot; 0 if slots have no scales.

        The bits beside the bytes of one column form the scale of the column's weights.
        """
        return -(-SCALE_BITS // self.array.rows) if self.packed_slots and self.weight_group else 0

    @property
    def slot_exponents(self) -> int:
        """Most exponent bits stored beside a byte of a weight slot; 0 if slots have no exponents.

        The bits beside the bytes of one row form the exponent of the row's values.
        """
        return -(-EXPONENT_BITS // self.array.cols) if self.block_exponents else 0

    @property
    def operand_min(self) -> int:
        """Smallest value of a signed operand of ``operand_width`` bits."""
        return -(1 << (self.array.operand_width - 1))

    @property
    def operand_max(self) -> int:
        """Largest value of a signed operand of ``operand_width`` bits."""
        return (1 << (self.array.operand_width - 1)) - 1

    @property
    def sum_width(self) -> int:
        """Smallest signed width in which no sum of ``longest_sum`` products overflows (bits)."""
        largest = (
            (1 << self.array.operand_width) - 1 if self.array.zero_points else -self.operand_min
        )
        return (self.accumulators.longest_sum * largest * largest).bit_length() + 1

    @property
    def mem_bytes(self) -> int:
        """Size of one external memory word (bytes)."""
        return self.memory.word_bytes

    @property
    def line_bytes(self) -> int:
        """Largest size of one scratchpad access, a power of two (bytes)."""
        elements = max(self.array.rows, self.array.cols) << self.array.wide
        return next_power_of_two(max(elements, 2 * self.beat_lanes, self.mem_bytes))

    @property
    def access(self) -> Access:
        """Width of a scratchpad address (bits), and size of the largest access (bytes)."""
        return Access(self.sp_addr_width, self.line_bytes)

    @property
    def bank_bytes(self) -> int:
        """Size of one scratchpad bank (bytes)."""
        return self.scratchpad.bytes // self.scratchpad.banks

    @property
    def stages(self) -> int:
        """Register stages in the connections between distant units: 1 if ``registered``, else 0."""
        return self.control.stages

    @property
    def lane_stages(self) -> int:
        """Register stages before the multiplexer that selects the input of each vector engine lane.

        It is 1 if the machine is ``registered`` and SOFTMAX and NORM can read accumulators (record
        ``fused``), else 0.
        """
        return self.stages * bool(self.fused)

    @property
    def edge_stages(self) -> int:
        """Register stages at the input edge of a systolic array, before zero points are subtracted.

        It is 1 if the machine is ``registered`` and its array is systolic, else 0.
        """
        return self.stages * (self.array.kind == "systolic")

    @property
    def sram_latency(self) -> int:
        """Cycles from a granted read request to the scratchpad until its data arrive."""
        return 2 + self.stages

    @property
    def weight_latency(self) -> int:
        """Cycles from a request to the scratchpad for a line of weights until the line arrives."""
        return self.sram_latency + self.stages

    @property
    def acc_latency(self) -> int:
        """Cycles from an accepted request for an accumulator row until its sums reach the drain."""
        return 2 + self.stages

    @property
    def acc_corrected(self) -> bool:
        """True if accumulators pass an extra register stage that corrects flipped bits."""
        return self.control.registered and self.protected("accumulators") == "correct"

    @property
    def acc_settle(self) -> int:
        """Cycles from the accumulation of a row until a drain request can read the new sums."""
        return 3 + self.stages + self.acc_corrected

    @property
    def sp_addr_width(self) -> int:
        """Width of a scratchpad byte address (bits)."""
        return (self.scratchpad.bytes - 1).bit_length()

    @property
    def acc_addr_width(self) -> int:
        """Width of an accumulator row address (bits)."""
        return self.accumulators.addr_width

    @property
    def beat_lanes(self) -> int:
        """Largest number of elements in a beat, which the vector engine processes in one cycle.

        If the machine has a softmax unit, this is the number of elements in a beat of SOFTMAX,
        otherwise the number of the vector engine's lanes.
        """
        return (self.softmax.lanes if self.softmax else 0) or self.vector.lanes

    @property
    def lane_groups(self) -> int:
        """Number of beats in which a row of ``cols`` accumulators is read.

        Each beat has one accumulator for each lane of the vector engine; the last beat may have
        fewer.
        """
        return -(-self.array.cols // self.vector.lanes)

    @property
    def param_lines(self) -> int:
        """Number of scratchpad lines that hold one word of requantization parameters."""
        return -(-9 * self.vector.lanes // self.line_bytes)

    @property
    def word_bytes(self) -> int:
        """Number of scratchpad bytes that hold one word of requantization parameters."""
        return self.param_lines * self.line_bytes

    @property
    def elements(self) -> int:
        """Number of the array's processing elements."""
        return self.array.rows * self.array.cols
