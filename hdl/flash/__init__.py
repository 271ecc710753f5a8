"""SPI flash: a reader, and a circuit that sends the power-on image's requests to the host link."""
