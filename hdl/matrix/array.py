"""Ports and data layouts of both kinds of multiplier array: systolic array and adder trees."""

from typing import Any

from amaranth.hdl import Module, Mux, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.arch.formats import EXPONENT_BITS
from celosia.arch.latency import REGISTER_DEPTH
from celosia.arch.matrix_config import MatrixConfig
from celosia.hdl.matrix.parts import part_layout
from celosia.hdl.matrix.wide import shift_members
from celosia.hdl.ports import scale_members
from celosia.hdl.stream.fields import outputs, present
from celosia.hdl.stream.flow import Flow
from celosia.hdl.stream.pipeline import delay, domain_of


def array_members(config: MatrixConfig) -> dict[str, Any]:
    """Return the ports of an array as a dictionary from name to port.

    ``i`` receives vectors of activations, ``i_weights`` lines of weights, and ``o`` outputs rows of
    sums. If the configuration has the option ``operand_gating``, output ``zeros`` is the number of
    zeros among the activations that entered two cycles before. If weight slots (storage for one
    tile each) store scales, output ``scales`` has the scale of each column for the sums on ``o`` in
    the same cycle. If output ``scaled`` is 1, the receiver must multiply the sums by these scales.
    """
    members = {
        "i": In(Flow(activation_layout(config))),
        "i_weights": In(Flow(weight_layout(config))),
        "o": Out(Flow(sum_layout(config))),
    }
    return (
        members
        | outputs(zeros=gated_width(config))
        | scale_members(config.array.cols, scaled=config.slot_scales > 0)
    )


def gated_width(config: MatrixConfig) -> int:
    """Return the width (bits) of the number of zero activations in a vector.

    It is the width of the array's output ``zeros``, 0 if ``operand_gating`` is false.
    """
    return config.array.operand_gating * config.array.rows.bit_length()


def activation_layout(config: MatrixConfig) -> data.StructLayout:
    """Return the layout of a vector of activations with the fields that select its weights.

    ``a`` has one activation for each row of the array. ``slot`` is the number of a weight slot,
    which stores one tile of weights. ``part`` selects a group of bits of each weight; the
    activations are multiplied by these bits only. If the configuration has the option ``sleep``,
    ``n`` is the number of columns that compute a sum; the other columns are disabled.
    """
    return data.StructLayout(
        {
            "a": data.ArrayLayout(signed(config.element_width), config.array.rows),
            "slot": slot_layout(config),
            **present(n=config.array.sleep * config.array.cols.bit_length()),
            **multiply_fields(config),
            **shift_members(config),
        }
    )


def slot_layout(config: MatrixConfig) -> Any:
    """Return the shape of the field ``slot`` of an activation vector or a line of weights.

    The field (of :func:`activation_layout` and :func:`weight_layout`) has the number of a weight
    slot, which is storage in the array for one tile of weights. If :func:`has_column_copies` is
    true, the field has a copy of the number for each column of the array.
    """
    slot = range(config.array.weight_depth)
    return data.ArrayLayout(slot, config.array.cols) if has_column_copies(config) else slot


NEAR_COLUMNS = 2
"""Number of columns that share the registers of a line of weights, if columns are far apart."""


def has_column_copies(config: MatrixConfig) -> bool:
    """Return whether values that all columns of the array use are copied to several registers.

    An example of such a value is the number of a weight slot (storage for one tile of weights).
    Each copy is placed near its columns on the device. The result is true if all of these
    conditions are met:

    - The array is an adder tree.
    - The configuration has the option ``registered`` (more pipeline registers).
    - The columns store weights in block RAMs, not in registers. Block RAMs have fixed places, so
      the columns are far apart on the device.
    """
    return (
        config.array.kind == "tree"
        and config.control.registered
        and config.array.weight_depth > REGISTER_DEPTH
    )


def strobes(config: MatrixConfig, valid: Value, line: Any) -> list[Value]:
    """Return the write masks of a line of weights: for each column, a mask with a bit per row.

    Bit r of the mask of column c is 1 if ``line`` (:func:`weight_layout`) has a weight for row r of
    column c. All masks are 0 unless ``valid`` is 1.
    """
    here = Mux(valid, 1 << line.index, 0)
    if not config.array.b_transpose:
        return [here[: config.array.rows]] * config.array.cols
    return [
        Mux(line.column, here[col].replicate(config.array.rows), here[: config.array.rows])
        for col in range(config.array.cols)
    ]


def slots_of(payload: Any) -> list[Value]:
    """Return a list with the weight slot number of an activation vector or a line of weights.

    ``payload`` is the vector or the line. A weight slot is storage in the array for one tile of
    weights. The list has one element. If :func:`has_column_copies` is true, the list has one copy
    of the number for each column instead.
    """
    slot = payload.slot
    return [*slot] if isinstance(slot, data.View) else [slot]


