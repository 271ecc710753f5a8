"""Golden model of power-on: runs the image in a flash and returns the text on the serial line."""

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from celosia.arch.link import ANSWER_HEADER, REQUEST_SYNC, Status
from celosia.arch.link import CRC_BYTES as ANSWER_CRC_BYTES
from celosia.arch.power_on import (
    CRC_BYTES,
    ENTRY_BYTES,
    HEADER_BYTES,
    MAGIC,
    RECORD_HEADER,
    REFUSALS,
    Op,
    Refusal,
)

BUSY, ERROR = 1, 2
"""Bits of STATUS."""


@dataclass(frozen=True)
class PoweredOn:
    """Result of a power-on: text on the serial line, and the reason if the image failed."""

    text: bytes
    """Bytes sent on the serial line."""
    refusal: Refusal | None
    """Reason for which the image was rejected; None if it ran to its end."""


def power_on(
    image: bytes,
    size: int,
    configuration: int,
    ask: Callable[[bytes], bytes],
    status: Callable[[], int],
) -> PoweredOn:
    """Run the power-on image in a flash; return the text on the serial line and any refusal.

    The image and its CRC must fit in ``size`` bytes, and the image must name the fingerprint
    ``configuration``. ``ask`` is a function that sends a request to the host link and returns the
    answer. ``status`` returns register STATUS.
    """
    begin = MAGIC + configuration.to_bytes(4, "little")
    if image[: len(MAGIC)] != MAGIC:
        return _refused(b"", Refusal.NONE)
    if image[: len(begin)] != begin:
        return _refused(b"", Refusal.OTHER)
    length = int.from_bytes(image[len(begin) : HEADER_BYTES], "little")
    end = HEADER_BYTES + length
    if not 0 < length <= size - HEADER_BYTES - CRC_BYTES:
        return _refused(b"", Refusal.CORRUPT)
    if zlib.crc32(image[:end]) != int.from_bytes(image[end : end + CRC_BYTES], "little"):
        return _refused(b"", Refusal.CORRUPT)
    return _play(image[HEADER_BYTES:end], ask, status)


def _play(body: bytes, ask: Callable[[bytes], bytes], status: Callable[[], int]) -> PoweredOn:
    text, place, best = b"", 0, 0
    while place + RECORD_HEADER <= len(body):
        op, count = body[place], int.from_bytes(body[place + 1 : place + RECORD_HEADER], "little")
        data = body[place + RECORD_HEADER :][:count]
        place += RECORD_HEADER + count
        if op == Op.END:
            return PoweredOn(text, None)
        if op == Op.TEXT:
            text += data
        elif op == Op.LABEL:
            label = data[ENTRY_BYTES * best :][:ENTRY_BYTES]
            text += label.replace(b"\0", b"")
        elif op in (Op.REQUEST, Op.CHOICE):
            entry = data[ENTRY_BYTES * best :][:ENTRY_BYTES]
            if op == Op.CHOICE and len(entry) < ENTRY_BYTES:
                break
            answer = ask(bytes([REQUEST_SYNC]) + data if op == Op.REQUEST else entry)
            if answer[1] != Status.OK:
                break
            payload = answer[1 + ANSWER_HEADER : -ANSWER_CRC_BYTES]
            scores = struct.unpack(f"<{len(payload) // 2}h", payload[: len(payload) & ~1])
            best = scores.index(max(scores)) if scores else best
        elif op != Op.WAIT or status() & (BUSY | ERROR):
            break
        if len(data) < count:
            break
    return _refused(text, Refusal.STOPPED)


def _refused(text: bytes, reason: Refusal) -> PoweredOn:
    return PoweredOn(text + REFUSALS[reason], reason)
