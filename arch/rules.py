"""The valid values of a configuration's fields, alone and in combination."""

from collections.abc import Mapping
from typing import Any

from celosia.arch.choices import CHOICES, RECORDS
from celosia.arch.errors import InputError, InputTypeError, check_known
from celosia.arch.fields import Fields
from celosia.arch.formats import FORMATS, MOST_FORMATS, OPERAND_BITS, PAIRED_BITS
from celosia.arch.names import check_name
from celosia.arch.protection import protection
from celosia.arch.short_names import TYPES, shown
from celosia.arch.sparse import ENTRY_WIDTH, MOST_LOADED, beat_bytes
from celosia.arch.tables import own_table

ARRAYS = ("systolic", "tree")
"""Values of the field ``array``."""

MULTIPLIER_WIDTHS = (16, 32)
"""Values of the field ``multiplier_width`` (bits)."""

PACKED_WIDTH = 5
"""Widest operands for which an 18-bit multiplier makes two products without adders (bits)."""

SIGNED = f"int{OPERAND_BITS}"
"""Operands of arrays that multiply parts of stored weight bytes."""

WIDE_SUMS = 32
"""Accumulator width required by products with INT16 (bits)."""

RANGES: dict[str, tuple[int, int]] = {
    name: (low, high) for name, (low, high) in own_table("ranges")["ranges"].items()
}
"""Smallest and largest value of each integer field."""


def check_types(values: Mapping[str, Any]) -> None:
    """Raise :class:`InputTypeError` if a configuration field has a value of the wrong type.

    ``values`` maps short names of fields to values.
    """
    for name, kind in TYPES.items():
        value = values[name]
        if kind is int and (isinstance(value, bool) or not isinstance(value, int)):
            raise InputTypeError(f"Field {name} must be an integer, not {value!r}")
        if kind is bool and not isinstance(value, bool):
            raise InputTypeError(f"Field {name} must be true or false, not {value!r}")
        if kind is str and not isinstance(value, str):
            raise InputTypeError(f"Field {name} must be a string, not {value!r}")
    check_name("Field name", values["name"])


def check_ranges(values: Mapping[str, Any]) -> None:
    """Raise :class:`InputError` if the value of a configuration field is out of range.

    ``values`` maps short names of fields to values. The error is also raised if a field must be a
    power of two, such as ``mem_width``, and its value is not a power of two.
    """
    for name, (low, high) in RANGES.items():
        if not low <= values[name] <= high:
            raise InputError(f"Field {name} must be from {low} to {high}, not {values[name]}")
    powers = ("scratchpad_bytes", "scratchpad_banks", "scratchpad_align", "mem_width")
    for name in (*powers, "sparse_depth"):
        value = values[name]
        if value & (value - 1):
            raise InputError(f"Field {name} must be a power of two, not {value}")


