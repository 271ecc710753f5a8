"""The fields of a configuration, and the sizes that follow from them."""

from dataclasses import dataclass

from celosia.arch.formats import EXPONENT_BITS, FORMATS, OPERAND_BITS, SCALE_BITS, WeightFormat
from celosia.arch.protection import protection


def next_power_of_two(value: int) -> int:
    """Return the smallest power of two that is not below a positive value."""
    return 1 << (value - 1).bit_length()


@dataclass(frozen=True, kw_only=True)
class Fields:
    """Fields of :class:`celosia.arch.config.Config`, not checked yet."""

    name: str = "custom"
    """Name of the configuration; part of no circuit."""
    clock_mhz: int = 50
    """Clock that figures in seconds are given for (MHz); part of no circuit."""

    rows: int = 8
    """Rows of the systolic array: products summed per column and cycle (elements)."""
    cols: int = 8
    """Columns of the systolic array: sums produced per cycle (elements)."""
    array: str = "systolic"
    """Addition within a column: ``systolic``, one row a cycle, or ``tree``, in fewer cycles."""
    packed: bool = False
    """Two columns share each multiplier: two products in one; adders part those that overlap."""
    pass_width: int = 8
    """Bits of a weight that elements multiply in a cycle, 8, 4, or 1 by adders alone (bits); wider
    weights take several passes."""
    packed_slots: bool = False
    """Resident weights in formats of at most 4 bits lie in pairs in a slot's bytes."""
    packed_cache: bool = False
    """Appended keys and values, of which four bits are kept, lie in pairs in a slot's bytes."""
    low_rows: int = 0
    """Last rows of such keys' slots, which hold the other four bits of as many of a key's first
    elements (rows)."""
    block_exponents: bool = False
    """Rows of such values may have an exponent, shared by both tiles in their bytes."""
    weight_depth: int = 2
    """Weights held by each processing element (weights); 2 is double buffering."""
    operand_width: int = 8
    """Width of both operands of a product (bits); an operand is stored in one byte."""
    acc_width: int = 32
    """Width of an accumulator (bits)."""
    max_k: int = 2048
    """Longest sum of products that an accumulator must hold (products)."""
    lanes: int = 4
    """Elements that the vector engine takes per cycle (elements)."""
    softmax_lanes: int = 0
    """Elements that SOFTMAX takes per cycle, a multiple of lanes (elements); 0: as many as
    others."""
    scratchpad_bytes: int = 65536
    """Size of the scratchpad over all banks (bytes)."""
    scratchpad_banks: int = 2
    """Banks of the scratchpad, each one read and one write per cycle (banks)."""
    scratchpad_align: int = 1
    """Rows of the scratchpad begin at multiples of so many bytes, which share a block of memory
    (bytes)."""
    registered: bool = False
    """Registers stand between units that are far from each other, for a higher clock."""
    acc_depth: int = 1024
    """Rows of the accumulator memory, each of ``cols`` accumulators (rows)."""
    mem_width: int = 64
    """Width of the external memory port (bits)."""
    mem_addr_width: int = 28
    """Width of an external memory byte address (bits)."""
    program_depth: int = 2048
    """Size of the program memory (32-bit words)."""
    param_depth: int = 256
    """Words of requantization parameters held in the vector engine (words of ``lanes``)."""
    pre_depth: int = 0
    """Words of these, from the first on, with which SOFTMAX and NORM can requantize accumulators
    (words of ``lanes``); 0: all."""
    multiplier_width: int = 32
    """Upper bits of a requantization multiplier that are held, 32 or 16 (bits); those below are
    0."""
    bias_width: int = 32
    """Width of a requantization bias that is held (bits)."""
    table_slots: int = 2
    """Activation tables held in the vector engine (256-entry tables)."""
    row_factors: int = 0
    """Rows of RMS norms and softmaxes that leave their factors to the drains of the products behind
    them (rows); 0: there are no such rows, else no others."""
    max_row: int = 512
    """Longest row of a softmax or a normalization (elements)."""
    queue_depth: int = 2
    """Commands that wait in front of each engine (commands)."""
    watchdog: int = 65536
    """Time without an answer or any progress in which a run is given up (cycles); 0: never."""

    zero_points: bool = True
    """Operands of a matrix product may have zero points other than zero."""
    b_transpose: bool = True
    """The array can read its weights transposed."""
    operand_gating: bool = True
    """Elements hold their registers at zero operands, so that these do not toggle."""
    sleep: bool = False
    """Columns of the array that a product does not have, and lanes that a beat does not, hold their
    registers."""
    activation: bool = True
    """The vector engine has activation tables."""
    wide_operands: bool = False
    """Rows of products may be INT16, in two passes over their bytes, and so may weights that are
    other tensors, a byte in each product."""
    wide_functions: bool = False
    """Activation tables can hold polynomials, which take 16-bit operands."""
    softmax: bool = True
    """The vector engine has a softmax unit."""
    norm: bool = True
    """The vector engine has an add-normalize unit."""
    rotary: bool = False
    """The vector engine can rotate pairs of columns, or multiply them by a second input."""
    argmax: bool = False
    """The vector engine finds the largest element of a row that it writes."""
    fused: bool = True
    """Softmax and normalization can read accumulators, requantized as they are read."""

    weight_formats: str = ""
    """Formats of fewer bits that weights may be stored in, names with commas between
    (``celosia.arch.formats``)."""
    weight_group: int = 0
    """Inputs of a column that may have a scale together, a multiple of rows (weights); 0: only
    output channels have scales."""
    sparse_lanes: int = 0
    """Products a cycle of the unit that skips zero weights (products); 0 for no such unit."""
    sparse_depth: int = 1024
    """Longest row of activations that it takes, a power of two (elements)."""

    throttle: int = 0
    """Cycles of which a hot machine moves data in one, 2 or more (cycles); 0: it has no input for
    its temperature."""
    protect: str = "none"
    """Check bits in memories and copies of registers: ``none``, ``detect``, ``correct``, or
    ``UNIT=LEVEL`` of some, parted by commas; the units are those of ``celosia.arch.protection``."""

    counters: bool = True
    """Products, words moved, and what engines and array do in each cycle are counted; without it
    only a run's cycles, and with ``protect`` the words that were corrected."""
    trace: bool = False
    """The accelerator has ports that report every write of the vector engine and when
    each engine begins and ends a command."""

    @property
    def formats(self) -> tuple[WeightFormat, ...]:
        """The formats that weights may be stored in besides INT8."""
        return tuple(FORMATS[name] for name in self.weight_formats.split(",") if name)

    def protected(self, unit: str) -> str:
        """Return the level of protection of a unit."""
        return protection(self.protect)[unit]

    @property
    def protects(self) -> bool:
        """Anything is protected."""
        return any(level != "none" for level in protection(self.protect).values())

    @property
    def element_width(self) -> int:
        """Width of a signed operand inside the array, after its zero point (bits)."""
        return self.operand_width + self.zero_points

    @property
    def passes(self) -> int:
        """Cycles in which a vector meets weights of INT8 part by part."""
        return OPERAND_BITS // self.pass_width

    @property
    def vector_passes(self) -> int:
        """Cycles that a vector may take: for parts of weights, or its own bytes."""
        return 2 if self.wide_operands else self.passes

    @property
    def parted(self) -> bool:
        """Vectors may meet parts of what the array holds."""
        return self.passes > 1 or self.paired

    @property
    def paired(self) -> bool:
        """Slots may hold two tiles in their bytes."""
        return self.packed_slots or self.packed_cache

    @property
    def high_rows(self) -> int:
        """Rows of a slot above those that may be ``low_rows``, a power of two, at least one."""
        return max(1, next_power_of_two(self.rows) // 2)

    @property
    def slot_scales(self) -> int:
        """Bits of a slot's scale that lie behind each of its bytes; 0 where slots have none."""
        return -(-SCALE_BITS // self.rows) if self.packed_slots and self.weight_group else 0

    @property
    def slot_exponents(self) -> int:
        """Bits of a row's exponent above the bytes of each of its first columns; 0 without."""
        return -(-EXPONENT_BITS // self.cols) if self.block_exponents else 0

    @property
    def operand_min(self) -> int:
        """Smallest operand."""
        return -(1 << (self.operand_width - 1))

    @property
    def operand_max(self) -> int:
        """Largest operand."""
        return (1 << (self.operand_width - 1)) - 1

    @property
    def sum_width(self) -> int:
        """Width that no sum of ``max_k`` products overflows (bits)."""
        largest = (1 << self.operand_width) - 1 if self.zero_points else -self.operand_min
        return (self.max_k * largest * largest).bit_length() + 1

    @property
    def mem_bytes(self) -> int:
        """Bytes of one external memory word."""
        return self.mem_width // 8

    @property
    def line_bytes(self) -> int:
        """Bytes that one scratchpad access can move, a power of two."""
        elements = max(self.rows, self.cols) << self.wide_operands
        return next_power_of_two(max(elements, 2 * self.beat_lanes, self.mem_bytes))

    @property
    def bank_bytes(self) -> int:
        """Bytes of one scratchpad bank."""
        return self.scratchpad_bytes // self.scratchpad_banks

    @property
    def sram_latency(self) -> int:
        """Cycles from a granted scratchpad read to its data."""
        return 2 + self.registered

    @property
    def weight_latency(self) -> int:
        """Cycles from a line of weights that was asked for to its data."""
        return self.sram_latency + self.registered

    @property
    def acc_latency(self) -> int:
        """Cycles from a taken drain request to its row."""
        return 2 + self.registered

    @property
    def acc_corrected(self) -> bool:
        """Accumulators are corrected from registers, not from what a block RAM brings."""
        return self.registered and self.protected("accumulators") == "correct"

    @property
    def acc_settle(self) -> int:
        """Cycles from a row that is accumulated to the first drain request that sees it."""
        return 3 + self.registered + self.acc_corrected

    @property
    def sp_addr_width(self) -> int:
        """Width of a scratchpad byte address (bits)."""
        return (self.scratchpad_bytes - 1).bit_length()

    @property
    def acc_addr_width(self) -> int:
        """Width of an accumulator row address (bits)."""
        return max(1, (self.acc_depth - 1).bit_length())

    @property
    def beat_lanes(self) -> int:
        """Elements that SOFTMAX takes per cycle: none takes more."""
        return self.softmax_lanes or self.lanes

    @property
    def lane_groups(self) -> int:
        """Vector engine steps for one accumulator row."""
        return -(-self.cols // self.lanes)

    @property
    def param_lines(self) -> int:
        """Scratchpad lines that hold one word of requantization parameters."""
        return -(-9 * self.lanes // self.line_bytes)

    @property
    def elements(self) -> int:
        """Processing elements of the array."""
        return self.rows * self.cols
