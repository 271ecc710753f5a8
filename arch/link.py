"""The frames of the host link, defined once for circuit, golden model and host software."""

import enum
import hashlib
import json
from dataclasses import dataclass

from celosia.arch.choices import EARLIER
from celosia.arch.config import Config
from celosia.arch.micro.config import CONSTANTS

VERSION = 1
"""Version of the protocol, the first word of HELLO's answer."""

REQUEST_SYNC = 0x5C
"""First byte of a frame from the host."""

ANSWER_SYNC = 0xC5
"""First byte of a frame from the machine."""

REQUEST_HEADER = 8
"""Bytes of a request between sync byte and payload."""

ANSWER_HEADER = 4
"""Bytes of an answer between sync byte and payload."""

CRC_BYTES = 2
"""Bytes of the CRC that ends every frame."""

WORD_BYTES = 4
"""Bytes of a register, and of a program word."""

_CRC_POLYNOMIAL = 0x1021
_CRC_START = 0xFFFF


class Command(enum.IntEnum):
    """The operation that a request frame asks the machine to execute."""

    HELLO = 1
    READ_REGISTERS = 2
    WRITE_REGISTERS = 3
    READ_MEMORY = 4
    WRITE_MEMORY = 5
    LOAD_PROGRAM = 6
    START = 7


READS = (Command.HELLO, Command.READ_REGISTERS, Command.READ_MEMORY)
"""Commands that return data: ``length`` counts the answer's payload, else the request's."""


class Status(enum.IntEnum):
    """Result of a request, as its answer frame reports it."""

    OK = 0
    CORRUPT = 1
    UNKNOWN = 2
    ADDRESS = 3
    LENGTH = 4
    BUSY = 5


STATUS_MEANINGS = {
    Status.OK: "the request was carried out",
    Status.CORRUPT: "the request was cut, too long, or its CRC or a stop bit was wrong; nothing "
    "of it was carried out",
    Status.UNKNOWN: "there is no such command",
    Status.ADDRESS: "address and length reach past the end",
    Status.LENGTH: "the length is not one of whole words, or not that of the command",
    Status.BUSY: "a run is in progress, so that no other one starts",
}
"""Meaning of each status."""

HELLO_FIELDS = ("version", "configuration", "clock", "memory", "payload")
"""The words of HELLO's answer, in order."""


@dataclass(frozen=True)
class Identity:
    """A machine's description of itself: the 32-bit words of the answer to the request HELLO."""

    version: int
    """Version of the protocol."""
    configuration: int
    """Fingerprint of the configuration."""
    clock: int
    """Frequency of the machine's clock (Hz)."""
    memory: int
    """Size of external memory (bytes)."""
    payload: int
    """Longest payload of a frame (bytes)."""

    def words(self) -> list[int]:
        """Return the list of 32-bit words that the machine sends as the answer to HELLO."""
        return [getattr(self, name) for name in HELLO_FIELDS]


_FIELDS = (
    "rows cols array packed pass_width packed_slots packed_cache low_rows block_exponents "
    "weight_depth operand_width acc_width max_k lanes softmax_lanes scratchpad_bytes "
    "scratchpad_banks scratchpad_align registered acc_depth mem_width mem_addr_width program_depth "
    "param_depth pre_depth multiplier_width bias_width table_slots row_factors max_row queue_depth "
    "watchdog zero_points b_transpose operand_gating sleep activation wide_operands wide_functions "
    "softmax norm rotary argmax fused weight_formats weight_group sparse_lanes sparse_depth "
    "throttle protect counters trace requantizer"
)
"""Fields in the text of a fingerprint, in order."""
_LATER = {"scratchpad_align": 1, "softmax_lanes": 0, "row_factors": 0}
"""Fields added after the first machines, with the value that leaves the circuit unchanged."""


def fingerprint(config: Config) -> int:
    """Return a 32-bit hash that identifies a configuration, whatever its name and clock.

    A machine's hash never changes between versions of Celosia. It is the first four bytes of the
    SHA-256 of a text with a line ``NAME = VALUE`` for each field.
    """
    # The text is that of the oldest configuration files: an empty name, a clock of 50 MHz, and the
    # older fields of celosia.arch.choices. Later fields are in it only if they change the circuit,
    # and fields with a fixed value in a microcoded machine are not.
    left_out = {"requantizer"}
    if config.micro is not None:
        left_out = {name for name in _FIELDS.split() if {name, EARLIER.get(name)} & {*CONSTANTS}}
    values = {"name": "", "clock_mhz": 50} | {
        name: config.read(name)
        for name in _FIELDS.split()
        if name not in left_out and _LATER.get(name) != config.read(name)
    }
    if config.micro is not None:
        values["preset"] = "micro"
    lines = (
        f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in values.items()
    )
    return int.from_bytes(hashlib.sha256("".join(lines).encode()).digest()[:4], "big")


def crc16(data: bytes) -> int:
    """Return the CRC-16 of ``data``, the bytes of a frame between its sync byte and its CRC.

    Frames carry the CRC's most significant byte first. The CRC is CRC-16/IBM-3740 of Greg Cook's
    catalogue, also known as CCITT-FALSE: polynomial 0x1021, start value 0xFFFF, no reflection and
    no inversion.
    """
    crc = _CRC_START
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1) ^ (_CRC_POLYNOMIAL if crc >> 15 else 0)
            crc &= 0xFFFF
    return crc


def request(command: int, tag: int, length: int, addr: int, payload: bytes = b"") -> bytes:
    """Return the bytes of a request frame, which the host sends to the machine.

    ``command`` is a :class:`Command`, and determines the unit of ``addr``. The answer repeats
    ``tag``. ``length`` is the number of bytes to read or write (16 bits). A write has these bytes
    in ``payload``.
    """
    body = bytes([command, tag]) + length.to_bytes(2, "little") + addr.to_bytes(4, "little")
    return _frame(REQUEST_SYNC, body + payload)


def answer(status: int, tag: int, payload: bytes = b"") -> bytes:
    """Return the bytes of an answer frame, which the machine sends to the host.

    ``tag`` is the tag of the answered request. ``status`` is the request's result
    (:class:`Status`). ``payload`` has the data that the request reads, or is empty.
    """
    body = bytes([status, tag]) + len(payload).to_bytes(2, "little")
    return _frame(ANSWER_SYNC, body + payload)


def _frame(sync: int, body: bytes) -> bytes:
    return bytes([sync]) + body + crc16(body).to_bytes(CRC_BYTES, "big")
