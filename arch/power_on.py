"""The image in a board's flash that it begins with at power-on, defined once for all.

A header of ``MAGIC``, the configuration's fingerprint and the body's bytes; then the body, whose
records are an ``Op``, a length of two bytes and so many bytes; then the CRC-32 (ISO-HDLC) of all
before it. Numbers are least significant byte first.
"""

import enum
import zlib

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.link import fingerprint

MAGIC = b"CEL\x01"
"""First bytes of an image; the last of them is the version of its form."""

HEADER_BYTES = len(MAGIC) + 4 + 4
"""Bytes before the body."""

CRC_BYTES = 4
"""Bytes behind the body."""

RECORD_HEADER = 3
"""Bytes of a record before its own."""

ENTRY_BYTES = 16
"""Bytes of a class's name, or of one of several requests, zeros behind it."""

ENTRIES = 4096
"""Most classes."""


class Op(enum.IntEnum):
    """A record of the body; docs/protocol.md tells what each does."""

    END = 0
    REQUEST = 1
    TEXT = 2
    LABEL = 3
    WAIT = 4
    CHOICE = 5


class Refusal(enum.IntEnum):
    """A reason for which an image is not gone on with."""

    NONE = 0
    OTHER = 1
    CORRUPT = 2
    STOPPED = 3


REFUSALS = {
    Refusal.NONE: b"celosia: no image in flash\r\n",
    Refusal.OTHER: b"celosia: other machine's image\r\n",
    Refusal.CORRUPT: b"celosia: image is corrupt\r\n",
    Refusal.STOPPED: b"\r\ncelosia: image stopped\r\n",
}
"""The line that reports each on the serial line, at most 32 bytes."""


def record(op: Op, data: bytes = b"") -> bytes:
    """Return a record.

    Raises :class:`InputError` where it is too long.
    """
    if len(data) >= 1 << 16:
        raise InputError(f"A record of an image must have below 65536 bytes, not {len(data)}")
    return bytes([op]) + len(data).to_bytes(2, "little") + data


def seal(config: Config, body: bytes) -> bytes:
    """Return an image of a body for the machine of a configuration."""
    begin = MAGIC + fingerprint(config).to_bytes(4, "little") + len(body).to_bytes(4, "little")
    return begin + body + zlib.crc32(begin + body).to_bytes(CRC_BYTES, "little")
