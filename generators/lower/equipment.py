"""Configurations extended by the units that quantization options require."""

from celosia.arch.config import Config
from celosia.arch.formats import NESTED, PLANES
from celosia.arch.isa import RING_SLOTS
from celosia.arch.rules import WIDE_SUMS
from celosia.generators.graph.quantized import Decoder
from celosia.generators.quantize.options import INT8, MIXED, NARROW_BITS, Quantization


def equipped(config: Config, options: Quantization, rows: int = 0) -> Config:
    """Return a copy of ``config`` extended by the units that quantization options require.

    - INT16 activations in attention require the unit for INT16 operands, zero points, and 32-bit
      accumulators.
    - ``wide_functions`` (activation functions of INT16 inputs) requires the unit for piecewise
      polynomials.
    - ``deferred`` means that a norm or softmax only computes a factor for each row, and a later
      requantization multiplies by it. It requires a memory for at least ``rows`` factors, and
      16-bit requantization multipliers.

    If the configuration has no weight formats, it gets the formats in the options.
    """
    if options.deferred:
        rows = max(rows, config.row_factors)
        config = config.replace(multiplier_width=16, row_factors=rows)
    if options.wide_functions:
        config = config.replace(wide_functions=True)
    if options.activations == MIXED:
        config = config.replace(wide_operands=True, zero_points=True, acc_width=WIDE_SUMS)
    if config.formats:
        return config
    asked = dict.fromkeys((options.weights, *options.chosen.values()))
    asked.pop(INT8, None)
    if NESTED in asked:
        asked.pop(NESTED)
        asked |= dict.fromkeys(PLANES.values())
    if not asked:
        return config
    return config.replace(weight_formats=",".join(asked), weight_group=options.group)


def with_packed_cache(config: Config, decoder: Decoder) -> Config:
    """Return ``config``, extended if weight slots must store keys or values of fewer than 8 bits.

    A weight slot is storage in the array for one weight tile. The extended weight slots store two
    elements in a byte. The result is ``config`` without changes in these cases:

    - The decoder's values have 8 bits.
    - The KV cache is not in weight slots.
    - ``config`` already has ``packed_cache`` true.

    In all other cases, the result is a copy of ``config`` with these fields:

    - ``packed_cache`` is true.
    - ``low_rows`` is the number of columns of each key head whose elements have 8 bits. It is 0 if
      all columns of the keys have 8 bits.
    - ``block_exponents`` is true if several columns of the values share an exponent.
    """
    resident = config.array.weight_depth > RING_SLOTS
    if decoder.kv_bits == NARROW_BITS or config.packed_cache or not resident:
        return config
    low_rows = decoder.whole if decoder.key_bits < NARROW_BITS else 0
    return config.replace(packed_cache=True, low_rows=low_rows, block_exponents=decoder.block > 0)
