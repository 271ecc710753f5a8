"""A machine on a board, connected by a serial line or SPI.

:class:`Device` has the methods of ``celosia.sim.interpreter.Interpreter``, so the same code can run
a program on a board and on the reference interpreter, and compare the results.
"""

import secrets
import time
from collections.abc import Sequence
from typing import Self

from celosia.arch.config import Config
from celosia.arch.errors import InputError, RunError
from celosia.arch.link import (
    ANSWER_HEADER,
    ANSWER_SYNC,
    CRC_BYTES,
    HELLO_FIELDS,
    STATUS_MEANINGS,
    VERSION,
    WORD_BYTES,
    Command,
    Identity,
    Status,
    crc16,
    fingerprint,
    request,
)
from celosia.arch.presets import PRESETS
from celosia.arch.registers import CONTROL_ABORT, REGISTER_MAP, STATUS_BUSY
from celosia.fpga.boards import board_configs, check_link
from celosia.fpga.serial_port import Port, open_serial, serial
from celosia.fpga.spi_port import open_spi
from celosia.fpga.top import BAUD
from celosia.generators.runtime.host_port import HostPort
from celosia.sim.report import Report

RETRIES = 6
"""Number of times that a request is sent again before an error is raised."""

ANSWER_SECONDS = 1.0
"""Timeout of an answer (seconds); the machine drops an incomplete request much earlier."""

SIMULATED_SECONDS = 10.0
"""Timeout of a simulated board's answer (seconds); a simulation is slower than a board."""

REST_SECONDS = 0.1
"""Time to wait for the remaining bytes of a damaged answer, before they are dropped (seconds)."""

FIRST_SECONDS = 4.0
"""Longest timeout of an answer until a machine has answered for the first time (seconds)."""

FIRST_TRIES = 3
"""Number of unanswered requests after which a machine that never answered is reported missing."""

PATIENCE = 8
"""Largest factor by which the timeout grows for a machine that has answered before."""

_LONGEST = 1024  # bytes of an answer
_TERMINALS = "/dev/pts/"  # where the ports of simulated boards are


