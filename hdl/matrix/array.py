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
    """Return the ports of a multiplier array, as a dictionary from name to port.

    - ``i``: vectors of activations.
    - ``i_weights``: lines (rows or columns) of weights.
    - ``o``: rows of sums.
    - ``zeros``: number of zeros in a vector, two cycles later.
    - ``scales``, ``scaled``: scales of columns (:func:`scale_members`).
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
    """Return the layout of a vector of activations at the array's input.

    - ``a``: one activation for each array row.
    - ``slot``: number of the stored weight tile to multiply by.
    - ``n``: number of enabled columns (option ``sleep``).

    :func:`multiply_fields` and ``shift_members`` describe other fields.
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

    The field has the number of a weight slot (storage in the array for one tile). If
    :func:`has_column_copies` is true, the field is an array with a copy of the number for each
    column.
    """
    slot = range(config.array.weight_depth)
    return data.ArrayLayout(slot, config.array.cols) if has_column_copies(config) else slot


NEAR_COLUMNS = 2
"""Number of columns that share the registers of a line of weights, if columns are far apart."""


def has_column_copies(config: MatrixConfig) -> bool:
    """Return whether values for all array columns are copied to registers near the columns.

    It is true for an adder tree with the option ``registered`` (more pipeline registers) whose
    columns store weights in block RAM.
    """
    # Block RAMs have fixed places, so the columns are far apart on the device.
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
    """Return the weight slot numbers of ``payload``, an activation vector or a line of weights.

    A weight slot is storage in the array for one tile. The list has one number, or one copy for
    each column if :func:`has_column_copies` is true.
    """
    slot = payload.slot
    return [*slot] if isinstance(slot, data.View) else [slot]


def multiply_fields(config: MatrixConfig) -> dict[str, Any]:
    """Return the optional fields of an activation vector that control its multiplication.

    The result is a dictionary from name to shape:

    - ``part``: the bits of each weight to multiply by (:func:`part_layout`).
    - ``scaled``: 1 if the receiver must multiply each sum by its column's scale.
    - ``lower``: 1 if the first rows' products count 16-fold (docs/formats.md, equation (21)).
    - ``block``: 1 if weights are 4-bit mantissas with an exponent per row.
    """
    return present(
        part=part_layout(config.array.pass_width, paired=config.paired),
        scaled=config.slot_scales > 0,
        lower=config.low_rows > 0,
        block=config.block_exponents,
    )


def weight_layout(config: MatrixConfig) -> data.StructLayout:
    """Return the layout of a line of weights: a row of a tile, or a column if ``column`` is 1.

    ``data`` has the weights, ``index`` the number of the line, and ``slot`` the number of the
    storage for the tile. All other fields exist only in some configurations.
    """
    rows, cols, far = config.array.rows, config.array.cols, has_column_copies(config)
    line = {"data": data.ArrayLayout(signed(config.element_width), config.line_elements)}
    line |= present(column=config.array.b_transpose)
    return data.StructLayout(
        line
        | {"slot": slot_layout(config), "index": range(config.lines)}
        | present(
            # Copies of data and column, one for each group of distant columns.
            far=data.ArrayLayout(data.StructLayout(line), far * ((cols - 1) // NEAR_COLUMNS)),
            scale=data.ArrayLayout(config.slot_scales, cols),  # bits of each column's scale
            exponent=EXPONENT_BITS * config.block_exponents,  # of the row
            strobe=data.ArrayLayout(rows, far * cols),  # of each column, with a bit per row
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


def subtract_zero_point(
    m: Module, config: MatrixConfig, operands: Any, elements: Any, count: Any, zero: Any
) -> None:
    """Drive ``operands`` with the first ``count`` elements minus the zero point, one cycle later.

    ``zero`` is the zero point, ignored if the configuration has none. The operands from index
    ``count`` on become 0.
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
