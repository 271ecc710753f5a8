"""Ports of SPI that cannot be used."""

import pytest

from fpga.spi_port import open_spi


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "/dev/absent",
            "There is no serial port /dev/absent; connect the board, and name its port",
        ),
        ("/dev/null", "/dev/null is no serial port; name the board's with --port"),
        ("ftdi://nonsense", "Cannot use SPI adapter ftdi://nonsense: "),
    ],
)
def test_ports_that_cannot_be_used_are_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        open_spi(name, 1e6)
