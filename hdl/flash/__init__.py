"""SPI flash: a reader, and the execution of the flash's power-on image."""
