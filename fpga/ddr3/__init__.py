"""LiteDRAM's core for DDR3, made by its generator, and its model for simulation."""
