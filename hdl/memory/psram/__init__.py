"""The controller of PSRAM behind the external memory port."""
