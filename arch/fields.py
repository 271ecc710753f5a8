"""The records of a configuration, and the sizes that are derived from their fields."""

import dataclasses
from dataclasses import dataclass, field
from typing import TypeVar

from celosia.arch.access import Access, next_power_of_two
from celosia.arch.matrix_config import MatrixConfig, MatrixSizes
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
from celosia.arch.vector_config import PARAM_BYTES, VectorConfig, VectorSizes

Part = TypeVar("Part", MatrixConfig, VectorConfig)


@dataclass(frozen=True, kw_only=True)
class Fields(MatrixSizes, VectorSizes):
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

    def part(self, kind: type[Part]) -> Part:
        """Return the configuration values that one engine uses, as an instance of class ``kind``.

        ``kind`` is a dataclass. Each of its fields gets the value of this object's field or
        property with the same name.
        """
        return kind(**{each.name: getattr(self, each.name) for each in dataclasses.fields(kind)})

    @property
    def sparse_lanes(self) -> int:
        """Products per cycle of the unit that skips zero weights; 0 if the machine lacks it."""
        return self.sparse.lanes if self.sparse else 0

    @property
    def sparse_depth(self) -> int:
        """Length of the longest activation row that the unit for sparse weights accepts (elements).

        If the machine lacks this unit, the length is the default of ``Sparse.longest_row``.
        """
        return self.sparse.longest_row if self.sparse else Sparse.longest_row

    @property
    def requantizer(self) -> bool:
        """True if the machine is a microcoded core that has a requantization unit."""
        return self.micro is not None and self.micro.requantizer

    @property
    def protects(self) -> bool:
        """True if any unit is protected against flipped bits."""
        return any(level != "none" for level in protection(self.control.protect).values())

    @property
    def sum_width(self) -> int:
        """Width that a signed sum of ``accumulators.longest_sum`` products needs (bits).

        The factors of the products are operands minus their zero points.
        """
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
        """Properties of scratchpad accesses, as an :class:`Access`.

        They are the width of an address (bits), the largest size of an access (bytes), and the
        alignment of addresses (bytes).
        """
        return Access(self.sp_addr_width, self.line_bytes, self.scratchpad.align)

    @property
    def bank_bytes(self) -> int:
        """Size of one scratchpad bank (bytes)."""
        return self.scratchpad.bytes // self.scratchpad.banks

    @property
    def sp_addr_width(self) -> int:
        """Width of a scratchpad byte address (bits)."""
        return (self.scratchpad.bytes - 1).bit_length()

    @property
    def param_lines(self) -> int:
        """Number of scratchpad lines that hold the requantization parameters of all lanes."""
        return self.access.lines(PARAM_BYTES * self.vector.lanes)

    @property
    def word_bytes(self) -> int:
        """Size of the requantization parameters of all lanes, rounded up to whole lines (bytes).

        A line has ``line_bytes`` bytes.
        """
        return self.param_lines * self.line_bytes
