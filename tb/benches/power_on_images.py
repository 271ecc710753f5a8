"""Flash images for the bench of power-on: good images, and an image for each possible error."""

import zlib
from collections.abc import Callable, Iterator

import numpy as np

from celosia.arch.link import ANSWER_HEADER, Command, request
from celosia.arch.power_on import CRC_BYTES, HEADER_BYTES, Op, record, seal
from celosia.tb.devices.linked_host import ADDR, CONFIG

SIZE = 0x4000
"""Bytes of the flash with an image."""

Answers = Callable[[int, bytes], bytes]
Image = tuple[bytes, int, Answers | None]
"""An image, the STATUS of its runs, and a function that changes the answer to a request by
number."""

_CLASSES = 280
_MOST = SIZE - ADDR - HEADER_BYTES - CRC_BYTES  # bytes of a body
_GOOD_CRC = 0x2144DF1C  # of everything with a CRC-32 behind it
_ONES = (1 << 32) - 1
_END = record(Op.END)


def images(random: np.random.Generator) -> Iterator[Image]:
    """Yield flash images for the test of power-on, as triples (image, status, answers).

    ``status`` is the value of STATUS after each run that the image starts. ``answers`` is None, or
    a function (number, answer) that returns a changed answer to the request with this number, from
    0 on.
    """
    good = _good(random)
    image = seal(CONFIG, good + _END)
    yield image, 0, None
    yield from _wrong_headers(image)
    yield from _wrong_sums()
    yield from _wrong_records(random)
    yield from _wrong_answers(random)
    yield _close_scores(), 0, _instead(_pairs(random))
    yield _late_classes(), 0, _instead(_late(random))
    yield image, 0, _odd
    yield image, 2, None
    yield image, 0b1100, None
    flipped = bytearray(image)
    flipped[int(random.integers(12, len(image)))] ^= 1 << int(random.integers(8))
    yield bytes(flipped), 0, None
    yield seal(CONFIG, good), 0, None
    yield seal(CONFIG, good[:-3]), 0, None
    # The longest that the flash holds.
    many = _good(random, _CLASSES)
    rest = random.integers(32, 127, _MOST - len(many + _END) - 3).astype(np.uint8)
    scores = random.integers(-(1 << 15), 1 << 14, _CLASSES)
    scores[int(random.integers(_CLASSES - 20, _CLASSES))] = 1 << 14
    yield seal(CONFIG, many + record(Op.TEXT, bytes(rest)) + _END), 0, _instead({2: scores})


def _asked(command: Command, tag: int, length: int, addr: int, data: bytes = b"") -> bytes:
    return record(Op.REQUEST, request(command, tag, length, addr, data)[1:])


def _names(count: int) -> bytes:
    return b"".join(f"name {each}".encode().ljust(16, b"\0") for each in range(count))


def _good(random: np.random.Generator, classes: int = 21) -> bytes:
    """Return the records of an image whose scores are random."""
    scores = random.integers(-(1 << 15), 1 << 15, 21).astype("<i2")
    scores[random.integers(21, size=2)] = random.integers(1 << 15)
    data = scores.tobytes()
    choices = b"".join(
        request(Command.WRITE_MEMORY, 9, 3, 40 + each % 8, bytes([each % 255 + 1] * 3)).ljust(
            16, b"\0"
        )
        for each in range(classes)
    )
    return (
        _asked(Command.WRITE_MEMORY, 1, len(data), 7, data)
        + record(Op.TEXT, b"ok ")
        + _asked(Command.START, 2, 0, 0)
        + record(Op.WAIT)
        + _asked(Command.READ_MEMORY, 3, len(data), 7)
        + record(Op.LABEL, _names(classes))
        + record(Op.CHOICE, choices)
        + record(Op.TEXT, bytes(random.integers(32, 127, 300).astype(np.uint8)))
    )


def _wrong_headers(image: bytes) -> Iterator[Image]:
    """Yield images with headers of another machine, and with lengths beyond the flash."""
    for at in range(8):
        yield image[:at] + bytes([image[at] ^ 1 << (at + 3) % 8]) + image[at + 1 :], 0, None
    yield b"CEL\x02" + image[4:], 0, None
    yield b"\xff" * 16, 0, None
    yield seal(CONFIG, b""), 0, None
    yield image[:8] + (_MOST + 1).to_bytes(4, "little") + image[12:], 0, None
    for bit in range(14, 32):
        length = len(_END) | 1 << bit
        yield _ended(image[:8] + length.to_bytes(4, "little") + _END, _GOOD_CRC), 0, None


