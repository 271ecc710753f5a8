"""LiteDRAM's memory controller for DDR3: its generation, and a model of it for simulation."""