def multiply_fields(config: MatrixConfig) -> dict[str, Any]:
    """Return the optional fields of an activation vector that control how it is multiplied.

    The result is a dictionary from name to shape. It has only the fields that the configuration
    needs. The vector is multiplied by the bytes in a weight slot. The slot stores one tile, with a
    byte for each row and column.

    - ``part`` selects a group of bits of each byte (:func:`part_layout`). The array multiplies the
      activations by these bits only.
    - ``scaled`` is 1 if each column's sum must be multiplied by the column's scale, which the slot
      stores. The receiver of the sums multiplies, not the array.
    - ``lower`` is 1 if the slot has attention keys. The first ``low_rows`` elements of each key
      then have eight bits, the others four. Row r has the upper four bits of element r. The last
      ``low_rows`` rows have the lower four bits of the first ``low_rows`` elements. The array
      multiplies the sum of the products with upper bits by 16, and adds the products with lower
      bits.
    - ``block`` is 1 if each byte of the slot has two 4-bit mantissas, and each row of the slot has
      an exponent. The array multiplies an activation by ``2 * mantissa + 1``, and shifts it left by
      the exponent of its row.
    """
    return present(
        part=part_layout(config.array.pass_width, paired=config.paired),
        scaled=config.slot_scales > 0,
        lower=config.low_rows > 0,
        block=config.block_exponents,
    )


def weight_layout(config: MatrixConfig) -> data.StructLayout:
    """Return the layout of a line of weights, which is written to one weight slot of the array.

    A weight slot stores one tile of weights. A line is a row or a column of the tile. Some fields
    exist only in some configurations:

    - ``data``: the weights of the line.
    - ``column``: 1 if the line is a column of the tile, 0 if it is a row.
    - ``slot``: the number of the slot (:func:`slot_layout`).
    - ``index``: the number of the line in the tile, from 0.
    - ``scale``: ``slot_scales`` bits of each column's scale. A slot stores a scale in pieces, one
      for each row.
    - ``exponent``: the exponent of the row.
    - ``strobe``: a mask for each column of the array, with one bit per row. A bit is 1 if the line
      has a weight for this row and column. In a cycle without a line, all bits are 0.
    - ``far``: copies of ``data`` and ``column``, in registers near distant columns. The first
      ``NEAR_COLUMNS`` columns use ``data`` and ``column`` themselves. Each further group of
      ``NEAR_COLUMNS`` columns has one copy.

    ``strobe`` and ``far`` exist only if :func:`has_column_copies` is true.
    """
    rows, cols, far = config.array.rows, config.array.cols, has_column_copies(config)
    line = {"data": data.ArrayLayout(signed(config.element_width), config.line_elements)}
    line |= present(column=config.array.b_transpose)
    return data.StructLayout(
        line
        | {"slot": slot_layout(config), "index": range(config.lines)}
        | present(
            far=data.ArrayLayout(data.StructLayout(line), far * ((cols - 1) // NEAR_COLUMNS)),
            scale=data.ArrayLayout(config.slot_scales, cols),
            exponent=EXPONENT_BITS * config.block_exponents,
            strobe=data.ArrayLayout(rows, far * cols),
        )
    )


def sum_layout(config: MatrixConfig) -> data.ArrayLayout:
    """Return the layout of a row of sums, one per column."""
    return data.ArrayLayout(signed(config.accumulators.width), config.array.cols)


def sum_width(config: MatrixConfig, products: int) -> int:
    """Return the width (bits) of the sum of ``products`` products of an activation and a weight."""
    largest = weight = (
        (1 << config.array.operand_width) - 1 if config.array.zero_points else -config.operand_min
    )
    if config.passes > 1:
        weight = (1 << config.array.pass_width) - 1
    return min(config.accumulators.width, (products * largest * weight).bit_length() + 1)


def enter(
    m: Module, config: MatrixConfig, operands: Any, elements: Any, count: Any, zero: Any
) -> None:
    """Drive ``operands`` of the array with ``elements`` minus the zero point, one cycle later.

    ``zero`` is the zero point. Only the first ``count`` operands have elements; the other operands
    are 0. An element has ``operand_width`` bits, or one bit more in machines for INT16
    (:mod:`celosia.hdl.matrix.wide`). The delay is a register after the subtraction. In a systolic
    array with the option ``registered`` (more pipeline registers), the register is before the
    subtraction.
    """
    before = config.edge_stages
    behind = domain_of(m, 1 - before)
    zero = delay(m, zero, before) if config.array.zero_points else 0
    for index, operand in enumerate(operands):
        width = config.array.operand_width + config.array.wide
        element = delay(m, elements[index][:width], before).as_signed()
        counts = delay(m, count > index, before)
        behind += operand.eq(Mux(counts, element - zero, 0))


def side(config: MatrixConfig, col: int) -> str:
    """Return ``left`` or ``right``: the position of a column in a pair that shares multipliers.

    The result is "" for a column that shares no multipliers.
    """
    if not config.array.packed or (col == config.array.cols - 1 and not col % 2):
        return ""
    return ("left", "right")[col % 2]
