"""Formats of the normalization that circuit and golden model share, equation (4)."""

VALUE_FRACTION = 16
"""Fraction bits of a normalized value (bits)."""
EPS_WIDTH = 56
"""Width of the added variance (bits)."""
MAX_NORM_ROW = 1 << 12
"""Longest row that can be normalized (elements); values and variances have room for it."""