def _wrong_sums() -> Iterator[Image]:
    """Yield images whose CRC-32 differs from a good one in one bit."""
    for bit in range(32):
        yield _ended(seal(CONFIG, _END)[:-CRC_BYTES], _GOOD_CRC ^ 1 << bit), 0, None


def _ended(data: bytes, crc: int) -> bytes:
    """Return data followed by four bytes that make this the CRC-32 of all."""
    value = crc ^ _ONES
    for _ in range(32):
        value = (value ^ 0xEDB88320) << 1 | 1 if value >> 31 else value << 1
    return data + (value ^ zlib.crc32(data) ^ _ONES).to_bytes(CRC_BYTES, "little")


def _wrong_records(random: np.random.Generator) -> Iterator[Image]:
    """Yield images with unknown records, and with records longer than the image."""
    for op in (6, 7, *(Op.END | 1 << bit for bit in range(3, 8)), int(random.integers(6, 256))):
        yield seal(CONFIG, record(Op.TEXT, b"a") + bytes([op, 0, 0])), 0, None
    for bit in range(4, 16):
        cut = bytes([Op.TEXT]) + (3 | 1 << bit).to_bytes(2, "little") + b"abc"
        yield seal(CONFIG, cut + _END), 0, None
    yield seal(CONFIG, _asked(Command.READ_MEMORY, 3, 2, 7) + record(Op.CHOICE, b"")), 0, None
    yield seal(CONFIG, _asked(Command.WRITE_MEMORY, 1, 2, 0, b"ab")[:-3]), 0, None


def _wrong_answers(random: np.random.Generator) -> Iterator[Image]:
    """Yield images with a request that the link answers with an error."""
    asked = _asked(Command.WRITE_MEMORY, 1, 2, 0, b"ab")
    body = asked + record(Op.TEXT, b"a") + _END
    for bit in range(8):
        yield seal(CONFIG, body), 0, _error(0, 1 << bit)
    yield seal(CONFIG, _good(random) + _END), 0, _error(3, 1 << int(random.integers(3)))
    yield seal(CONFIG, _asked(Command.WRITE_MEMORY, 1, 2, 63, b"no") + _END), 0, None


def _error(at: int, status: int) -> Answers:
    """Return a function that puts an error into the answer to one request."""
    return lambda number, reply: reply[:1] + bytes([status]) + reply[2:] if number == at else reply


def _with_payload(reply: bytes, data: bytes) -> bytes:
    start = 1 + ANSWER_HEADER
    return reply[: start - 2] + len(data).to_bytes(2, "little") + data + reply[-CRC_BYTES // 2 :]


def _odd(at: int, reply: bytes) -> bytes:
    """Return an answer with one byte more than whole numbers, the least number first."""
    if at != 2:
        return reply
    return _with_payload(reply, b"\x00\x80" + reply[3 + ANSWER_HEADER : -2] + b"\x7f")


def _instead(scores: dict[int, np.ndarray]) -> Answers:
    """Return a function that replaces the scores of answers, by the request's number."""
    return lambda number, reply: (
        _with_payload(reply, scores[number].astype("<i2").tobytes()) if number in scores else reply
    )


def _close_scores() -> bytes:
    """Return an image that reads two scores for each of their bits."""
    labelled = _asked(Command.READ_MEMORY, 3, 4, 7) + record(Op.LABEL, _names(2))
    return seal(CONFIG, labelled * 16 + _END)


def _pairs(random: np.random.Generator) -> dict[int, np.ndarray]:
    """Return pairs of scores that differ in one bit, the smaller first, so that both are read."""
    first = random.integers(1 << 16, size=16)
    pairs = (np.array([score, score ^ 1 << bit]) for bit, score in enumerate(first))
    return {bit: np.sort(pair.astype(np.uint16).view(np.int16)) for bit, pair in enumerate(pairs)}


def _late_classes() -> bytes:
    """Return an image with few labels, whose largest score is far after them."""
    labelled = _asked(Command.READ_MEMORY, 3, 4, 7) + record(Op.LABEL, _names(4))
    return seal(CONFIG, labelled * 7 + _END)


def _late(random: np.random.Generator) -> dict[int, np.ndarray]:
    scores_by_number = {}
    for number in range(7):
        count = (4 << number) + 4
        scores = random.integers(-(1 << 15), 1 << 14, count)
        scores[(4 << number) + number % 4] = 1 << 14
        scores_by_number[number] = scores
    return scores_by_number
