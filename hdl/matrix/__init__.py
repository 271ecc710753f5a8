"""The matrix engine: arrays of multipliers, and what feeds and drains them."""
