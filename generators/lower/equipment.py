"""Configurations extended by the units that quantization options require."""

from celosia.arch.config import Config
from celosia.arch.formats import NESTED, PLANES
from celosia.arch.isa import RING_SLOTS
from celosia.arch.rules import WIDE_SUMS
from celosia.generators.graph.quantized import Decoder
from celosia.generators.quantize.options import INT8, MIXED, NARROW_BITS, Quantization


def equipped(config: Config, options: Quantization, rows: int = 0) -> Config:
    """Return ``config`` with the units that quantization options require.

    Mixed activations need INT16 operands, ``wide_functions`` the polynomial unit, ``deferred`` a
    memory of at least ``rows`` factors. Weight formats are added only if there are none.
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
    """Return ``config`` with weight slots in which the decoder's keys and values can be stored.

    A weight slot is storage in the array for one weight tile. Weight slots must be able to store
    two elements in a byte if all these conditions are met:

    - The KV cache is in weight slots.
    - The decoder's values have fewer than 8 bits.
    - ``config.packed_cache`` is false.

    Then the result is a copy of ``config`` with the changes in the next list. Otherwise the result
    is ``config``.

    - ``packed_cache`` is true.
    - ``low_rows`` is the number of 8-bit elements in each key whose other elements have fewer bits.
      A key is a column of a slot. The lower 4 bits of its 8-bit elements are in additional rows of
      the slot, one row for each element. If all elements have 8 bits, no additional rows are
      needed, and ``low_rows`` is 0.
    - ``block_exponents`` is true if several values share an exponent.
    """
    resident = config.array.weight_depth > RING_SLOTS
    if decoder.kv_bits == NARROW_BITS or config.packed_cache or not resident:
        return config
    low_rows = decoder.full_width_key_columns if decoder.key_bits < NARROW_BITS else 0
    return config.replace(packed_cache=True, low_rows=low_rows, block_exponents=decoder.block > 0)