class Device(HostPort):
    """A machine on a board, used through a serial or SPI port.

    If ``config`` is None, the board reports a hash that selects a known configuration. A request
    without an answer in ``answer_seconds`` is repeated. Raises :class:`RunError` if the board does
    not answer, or has another protocol or configuration.
    """

    # An absent or incomplete answer doubles the timeout, up to PATIENCE times. The first request
    # has FIRST_TRIES tries of at most FIRST_SECONDS; others have RETRIES further tries.

    def __init__(
        self,
        port: Port,
        name: str,
        config: Config | None = None,
        *,
        answer_seconds: float = ANSWER_SECONDS,
        run_seconds: float = 600.0,
    ):
        self.name = name
        self.repeated = 0
        self.contents = b""
        """Known contents of external memory: the first write of just these is left out."""
        self._port = port
        self._run_seconds = run_seconds
        self._tag = secrets.randbelow(256)
        self._answer_seconds = min(answer_seconds, FIRST_SECONDS)
        self._tries, self._patience = FIRST_TRIES, 1
        try:
            port.reset_input_buffer()
            self.identity = self._hello()
            self._answer_seconds = answer_seconds
            self._tries, self._patience = RETRIES + 1, PATIENCE
            self.config = self._identify(config)
        except BaseException:
            port.close()
            raise

    @classmethod
    def open(
        cls,
        name: str,
        config: Config | None = None,
        *,
        baud: int = BAUD,
        link: str = "uart",
        **options: float,
    ) -> Self:
        """Open the serial or SPI port ``name``, and return the machine on the board at this port.

        ``link`` is ``uart`` or ``spi``, with ``baud`` bits per second. ``options`` are keyword
        arguments of :class:`Device`. Raises :class:`InputError` if the port is unknown or in use,
        and :class:`RunError` if the board does not answer as expected.
        """
        check_link(link)
        port = open_serial(name, baud) if link == "uart" else open_spi(name, baud)
        if name.startswith(_TERMINALS):
            options = {"answer_seconds": SIMULATED_SECONDS, "run_seconds": 7200.0} | options
        return cls(port, name, config, **options)

    def close(self) -> None:
        """Close the serial or SPI port."""
        self._port.close()

    def write_memory(self, addr: int, data: bytes) -> None:
        """Write bytes to external memory from byte address ``addr`` on.

        Raises :class:`InputError` if the range exceeds the memory.
        """
        self._check_memory(addr, len(data))
        if data and self.contents[addr : addr + len(data)] == data:
            self.contents = b""
            return
        step = self.identity.payload
        for place in range(0, len(data), step):
            part = data[place : place + step]
            self._ask(Command.WRITE_MEMORY, len(part), addr + place, part)

    def read_memory(self, addr: int, count: int) -> bytes:
        """Return ``count`` bytes of external memory from byte address ``addr`` on.

        Raises :class:`InputError` if the range exceeds the memory.
        """
        self._check_memory(addr, count)
        step = self.identity.payload
        return b"".join(
            self._ask(Command.READ_MEMORY, min(step, count - place), addr + place)
            for place in range(0, count, step)
        )

    def load_program(self, words: Sequence[int]) -> None:
        """Write the words of a program to the program memory, from address 0 on.

        Raises :class:`InputError` if the words do not fit the program memory.
        """
        self.check_program(words)
        step = self.identity.payload // WORD_BYTES
        for place in range(0, len(words), step):
            data = b"".join(word.to_bytes(4, "little") for word in words[place : place + step])
            self._ask(Command.LOAD_PROGRAM, len(data), place, data)

    def write_register(self, name: str, value: int) -> None:
        """Write the low 32 bits of ``value`` to the host port's register with the name ``name``."""
        data = (value % (1 << 32)).to_bytes(4, "little")
        self._ask(Command.WRITE_REGISTERS, 4, REGISTER_MAP[name].addr, data)

    def read_registers(self, names: Sequence[str]) -> list[int]:
        """Return the values of the registers ``names``, read in one request.

        The registers must have consecutive addresses, in the order of ``names``.
        """
        addr = REGISTER_MAP[names[0]].addr
        return _words(self._ask(Command.READ_REGISTERS, WORD_BYTES * len(names), addr))

    def start(self, pc: int = 0) -> Report:
        """Run the program from word address ``pc`` to HALT; return a report of cycles and counters.

        The report has no signatures (hashes) of written bytes. Raises :class:`RunError` if the
        circuit reports an error, the board was reset, or the run takes more than ``run_seconds``.
        """
        self._ask(Command.START, 0, pc)
        end = time.monotonic() + self._run_seconds
        while (status := self.read_register("STATUS")) & STATUS_BUSY:
            if time.monotonic() > end:
                self.write_register("CONTROL", CONTROL_ABORT)
                raise RunError(f"The run did not halt within {self._run_seconds:g} s")
        self.check_status(status)
        values = self.counters()
        cycles = values.pop("cycles")
        if not cycles:
            raise RunError(f"The board on {self.name} was reset or flashed during the run")
        return Report(cycles=cycles, counters=values)

    def _check_memory(self, addr: int, count: int) -> None:
        if not 0 <= addr <= addr + count <= self.identity.memory:
            raise InputError(
                f"Bytes {addr} to {addr + count} are outside the board's external memory of "
                f"{self.identity.memory} bytes"
            )

    def _hello(self) -> Identity:
        words = _words(self._ask(Command.HELLO, WORD_BYTES * len(HELLO_FIELDS), 0))
        identity = Identity(**dict(zip(HELLO_FIELDS, words, strict=True)))
        if identity.version != VERSION:
            raise RunError(
                f"The bitstream on {self.name} speaks protocol version {identity.version}, this "
                f"program version {VERSION}; build and flash it again with celosia build and "
                "celosia flash"
            )
        return identity

    def _identify(self, config: Config | None) -> Config:
        number = self.identity.configuration
        if config is None:
            known = known_config(number)
            if known is not None:
                return known
            raise RunError(
                f"The bitstream on {self.name} has a configuration ({number:08x}) that is neither "
                "a preset nor a board's; name its TOML file with --config: celosia build writes "
                "config.toml beside the bitstream, and celosia board says where it is"
            )
        config = config.replace(trace=False)
        if fingerprint(config) != number:
            raise RunError(
                f"The bitstream on {self.name} has another configuration ({number:08x}) than "
                f"{config.name} ({fingerprint(config):08x}); give it with --config, or build and "
                "flash again with celosia build and celosia flash"
            )
        return config

    def _ask(self, command: Command, length: int, addr: int, payload: bytes = b"") -> bytes:
        """Return the payload of a request's answer; repeat the request until it comes."""
        self._tag = (self._tag + 1) % 256
        frame = request(command, self._tag, length, addr, payload)
        answered, silent = False, 0
        for attempt in range(RETRIES + 1):
            self.repeated += attempt > 0
            try:
                self._port.timeout = self._answer_seconds * min(1 << silent, self._patience)
                self._port.write(frame)
                answer = self._receive()
            except (serial.SerialException, OSError) as error:
                raise RunError(
                    f"The connection to {self.name} was cut: {error}; connect the board and try "
                    "again"
                ) from error
            if answer is None:
                silent += 1
                if silent == self._tries:
                    break
                continue
            answered = True
            status, data, whole = answer
            silent += not whole
            if status == Status.OK:
                return data
            if status != Status.CORRUPT:
                meaning = STATUS_MEANINGS.get(status, "unknown status")
                raise RunError(
                    f"The board on {self.name} refused {command.name} at {addr:#x}: {meaning}"
                )
        if answered:
            raise RunError(
                f"The connection to {self.name} is too noisy: {command.name} or its answer "
                f"arrived damaged {RETRIES + 1} times; try another cable or a lower --baud"
            )
        raise RunError(
            f"Nothing on {self.name} answers {command.name}; check that the board is powered and "
            "flashed, and that --baud is the bitstream's"
        )

    def _receive(self) -> tuple[int, bytes, bool] | None:
        """Return the answer to the latest request, None if nothing comes.

        It is the status, the payload, and True if all of it was received. A damaged answer is
        CORRUPT as well.
        """
        end = time.monotonic() + (self._port.timeout or 0)
        while True:
            byte = self._port.read(1)
            if not byte:
                return None
            if byte[0] != ANSWER_SYNC:
                if time.monotonic() > end:
                    return None
                continue
            header = self._port.read(ANSWER_HEADER)
            if len(header) < ANSWER_HEADER:
                self._forget()
                return Status.CORRUPT, b"", False
            length = int.from_bytes(header[2:], "little")
            rest = self._port.read(length + CRC_BYTES)
            body = header + rest[:-CRC_BYTES]
            whole = len(rest) == length + CRC_BYTES
            if not whole or crc16(body) != int.from_bytes(rest[-CRC_BYTES:], "big"):
                self._forget()
                return Status.CORRUPT, b"", whole
            if header[0] == Status.CORRUPT:
                return Status.CORRUPT, b"", True
            if header[1] == self._tag:
                return header[0], body[ANSWER_HEADER:], True

    def _forget(self) -> None:
        """Wait until the rest of a damaged answer has come; no answer is longer."""
        self._port.timeout = REST_SECONDS
        self._port.read(_LONGEST)


def known_config(number: int) -> Config | None:
    """Return the configuration with the fingerprint (hash) ``number``, or None if it is unknown.

    The known configurations are the presets and the configurations of the boards.
    """
    for known in (*PRESETS.values(), *board_configs()):
        if fingerprint(known) == number:
            return known
    return None


def _words(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + WORD_BYTES], "little") for at in range(0, len(data), 4)]
