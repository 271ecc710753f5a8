"""SPI flash: a reader, and what is done with its contents at power-on."""
