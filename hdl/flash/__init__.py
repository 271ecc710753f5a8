"""SPI flash: a reader, and a circuit that executes the power-on image (host link requests)."""
