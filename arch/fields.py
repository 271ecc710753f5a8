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
    """Address width and largest size of an access to the scratchpad."""

    addr_width: int
    """Width of a byte address (bits)."""
    line_bytes: int
    """Most bytes that an access moves (bytes)."""


@dataclass(frozen=True, kw_only=True)
class Fields:
    """The records of a configuration, without checks; the record of an absent unit is None.

    :class:`celosia.arch.config.Config` adds the checks of the fields' values.
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
        """Number of rows at the end of a weight slot that hold the lower four bits of keys.

        Only slots of keys have such rows, and only if the machine has a packed KV cache; otherwise
        the number is 0.
        """
        return self.packed_cache.low_rows if self.packed_cache else 0

    @property
    def block_exponents(self) -> bool:
        """True if values of the KV cache may share an exponent in each row of a weight slot."""
        return self.packed_cache is not None and self.packed_cache.exponents

    @property
    def packed_slots(self) -> bool:
        """True if each byte of a weight slot can hold two 4-bit weights."""
        return self.weights is not None and self.weights.pairs

    @property
    def weight_group(self) -> int:
        """Number of consecutive weights of a column that share a scale; 0 if no weights do."""
        return self.weights.group if self.weights else 0

    @property
    def sparse_lanes(self) -> int:
        """Products per cycle of the unit that skips zero weights; 0 without the unit."""
        return self.sparse.lanes if self.sparse else 0

    @property
    def sparse_depth(self) -> int:
        """Longest activation row of the unit that skips zero weights (elements).

        Without the unit it is the default of :class:`celosia.arch.records.Sparse`.
        """
        return self.sparse.longest_row if self.sparse else Sparse.longest_row

    @property
    def weight_formats(self) -> str:
        """Text of the names of the weight formats besides INT8, separated by commas."""
        return self.weights.formats if self.weights else ""

    @property
    def table_slots(self) -> int:
        """Number of activation tables of 256 entries.

        It is the default, 2, if the machine has no activation tables.
        """
        return (self.activation or Activation()).slots

    @property
    def wide_functions(self) -> bool:
        """True if activation tables can hold polynomials of 16-bit operands."""
        return self.activation is not None and self.activation.polynomials

    @property
    def pre_depth(self) -> int:
        """Number of words of requantization parameters that inputs of SOFTMAX and NORM can use.

        Only inputs that are accumulators need them. The words are the first ones of the parameter
        memory; 0 means that all words can be used.
        """
        return self.fused.words if self.fused else 0

    @property
    def row_factors(self) -> int:
        """Number of softmax or RMS norm rows whose factors the machine can store; 0 for none."""
        return self.factors.rows if self.factors else 0

    @property
    def requantizer(self) -> bool:
        """True if a microcoded machine has a requantization unit."""
        return self.micro is not None and self.micro.requantizer

    @property
    def formats(self) -> tuple[WeightFormat, ...]:
        """The formats, besides INT8, in which weights may be stored in external memory."""
        return tuple(FORMATS[name] for name in self.weight_formats.split(",") if name)

    def protected(self, unit: str) -> str:
        """Return the protection level of a unit of :data:`celosia.arch.protection.UNITS`."""
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
        """Number of passes of the array over an 8-bit weight, ``pass_width`` bits in each."""
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
        """True if a pass of the array can multiply by a part of the bits of each 8-bit weight."""
        return self.passes > 1 or self.paired

    @property
    def paired(self) -> bool:
        """True if each byte of a weight slot can hold 4-bit operands of two tiles."""
        return self.packed_slots or self.packed_cache is not None

    @property
    def lines(self) -> int:
        """Largest number of lines in a weight tile.

        A line is a row of the tile or, if weights may be transposed, a column.
        """
        return max(self.array.rows, self.array.b_transpose * self.array.cols)

    @property
    def line_elements(self) -> int:
        """Largest number of weights in a line of a weight tile.

        A line is a row of the tile or, if weights may be transposed, a column.
        """
        return max(self.array.cols, self.array.b_transpose * self.array.rows)

    @property
    def high_rows(self) -> int:
        """Number of rows at the start of a key's weight slot that hold the upper bits of the key.

        It is a power of two.
        """
        return max(1, next_power_of_two(self.array.rows) // 2)

    @property
    def slot_scales(self) -> int:
        """Number of scale bits above each byte of a weight slot; 0 if slots do not store scales.

        Each row of the slot has some of the bits of the column's scale.
        """
        return -(-SCALE_BITS // self.array.rows) if self.packed_slots and self.weight_group else 0

    @property
    def slot_exponents(self) -> int:
        """Number of exponent bits above each byte of a weight slot; 0 if slots store no exponents.

        Each column of the slot has some of the bits of the row's exponent.
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
        """Address width and largest size of an access to the scratchpad."""
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

        It is 1 if the machine is ``registered`` and has the unit ``fused``, else 0.
        """
        return self.stages * bool(self.fused)

    @property
    def edge_stages(self) -> int:
        """Register stages at the input edge of a systolic array, before zero points are subtracted.

        It is 0 for an array of adder trees, and in a machine that is not ``registered``.
        """
        return self.stages * (self.array.kind == "systolic")

    @property
    def sram_latency(self) -> int:
        """Cycles from a granted scratchpad read request to the data."""
        return 2 + self.stages

    @property
    def weight_latency(self) -> int:
        """Cycles from the scratchpad request for a line of weights to the line's data."""
        return self.sram_latency + self.stages

    @property
    def acc_latency(self) -> int:
        """Cycles from an accepted request for an accumulator row to the row's sums at the drain."""
        return 2 + self.stages

    @property
    def acc_corrected(self) -> bool:
        """True if accumulators pass an extra register stage that corrects flipped bits."""
        return self.control.registered and self.protected("accumulators") == "correct"

    @property
    def acc_settle(self) -> int:
        """Cycles from the accumulation of a row to the first drain request that reads the sum."""
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
        """Largest number of elements in a beat of the vector engine.

        If the machine has a softmax unit, this is the number of elements in a beat of SOFTMAX.
        """
        return (self.softmax.lanes if self.softmax else 0) or self.vector.lanes

    @property
    def lane_groups(self) -> int:
        """Number of beats of ``lanes`` elements in an accumulator row of ``cols`` sums."""
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
