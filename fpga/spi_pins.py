"""SPI pins of each board: four pins of a connector that its maker names."""

from collections.abc import Mapping
from typing import Any

from arch.errors import InputError

SPI = ("cs_n", "copi", "cipo", "sck")
"""The lines of SPI, in the order of a Pmod of type 2 (Digilent's Pmod Interface Specification)."""

_PMOD = ("pmod", ("1", "2", "3", "4"))

_CONNECTORS = {
    "ulx3s_85f": ("gpio", ("0+", "0-", "1+", "1-")),
    "ulx3s_45f": ("gpio", ("0+", "0-", "1+", "1-")),
    "ulx3s_25f": ("gpio", ("0+", "0-", "1+", "1-")),
    "icebreaker": _PMOD,
    "tang_primer_20k": _PMOD,
    # The Feather's own places, and beside them the one that it calls 5.
    "orangecrab_25f": ("io", ("5", "copi", "cipo", "sck")),
    "ecpix5_85f": _PMOD,
    # The places of SPI0 on a header like the Raspberry Pi's.
    "icepi_zero": ("gpio", ("8", "10", "9", "11")),
    "icesugar_pro": ("sodimm", ("44", "46", "48", "50")),
}
"""The first connector of a name, and what it calls the lines' places.

The Tang Nano 9K has no connector in amaranth-boards, and those of the Colorlight 5A-75B lead
through buffers that only send.
"""


def spi_sites(name: str, connectors: Mapping[tuple[str, int], Any]) -> dict[str, str]:
    """Return the pins of SPI's lines on a board, whose connectors are those of its platform.

    Raises :class:`InputError` where the board has no place for SPI.
    """
    if name not in _CONNECTORS:
        raise InputError(
            f"Board {name} has no connector that can take SPI; leave out --link spi, or take one "
            f"of {', '.join(_CONNECTORS)}"
        )
    kind, places = _CONNECTORS[name]
    mapping = connectors[kind, 0].mapping
    return {line: mapping[place] for line, place in zip(SPI, places, strict=True)}
