"""The one configuration that every circuit, golden model and program is made from."""

import dataclasses
import json
import tomllib
from dataclasses import dataclass, fields
from typing import Any, Self

from arch.errors import InputError, InputTypeError
from arch.formats import FORMATS, MOST_FORMATS, OPERAND_BITS, PAIRED_BITS, SCALE_BITS, WeightFormat
from arch.protection import protection
from arch.sparse import ENTRY_WIDTH, beat_bytes


def next_power_of_two(value: int) -> int:
    """Return the smallest power of two that is not below a positive value."""
    return 1 << (value - 1).bit_length()


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that a generated accelerator depends on.

    Raises :class:`InputTypeError` where a field has the wrong type and :class:`InputError` where
    its value, or its value together with another field's, cannot work.
    """

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
    """Two columns share each multiplier: two products of narrow operands in one."""
    pass_width: int = 8
    """Bits of a weight that elements multiply in a cycle, 8, 4, or 1 by adders alone (bits); wider
    weights take several passes."""
    packed_slots: bool = False
    """Resident weights in formats of at most 4 bits lie in pairs in a slot's bytes."""
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
    scratchpad_bytes: int = 65536
    """Size of the scratchpad over all banks (bytes)."""
    scratchpad_banks: int = 2
    """Banks of the scratchpad, each one read and one write per cycle (banks)."""
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
    table_slots: int = 2
    """Activation tables held in the vector engine (256-entry tables)."""
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
    activation: bool = True
    """The vector engine has activation tables."""
    softmax: bool = True
    """The vector engine has a softmax unit."""
    norm: bool = True
    """The vector engine has an add-normalize unit."""
    rotary: bool = False
    """The vector engine can rotate pairs of columns, or multiply them by a second input."""
    argmax: bool = False
    """The vector engine finds the largest element of a row that it writes."""
    fused: bool = True
    """Softmax and normalization can read accumulators, requantized on the way."""

    weight_formats: str = ""
    """Formats of fewer bits that weights may be stored in, names with commas between
    (``arch.formats``)."""
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
    ``UNIT=LEVEL`` of some, parted by commas; the units are those of ``arch.protection``."""

    trace: bool = False
    """The accelerator has ports that report every write of the vector engine and when
    each engine begins and ends a command."""

    def __post_init__(self) -> None:
        """Check every field alone, then the rules over several."""
        self._check_types()
        self._check_ranges()
        self._check_rules()

    def _check_types(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is int and (isinstance(value, bool) or not isinstance(value, int)):
                raise InputTypeError(f"Field {field.name} must be an integer, not {value!r}")
            if field.type is bool and not isinstance(value, bool):
                raise InputTypeError(f"Field {field.name} must be true or false, not {value!r}")
            if field.type is str and not isinstance(value, str):
                raise InputTypeError(f"Field {field.name} must be a string, not {value!r}")

    def _check_ranges(self) -> None:
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise InputError(f"Field {name} must be from {low} to {high}, not {value}")
        for name in ("scratchpad_bytes", "scratchpad_banks", "mem_width", "sparse_depth"):
            value = getattr(self, name)
            if value & (value - 1):
                raise InputError(f"Field {name} must be a power of two, not {value}")

    def _check_rules(self) -> None:
        if self.array not in ARRAYS:
            raise InputError(
                f"Field array must be {' or '.join(map(repr, ARRAYS))}, not {self.array!r}"
            )
        protection(self.protect)
        if self.throttle == 1:
            raise InputError("Field throttle must be 0 or at least 2, not 1")
        if self.lanes > self.cols:
            raise InputError(
                f"Field lanes must be at most cols, but lanes is {self.lanes} "
                f"and cols is {self.cols}"
            )
        self._check_passes()
        self._check_formats()
        if self.rotary and (self.lanes % 2 or self.cols % 2):
            raise InputError(
                f"Field rotary needs even lanes and cols, but lanes is {self.lanes} "
                f"and cols is {self.cols}"
            )
        if self.fused and not (self.softmax or self.norm):
            raise InputError(
                "Field fused needs softmax or norm, but fused is true and softmax and norm false"
            )
        if self.fused and self.cols % self.lanes:
            raise InputError(
                f"Field fused needs lanes to divide cols, but lanes is {self.lanes} "
                f"and cols is {self.cols}"
            )
        if beat_bytes(self.sparse_lanes) > self.line_bytes:
            raise InputError(
                f"Field sparse_lanes must be at most {8 * self.line_bytes // ENTRY_WIDTH}, whose "
                f"entries of {ENTRY_WIDTH} bits fill a line of {self.line_bytes} bytes, not "
                f"{self.sparse_lanes}"
            )
        if self.bank_bytes < 2 * self.line_bytes:
            raise InputError(
                f"Field scratchpad_bytes must give each bank at least two lines of "
                f"{self.line_bytes} bytes, but scratchpad_bytes is {self.scratchpad_bytes} "
                f"and scratchpad_banks is {self.scratchpad_banks}"
            )
        if self.acc_width < self.sum_width:
            raise InputError(
                f"Field acc_width must be at least {self.sum_width} so that a sum of max_k = "
                f"{self.max_k} products of {self.element_width}-bit operands cannot overflow, "
                f"but acc_width is {self.acc_width}"
            )

    def _check_passes(self) -> None:
        if self.pass_width not in PASS_WIDTHS:
            raise InputError(f"Field pass_width must be 1, 4 or 8, not {self.pass_width}")
        if self.passes > 1 and (
            self.operand_width != OPERAND_BITS or self.zero_points or self.operand_gating
        ):
            raise InputError(
                f"Field pass_width below {OPERAND_BITS} needs operand_width {OPERAND_BITS}, and "
                f"zero_points and operand_gating false, but pass_width is {self.pass_width}, "
                f"operand_width {self.operand_width}, zero_points {str(self.zero_points).lower()} "
                f"and operand_gating {str(self.operand_gating).lower()}"
            )
        if self.packed and self.pass_width == 1:
            raise InputError("Field packed needs multipliers, which pass_width 1 has not")
        if self.packed and self.passes == 1 and self.element_width > PACKED_WIDTH:
            raise InputError(
                f"Field packed needs pass_width 4, or operands of at most {PACKED_WIDTH} bits "
                f"after their zero points, but operand_width is {self.operand_width} and "
                f"zero_points {str(self.zero_points).lower()}"
            )

    def _check_formats(self) -> None:
        names = self.weight_formats.split(",") if self.weight_formats else []
        for name in names:
            if name not in FORMATS:
                raise InputError(
                    f"Field weight_formats must name some of {', '.join(FORMATS)}, not {name!r}"
                )
        if len(names) > MOST_FORMATS or len(set(names)) < len(names):
            raise InputError(
                f"Field weight_formats must name at most {MOST_FORMATS} formats, each once, not "
                f"{self.weight_formats!r}"
            )
        if names and self.operand_width != OPERAND_BITS:
            raise InputError(
                f"Field weight_formats needs operands of {OPERAND_BITS} bits, but weight_formats "
                f"is {self.weight_formats!r} and operand_width is {self.operand_width}"
            )
        if self.packed_slots and (
            self.array != "tree" or self.zero_points or self.operand_gating or self.pass_width == 1
        ):
            raise InputError(
                f"Field packed_slots needs array 'tree', zero_points and operand_gating false and "
                f"pass_width 4 or 8, but array is {self.array!r}, zero_points "
                f"{str(self.zero_points).lower()}, operand_gating "
                f"{str(self.operand_gating).lower()} and pass_width {self.pass_width}"
            )
        if self.packed_slots and not any(form.paired for form in self.formats):
            raise InputError(
                f"Field packed_slots needs integers of at most {PAIRED_BITS} bits or ternary among "
                f"weight_formats, not {self.weight_formats!r}"
            )
        if self.slot_scales and self.weight_group % (2 * self.rows):
            raise InputError(
                f"Field weight_group must be a multiple of twice rows where packed_slots is true, "
                f"but weight_group is {self.weight_group} and rows {self.rows}"
            )
        if self.weight_group % self.rows or (self.weight_group and not names):
            raise InputError(
                f"Field weight_group needs weight_formats and must be a multiple of rows, but "
                f"weight_group is {self.weight_group}, weight_formats {self.weight_formats!r} and "
                f"rows {self.rows}"
            )

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
    def parted(self) -> bool:
        """Vectors may meet parts of what the array holds."""
        return self.passes > 1 or self.packed_slots

    @property
    def slot_scales(self) -> int:
        """Bits of a slot's scale that lie behind each of its bytes; 0 where slots have none."""
        return -(-SCALE_BITS // self.rows) if self.packed_slots and self.weight_group else 0

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
        return next_power_of_two(max(self.rows, self.cols, 2 * self.lanes, self.mem_bytes))

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
    def sp_addr_width(self) -> int:
        """Width of a scratchpad byte address (bits)."""
        return (self.scratchpad_bytes - 1).bit_length()

    @property
    def acc_addr_width(self) -> int:
        """Width of an accumulator row address (bits)."""
        return max(1, (self.acc_depth - 1).bit_length())

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

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed.

        Raises :class:`InputError` where a field is unknown.
        """
        known = {field.name for field in fields(self) if field.init}
        for name in changes:
            if name not in known:
                raise InputError(f"Unknown field {name!r}; known are {', '.join(sorted(known))}")
        return dataclasses.replace(self, **changes)

    def override(self, assignments: list[str]) -> Self:
        """Return a copy changed by texts such as ``rows=12`` or ``norm=false``.

        Raises :class:`InputError` where a text is malformed or its field is unknown.
        """
        changes: dict[str, Any] = {}
        for assignment in assignments:
            name, equals, text = assignment.partition("=")
            if not equals or not assignment.isprintable():
                raise InputError(f"An override must look like FIELD=VALUE, not {assignment!r}")
            try:
                changes[name] = tomllib.loads(f"value = {text}")["value"]
            except (tomllib.TOMLDecodeError, RecursionError):
                changes[name] = text
        return self.replace(**changes)

    def fields(self) -> dict[str, Any]:
        """Return every field's value by name; the constructor takes them again."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.init}

    def to_toml(self) -> str:
        """Return the configuration as TOML text, each field with its meaning's name and value."""
        lines = []
        for name, value in self.fields().items():
            quoted = isinstance(value, str)
            text = json.dumps(value, ensure_ascii=False) if quoted else str(value).lower()
            lines.append(f"{name} = {text}\n")
        return "".join(lines)


ARRAYS = ("systolic", "tree")
"""Values of the field ``array``."""

PASS_WIDTHS = (1, 4, OPERAND_BITS)
"""Values of the field ``pass_width`` (bits)."""

PACKED_WIDTH = 5
"""Widest operands of which a multiplier of 18 bits makes two products (bits)."""

RANGES = {
    "clock_mhz": (1, 5000),
    "rows": (1, 64),
    "cols": (1, 64),
    "pass_width": (1, OPERAND_BITS),
    "weight_depth": (2, 16384),
    "operand_width": (2, 8),
    "acc_width": (4, 32),
    "max_k": (1, 1 << 24),
    "lanes": (1, 64),
    "scratchpad_bytes": (16, 1 << 24),
    "scratchpad_banks": (1, 16),
    "acc_depth": (2, 1 << 16),
    "mem_width": (8, 512),
    "mem_addr_width": (8, 28),
    "program_depth": (16, 1 << 16),
    "param_depth": (1, 1 << 14),
    "table_slots": (1, 64),
    "sparse_lanes": (0, 64),
    "sparse_depth": (16, 1 << 12),
    "max_row": (1, 1 << 12),
    "queue_depth": (1, 16),
    "watchdog": (0, 1 << 28),
    "throttle": (0, 256),
    "weight_group": (0, 1 << 10),
}
"""Smallest and largest value of each integer field."""
