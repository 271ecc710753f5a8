"""Golden model of the host link, which turns bytes of requests into bytes of answers."""

from collections.abc import Callable

from celosia.arch.link import (
    ANSWER_SYNC,
    CRC_BYTES,
    HELLO_FIELDS,
    READS,
    REQUEST_HEADER,
    REQUEST_SYNC,
    WORD_BYTES,
    Command,
    Identity,
    Status,
    answer,
    crc16,
)
from celosia.arch.registers import REGISTER_MAP

REGISTERS = 256
"""Number of registers that the host port can address."""


class LinkModel:
    """The machine's side of the host link, which receives requests and returns answers.

    ``read`` returns the register at an address, and ``write`` sets it. ``identity`` describes the
    machine, such as the size of ``memory``, the external memory. ``program_depth`` is the number of
    words of program memory.
    """

    def __init__(
        self,
        identity: Identity,
        program_depth: int,
        read: Callable[[int], int],
        write: Callable[[int, int], None],
    ):
        self.identity = identity
        self.memory = bytearray(identity.memory)
        self._program_depth = program_depth
        self._read = read
        self._write = write
        self._frame = b""
        self._corrupt = False
        self._started: int | None = None  # tag of a START, until a request of another kind or tag

    def receive(self, byte: int, broken: bool = False) -> bytes:
        """Receive a byte of a request; return the answer if the byte completes a valid request.

        Otherwise the result is empty. If a request has a wrong CRC or a wrong stop bit,
        :meth:`quiet` later returns its answer. ``broken`` is true if the received byte had a wrong
        stop bit.
        """
        if not self._frame:
            if byte == REQUEST_SYNC and not broken:
                self._frame = bytes([byte])
            return b""
        self._frame += bytes([byte])
        self._corrupt |= broken
        body = self._frame[1:]
        if self._corrupt or len(body) < REQUEST_HEADER:
            return b""
        length = int.from_bytes(body[2:4], "little")
        carried = 0 if body[0] in READS else length
        if carried > self.identity.payload:
            self._corrupt = True
        elif len(body) == REQUEST_HEADER + carried + CRC_BYTES:
            if crc16(body[:-CRC_BYTES]) == int.from_bytes(body[-CRC_BYTES:], "big"):
                self._frame = b""
                return self._answer(body[:-CRC_BYTES])
            self._corrupt = True
        return b""

    def quiet(self) -> bytes:
        """Let the link's timeout pass without a byte; return the answer to an unfinished request.

        The answer has the status CORRUPT. The result is empty if no request has begun.
        """
        if not self._frame:
            return b""
        # An incomplete header is the previous request's header, shifted by the bytes received.
        tag = self._frame[2] if len(self._frame) > REQUEST_HEADER else 0
        self._frame, self._corrupt = b"", False
        return answer(Status.CORRUPT, tag)

    def _answer(self, body: bytes) -> bytes:
        """Execute a request and return its answer."""
        command, tag = body[:2]
        length = int.from_bytes(body[2:4], "little")
        addr = int.from_bytes(body[4:REQUEST_HEADER], "little")
        payload = body[REQUEST_HEADER:]
        started, self._started = self._started, None
        if command == Command.START and started == tag:
            self._started = tag
            return answer(Status.OK, tag)
        status = self._check(command, length, addr)
        if status != Status.OK:
            return answer(status, tag)
        words = [
            int.from_bytes(payload[place : place + WORD_BYTES], "little")
            for place in range(0, len(payload), WORD_BYTES)
        ]
        reply = b""
        if command == Command.HELLO:
            reply = b"".join(word.to_bytes(4, "little") for word in self.identity.words())
            reply = reply[WORD_BYTES * addr :][:length]
        elif command == Command.READ_REGISTERS:
            places = range(addr, addr + length // WORD_BYTES)
            reply = b"".join(self._read(place).to_bytes(4, "little") for place in places)
        elif command == Command.READ_MEMORY:
            reply = bytes(self.memory[addr : addr + length])
        elif command == Command.WRITE_REGISTERS:
            for place, word in enumerate(words):
                self._write(addr + place, word)
        elif command == Command.WRITE_MEMORY:
            self.memory[addr : addr + length] = payload
        elif command == Command.LOAD_PROGRAM:
            self._write(REGISTER_MAP["PROGRAM_ADDR"].addr, addr)
            for word in words:
                self._write(REGISTER_MAP["PROGRAM_DATA"].addr, word)
        else:
            self._started = tag
            self._write(REGISTER_MAP["PC"].addr, addr)
            self._write(REGISTER_MAP["CONTROL"].addr, 1)
        return answer(Status.OK, tag, reply)

    def _check(self, command: int, length: int, addr: int) -> Status:
        """Return the status that refuses a request, or OK."""
        limits = {
            Command.HELLO: len(HELLO_FIELDS),
            Command.READ_REGISTERS: REGISTERS,
            Command.WRITE_REGISTERS: REGISTERS,
            Command.READ_MEMORY: self.identity.memory,
            Command.WRITE_MEMORY: self.identity.memory,
            Command.LOAD_PROGRAM: self._program_depth,
            Command.START: self._program_depth - 1,
        }
        if command not in limits:
            return Status.UNKNOWN
        in_bytes = command in (Command.READ_MEMORY, Command.WRITE_MEMORY)
        whole = length == 0 if command == Command.START else not length % WORD_BYTES
        if not in_bytes and not whole:
            return Status.LENGTH
        if addr + (length if in_bytes else length // WORD_BYTES) > limits[Command(command)]:
            return Status.ADDRESS
        running = self._read(REGISTER_MAP["STATUS"].addr) & 1
        registers = (Command.HELLO, Command.READ_REGISTERS, Command.WRITE_REGISTERS)
        return Status.BUSY if running and command not in registers else Status.OK


def answers(data: bytes) -> list[tuple[int, int, bytes]]:
    """Return a list with (status, tag, payload) of each complete answer frame in ``data``.

    Bytes that do not belong to a frame with a correct CRC are skipped.
    """
    frames = []
    while len(data) > 6:
        end = 5 + int.from_bytes(data[3:5], "little") + CRC_BYTES
        whole = data[0] == ANSWER_SYNC and len(data) >= end
        if whole and crc16(data[1 : end - 2]) == int.from_bytes(data[end - 2 : end], "big"):
            frames.append((data[1], data[2], data[5 : end - 2]))
            data = data[end:]
        else:
            data = data[1:]
    return frames
