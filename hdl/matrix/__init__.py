"""The matrix engine: arrays of multipliers, and the units that feed the arrays."""