def check_rules(config: Fields) -> None:
    """Check the rules for combinations of a configuration's field values.

    Raises :class:`InputError` if the values of several fields contradict each other.
    """
    if config.array.kind not in ARRAYS:
        raise InputError(
            f"Field array must be {' or '.join(map(repr, ARRAYS))}, not {config.array.kind!r}"
        )
    for choice, options in CHOICES.items():
        check_known(choice, getattr(getattr(config, RECORDS[choice]), choice), options)
    protection(config.control.protect)
    if config.array.sleep and (
        config.array.kind != "systolic" or config.array.pass_width != OPERAND_BITS
    ):
        raise InputError(
            f"Field gating {config.array.gating!r} needs array 'systolic' and pass_width "
            f"{OPERAND_BITS}, but array is {config.array.kind!r} and pass_width "
            f"{config.array.pass_width}"
        )
    if config.throttle is not None and config.throttle.cycles < 2:
        raise InputError("Field throttle must be 0 or at least 2, not 1")
    if config.vector.lanes > config.array.cols:
        raise InputError(
            f"Field lanes must be at most cols, but lanes is {config.vector.lanes} "
            f"and cols is {config.array.cols}"
        )
    _check_parameters(config)
    _check_passes(config)
    _check_formats(config)
    _check_wide_operands(config)
    if config.vector.rotary and (config.vector.lanes % 2 or config.array.cols % 2):
        raise InputError(
            f"Field rotary needs even lanes and cols, but lanes is {config.vector.lanes} "
            f"and cols is {config.array.cols}"
        )
    if config.fused and not (config.softmax or config.vector.norm):
        raise InputError(
            "Field fused needs softmax or norm, but fused is true and softmax and norm false"
        )
    if config.fused and config.array.cols % config.vector.lanes:
        raise InputError(
            f"Field fused needs lanes to divide cols, but lanes is {config.vector.lanes} "
            f"and cols is {config.array.cols}"
        )
    _check_softmax(config)
    _check_factors(config)
    if beat_bytes(config.sparse_lanes) > config.line_bytes:
        raise InputError(
            f"Field sparse_lanes must be at most {8 * config.line_bytes // ENTRY_WIDTH}, whose "
            f"entries of {ENTRY_WIDTH} bits fill a line of {config.line_bytes} bytes, not "
            f"{config.sparse_lanes}"
        )
    if config.bank_bytes < 2 * config.line_bytes:
        raise InputError(
            f"Field scratchpad_bytes must give each bank at least two lines of "
            f"{config.line_bytes} bytes, but scratchpad_bytes is {config.scratchpad.bytes} "
            f"and scratchpad_banks is {config.scratchpad.banks}"
        )
    _check_align(config)
    if config.accumulators.width < config.sum_width:
        raise InputError(
            f"Field acc_width must be at least {config.sum_width} so that a sum of max_k = "
            f"{config.accumulators.longest_sum} products of {config.element_width}-bit operands "
            f"cannot overflow, but acc_width is {config.accumulators.width}"
        )


def _check_softmax(config: Fields) -> None:
    beat, lanes, cols = config.beat_lanes, config.vector.lanes, config.array.cols
    if beat != lanes and (beat % lanes or cols % beat):
        raise InputError(
            f"Field softmax_lanes must be a multiple of lanes that divides cols, but softmax_lanes "
            f"is {beat}, lanes {lanes} and cols {cols}"
        )


def _check_factors(config: Fields) -> None:
    factors, width = config.row_factors, config.vector.multiplier_width
    protect, norm, softmax = config.control.protect, config.vector.norm, config.softmax is not None
    units = norm or softmax
    if factors and (not units or width != MULTIPLIER_WIDTHS[0] or protect != "none"):
        raise InputError(
            f"Field row_factors needs norm or softmax, multiplier_width {MULTIPLIER_WIDTHS[0]} and "
            f"protect 'none', but row_factors is {factors}, norm {shown(norm)}, softmax "
            f"{shown(softmax)}, multiplier_width {width} and protect {protect!r}"
        )


def _check_align(config: Fields) -> None:
    """Refuse an alignment that a unit's access size in the scratchpad does not keep."""
    steps = [("rows", config.array.rows), ("cols", config.array.cols)]
    steps += [("lanes", config.vector.lanes)]
    steps += [("the bytes of mem_width", config.mem_bytes)]
    if config.sparse_lanes:
        reads = (MOST_LOADED, beat_bytes(config.sparse_lanes))
        steps += [("the bytes that sparse_lanes read at once", size) for size in reads]
    for name, value in steps:
        if value % config.scratchpad.align:
            raise InputError(
                f"Field scratchpad_align must divide {name}, but scratchpad_align is "
                f"{config.scratchpad.align} and {name} {value}"
            )


def _check_parameters(config: Fields) -> None:
    if config.vector.multiplier_width not in MULTIPLIER_WIDTHS:
        raise InputError(
            f"Field multiplier_width must be 16 or 32, not {config.vector.multiplier_width}"
        )
    if config.pre_depth > config.vector.words:
        raise InputError(
            f"Field pre_depth must be at most param_depth, but pre_depth is {config.pre_depth} "
            f"and param_depth {config.vector.words}"
        )


