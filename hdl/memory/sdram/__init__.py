"""The controller of SDR SDRAM behind the external memory port."""
