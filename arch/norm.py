"""Fixed-point formats of layer norm and RMS norm: equation (4) of ``docs/numerics.md``."""

VALUE_FRACTION = 16
"""Fraction bits of a normalized value (bits)."""
EPS_WIDTH = 56
"""Width of the constant added to the variance (bits)."""
MAX_NORM_ROW = 1 << 13
"""Longest row that can be normalized (elements); sums and variances have room for it."""
