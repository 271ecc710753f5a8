"""SPI flash: a reader of bytes, and a circuit that runs the stored power-on image."""
