"""What goes into the array of multipliers and comes out of it, whichever kind it is."""

from amaranth.hdl import signed
from amaranth.lib import data

from arch.config import Config


def activation_layout(config: Config) -> data.StructLayout:
    """Return a vector of activations, one per row, and the slot of the weights to use."""
    return data.StructLayout(
        {
            "a": data.ArrayLayout(signed(config.element_width), config.rows),
            "slot": range(config.weight_depth),
        }
    )


def weight_layout(config: Config) -> data.StructLayout:
    """Return a line of weights: row ``index`` or, with ``column``, column ``index`` of a tile."""
    lines, elements = config.rows, config.cols
    if config.b_transpose:
        lines = elements = max(config.rows, config.cols)
    return data.StructLayout(
        {
            "data": data.ArrayLayout(signed(config.element_width), elements),
            "slot": range(config.weight_depth),
            "index": range(lines),
        }
        | ({"column": 1} if config.b_transpose else {})
    )


def sum_layout(config: Config) -> data.ArrayLayout:
    """Return a row of sums, one per column."""
    return data.ArrayLayout(signed(config.acc_width), config.cols)


def sum_width(config: Config, products: int) -> int:
    """Return the width that a sum of so many products needs (bits)."""
    largest = (1 << config.operand_width) - 1 if config.zero_points else -config.operand_min
    return min(config.acc_width, (products * largest * largest).bit_length() + 1)


def array_latency(config: Config) -> int:
    """Return the cycles from activations to their sums."""
    if config.array == "tree":
        return 3 + (config.rows - 1).bit_length()
    return config.rows + config.cols + 3
