"""LiteDRAM's core for DDR3, as its own generator makes it, and its side of a simulation."""
