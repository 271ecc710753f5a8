"""SPI as a port like a serial one: through an adapter, or the port of a simulated board."""

import fcntl
import os
import select
import termios
import time
import tty
from typing import Any, Protocol

from celosia.arch.errors import InputError
from celosia.arch.packages import Deferred
from celosia.fpga.serial_port import port_error
from celosia.hdl.link.spi import FILL

_spi: Any = Deferred("pyftdi.spi", "An SPI adapter needs")
_usb: Any = Deferred("pyftdi.usbtools", "An SPI adapter needs")

FTDI = "ftdi://"
"""Prefix of the names of adapters with FTDI's chips."""

FIRST_PAUSE = 0.001
"""Shortest wait of a host for an answer (seconds)."""

LAST_PAUSE = 0.4
"""Longest wait of a host (seconds): longer than any board's limit for a request."""

CHUNK = 1024
"""Bytes in flight at once to a simulated board."""

BACK_SECONDS = 5.0
"""Longest time of a byte to and from a simulated board (seconds)."""

QUIET_SECONDS = 0.05
"""Silence on the line before this program begins (seconds)."""


class Wires(Protocol):
    """Exchange of bytes, one for each that is sent, while the board is selected."""

    def exchange(self, data: bytes) -> bytes:
        """Return the bytes received while others were sent."""

    def close(self) -> None:
        """Release the adapter."""


class SpiPort:
    """The methods of pyserial's ports that ``celosia.fpga.device`` uses.

    Bytes that come while a request is sent are dropped, as the board answers only afterwards.
    Reading sends zeros, which no request begins with, so that a byte comes in any case. Pauses
    separate single zeros without an answer, each longer than the previous one: a board reports an
    incomplete request only after a time without input.
    """

    timeout: float | None = None

    def __init__(self, wires: Wires):
        self._wires = wires
        self._pause = 0.0

    def read(self, size: int = 1) -> bytes:
        """Return bytes, including filling."""
        time.sleep(self._pause)
        data = self._wires.exchange(bytes(size))
        idle = size == 1 and data[0] == FILL
        self._pause = min(2 * self._pause + FIRST_PAUSE, LAST_PAUSE) if idle else 0.0
        return data

    def write(self, data: bytes, /) -> None:
        """Send bytes."""
        self._pause = 0.0
        self._wires.exchange(data)

    def reset_input_buffer(self) -> None:
        """Do nothing: nothing is received without a request."""

    def close(self) -> None:
        """Release the adapter."""
        self._wires.close()


class FtdiWires:
    """An adapter with one of FTDI's chips, in mode 0, whose ``name`` is pyftdi's.

    Raises :class:`InputError` if there is none, or it cannot be used.
    """

    def __init__(self, name: str, hertz: float):
        self._controller = _spi.SpiController(cs_count=1)
        try:
            self._controller.configure(name)
            self._port = self._controller.get_port(cs=0, freq=hertz, mode=0)
        except (ValueError, OSError, _usb.UsbToolsError, _spi.SpiIOError) as error:
            raise InputError(
                f"Cannot use SPI adapter {name}: {error}; connect it, install libusb, and name it "
                "as ftdi://ftdi:232h/1"
            ) from error

    def exchange(self, data: bytes) -> bytes:
        """Return the bytes received while others were sent."""
        return bytes(self._port.exchange(data, duplex=True))

    def close(self) -> None:
        """Release the adapter."""
        self._controller.close()


class TerminalWires:
    """A simulated board's port, which returns a byte for each byte written.

    Raises :class:`InputError` if there is none, or another program uses it.
    """

    def __init__(self, name: str):
        try:
            self._file = os.open(name, os.O_RDWR | os.O_NOCTTY)
        except OSError as error:
            raise port_error(name, str(error)) from error
        try:
            tty.setraw(self._file)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise port_error(name, "busy") from error
        except (OSError, termios.error) as error:
            self.close()
            raise port_error(name, str(error)) from error
        while self._comes(QUIET_SECONDS):
            os.read(self._file, CHUNK)

    def _comes(self, seconds: float) -> bool:
        return bool(select.select([self._file], [], [], seconds)[0])

    def exchange(self, data: bytes) -> bytes:
        """Send bytes and return the bytes that were received meanwhile, equally many.

        Raises :class:`OSError` if the other side does not answer.
        """
        received = b""
        for place in range(0, len(data), CHUNK):
            part = data[place : place + CHUNK]
            os.write(self._file, part)
            while len(received) < place + len(part):
                if not self._comes(BACK_SECONDS):
                    raise OSError("nothing comes back")
                received += os.read(self._file, CHUNK)
        return received

    def close(self) -> None:
        """Release the port."""
        os.close(self._file)


def open_spi(name: str, hertz: float) -> SpiPort:
    """Return the port of an adapter, or of a simulated board.

    Raises :class:`InputError` if there is none, or it cannot be used.
    """
    return SpiPort(FtdiWires(name, hertz) if name.startswith(FTDI) else TerminalWires(name))