def _check_passes(config: Fields) -> None:
    array = config.array
    if config.passes > 1 and (array.operands != SIGNED or array.operand_gating):
        raise InputError(
            f"Field pass_width below {OPERAND_BITS} needs operands {SIGNED!r} and gating 'none', "
            f"but pass_width is {array.pass_width}, operands {array.operands!r} and gating "
            f"{array.gating!r}"
        )


def _check_wide_operands(config: Fields) -> None:
    """Refuse accumulators that are too narrow for INT16 rows."""
    if config.array.wide and config.accumulators.width != WIDE_SUMS:
        raise InputError(
            f"Field operands {config.array.operands!r} needs acc_width {WIDE_SUMS}, but acc_width "
            f"is {config.accumulators.width}"
        )


_PAIRED_SLOTS = f"array 'tree', operands {SIGNED!r}, gating 'none', pass_width 4 or 8"


def _has_paired_slots(config: Fields) -> bool:
    """Return whether a byte of a weight slot could hold two values of 4 bits."""
    array = config.array
    plain = array.operands == SIGNED and not array.operand_gating
    return array.kind == "tree" and plain and array.pass_width > 1


def _slot_fields(config: Fields) -> str:
    array = config.array
    return (
        f"array is {array.kind!r}, operands {array.operands!r}, gating {array.gating!r}, "
        f"pass_width {array.pass_width}"
    )


def _check_cache(config: Fields) -> None:
    array = config.array
    if config.packed_cache and not (_has_paired_slots(config) and array.b_transpose):
        raise InputError(
            f"Field packed_cache needs {_PAIRED_SLOTS} and b_transpose true, but "
            f"{_slot_fields(config)} and b_transpose {shown(array.b_transpose)}"
        )
    most = config.array.rows - config.high_rows
    if config.low_rows and config.passes > 1:
        raise InputError(
            f"Field low_rows needs pass_width {OPERAND_BITS}, but low_rows is {config.low_rows} "
            f"and pass_width {config.array.pass_width}"
        )
    if not 0 <= config.low_rows <= most:
        raise InputError(
            f"Field low_rows must be at most {most}, the rows of {config.array.rows} behind the "
            f"first {config.high_rows}, not {config.low_rows}"
        )


def _check_blocks(config: Fields) -> None:
    if config.block_exponents and config.passes > 1:
        raise InputError(
            f"Field block_exponents needs pass_width {OPERAND_BITS}, but block_exponents is true "
            f"and pass_width {config.array.pass_width}"
        )


def _check_formats(config: Fields) -> None:
    names = config.weight_formats.split(",") if config.weight_formats else []
    for name in names:
        if name not in FORMATS:
            raise InputError(
                f"Field weight_formats must name some of {', '.join(FORMATS)}, not {name!r}"
            )
    if len(names) > MOST_FORMATS or len(set(names)) < len(names):
        raise InputError(
            f"Field weight_formats must name at most {MOST_FORMATS} formats, each once, not "
            f"{config.weight_formats!r}"
        )
    if names and config.array.operand_width != OPERAND_BITS:
        raise InputError(
            f"Field weight_formats needs operands of {OPERAND_BITS} bits, but weight_formats "
            f"is {config.weight_formats!r} and operand_width is {config.array.operand_width}"
        )
    _check_cache(config)
    _check_blocks(config)
    if config.packed_slots and not _has_paired_slots(config):
        raise InputError(f"Field packed_slots needs {_PAIRED_SLOTS}, but {_slot_fields(config)}")
    if config.packed_slots and not any(form.paired for form in config.formats):
        raise InputError(
            f"Field packed_slots needs integers of at most {PAIRED_BITS} bits or ternary among "
            f"weight_formats, not {config.weight_formats!r}"
        )
    if config.slot_scales and config.weight_group % (2 * config.array.rows):
        raise InputError(
            f"Field weight_group must be a multiple of twice rows where packed_slots is true, "
            f"but weight_group is {config.weight_group} and rows {config.array.rows}"
        )
    if config.weight_group % config.array.rows:
        raise InputError(
            f"Field weight_group must be a multiple of rows, but weight_group is "
            f"{config.weight_group} and rows {config.array.rows}"
        )
