"""Arithmetic blocks: multipliers, reciprocals, polynomials, requantization."""
