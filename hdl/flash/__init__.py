"""SPI flash: a reader, and the use of its contents at power-on."""
