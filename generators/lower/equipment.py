"""Configurations extended by the units that quantization options require."""

from celosia.arch.config import Config
from celosia.arch.formats import NESTED, PLANES
from celosia.arch.isa import RING_SLOTS
from celosia.arch.rules import WIDE_SUMS
from celosia.generators.graph.quantized import Decoder
from celosia.generators.quantize.options import INT8, MIXED, NARROW_BITS, Quantization


def equipped(config: Config, options: Quantization, rows: int = 0) -> Config:
    """Return ``config`` with additional units that the quantization options require.

    If ``options.deferred`` is true, the machine can store scale factors for at least ``rows`` rows.
    The weight formats of ``options`` are added only if ``config`` has no weight formats.
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
    """Return ``config`` with weight slots that can store the decoder's narrow keys and values.

    If the KV cache is in the array and its values have fewer than 8 bits, ``packed_cache``,
    ``low_rows`` and ``block_exponents`` are set. A configuration with ``packed_cache`` stays as it
    is.
    """
    resident = config.array.weight_depth > RING_SLOTS
    if decoder.kv_bits == NARROW_BITS or config.packed_cache or not resident:
        return config
    low_rows = decoder.full_width_key_columns if decoder.key_bits < NARROW_BITS else 0
    return config.replace(packed_cache=True, low_rows=low_rows, block_exponents=decoder.block > 0)
