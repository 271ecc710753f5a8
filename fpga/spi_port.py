"""SPI links to a board or to a simulated board, with the same methods as a serial port."""

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
"""Prefix of a port's name if the port is an adapter with an FTDI chip."""

FIRST_PAUSE = 0.001
"""First pause between two reads of a byte while the board does not answer (seconds)."""

LAST_PAUSE = 0.4
"""Longest pause between two reads of a byte (seconds); a board drops a request after less."""

CHUNK = 1024
"""Most bytes that are in flight to a simulated board."""

BACK_SECONDS = 5.0
"""Timeout for the bytes that a simulated board returns (seconds)."""

QUIET_SECONDS = 0.05
"""Time without a byte from a simulated board before this program sends (seconds)."""


class Wires(Protocol):
    """Interface of an SPI controller, which receives a byte from the board for each byte sent."""

    def exchange(self, data: bytes) -> bytes:
        """Send ``data``, and return the bytes received meanwhile, one for each byte sent."""

    def close(self) -> None:
        """Close the connection to the board, so that other programs can use it."""


class SpiPort:
    """An SPI link with the methods of a serial port (:class:`celosia.fpga.serial_port.Port`).

    A read sends zero bytes, which the board ignores between requests. While the board does not
    answer, the pauses between reads grow up to ``LAST_PAUSE`` seconds. Bytes that arrive during a
    write are dropped.
    """

    timeout: float | None = None

    def __init__(self, wires: Wires):
        self._wires = wires
        self._pause = 0.0

    def read(self, size: int = 1) -> bytes:
        """Return ``size`` bytes from the board.

        If the board has no data to send when a byte is read, the byte is 0 (``FILL``).
        """
        time.sleep(self._pause)
        data = self._wires.exchange(bytes(size))
        # A zero byte prevents the board's timeout of an incomplete request, which ends in an error
        # answer. LAST_PAUSE is longer than the timeout, so the board can answer during a pause.
        idle = size == 1 and data[0] == FILL
        self._pause = min(2 * self._pause + FIRST_PAUSE, LAST_PAUSE) if idle else 0.0
        return data

    def write(self, data: bytes, /) -> None:
        """Send bytes, and drop the bytes that are received meanwhile."""
        self._pause = 0.0
        self._wires.exchange(data)

    def reset_input_buffer(self) -> None:
        """Do nothing, because this port receives bytes only while it reads or writes."""

    def close(self) -> None:
        """Close the connection to the board, so that other programs can use it."""
        self._wires.close()


class FtdiWires:
    """An SPI adapter with an FTDI chip, in SPI mode 0.

    ``name`` is the URL of the adapter in pyftdi. ``hertz`` is the frequency of SCK. Raises
    :class:`InputError` if the adapter does not exist or cannot be used.
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
        """Send ``data``, and return the bytes received meanwhile, one for each byte sent."""
        return bytes(self._port.exchange(data, duplex=True))

    def close(self) -> None:
        """Close the adapter."""
        self._controller.close()


class TerminalWires:
    """The SPI port of a simulated board: a pseudoterminal that returns a byte for each byte sent.

    ``name`` is the terminal's path. Raises :class:`InputError` if there is no such terminal, or
    another program uses it.
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
        """Send ``data``, and return the bytes received meanwhile, one for each byte sent.

        Raises :class:`OSError` if the simulated board does not answer.
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
        """Close the terminal, so that other programs can use it."""
        os.close(self._file)


def open_spi(name: str, hertz: float) -> SpiPort:
    """Open an SPI link through an adapter, or to a simulated board, and return the link.

    If ``name`` begins with ``ftdi://``, it is an adapter's URL in pyftdi, and SCK has ``hertz``.
    Otherwise ``name`` is the path of a simulated board's terminal. Raises :class:`InputError` if
    the adapter or terminal cannot be used.
    """
    return SpiPort(FtdiWires(name, hertz) if name.startswith(FTDI) else TerminalWires(name))
