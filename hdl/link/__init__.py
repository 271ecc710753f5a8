"""The host link: frames over a serial line or SPI."""
