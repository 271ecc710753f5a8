"""The external memory port on DDR3 SDRAM behind LiteDRAM's core."""
