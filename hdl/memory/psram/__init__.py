"""The PSRAM controller for the external memory port."""
