"""The SDR SDRAM controller for the external memory port."""
