"""The format of the image in flash from which a board runs a model at power-on.

An image is ``MAGIC``, the configuration's hash, the length of the records (bytes), the records, and
a CRC-32 (ISO-HDLC) of all before it. A record is an :class:`Op` (1 byte), the data's length (2
bytes) and the data. Numbers are least significant byte first.
"""

import enum
import zlib

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.link import fingerprint

MAGIC = b"CEL\x01"
"""First bytes of an image; the last of them is the version of the format."""

HEADER_BYTES = len(MAGIC) + 4 + 4
"""Bytes of the header."""

CRC_BYTES = 4
"""Bytes of the CRC after the body."""

RECORD_HEADER = 3
"""Bytes of a record's header."""

ENTRY_BYTES = 16
"""Bytes of a class's name, or of one of several requests, padded with zeros."""

ENTRIES = 4096
"""Most classes."""


class Op(enum.IntEnum):
    """Kind of a record in an image that a board runs at power-on; see docs/protocol.md."""

    END = 0
    REQUEST = 1
    TEXT = 2
    LABEL = 3
    WAIT = 4
    CHOICE = 5


class Refusal(enum.IntEnum):
    """Reasons for which a board does not run the power-on image in its flash, or stops the run."""

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
"""Line sent on the serial port for each reason, at most 32 bytes."""


def record(op: Op, data: bytes = b"") -> bytes:
    """Return the bytes of one record of a power-on image, from which a board runs a model.

    The bytes are the record's kind ``op`` in one byte, the length of ``data`` (number of bytes) in
    two bytes, the low byte first, and then ``data``. Raises :class:`InputError` if ``data`` has
    more than 65535 bytes.
    """
    if len(data) >= 1 << 16:
        raise InputError(f"A record of an image must have below 65536 bytes, not {len(data)}")
    return bytes([op]) + len(data).to_bytes(2, "little") + data


def seal(config: Config, body: bytes) -> bytes:
    """Return the bytes of a power-on image: header, ``body`` and CRC.

    The header has the fingerprint (hash) of ``config``; a machine of another configuration refuses
    the image.
    """
    begin = MAGIC + fingerprint(config).to_bytes(4, "little") + len(body).to_bytes(4, "little")
    return begin + body + zlib.crc32(begin + body).to_bytes(CRC_BYTES, "little")
