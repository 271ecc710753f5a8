"""The external memory port on DDR3 SDRAM, through LiteDRAM's core."""
